"""Changes of a table that its files don't allow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import ConstraintViolationError, InvalidArgumentError
from tests.engine.transaction.prepare.attempts import (
    attempt,
    file,
    table,
    tombstone,
    with_properties,
)
from tests.log_builder import add


def test_a_constraint_is_added_only_where_no_row_is_unchecked(tmp_path: Path) -> None:
    table(tmp_path, ("checkConstraints",), add("f"))
    ruled = with_properties(tmp_path, **{"delta_constraints.positive": "id > 0"})
    with pytest.raises(ConstraintViolationError, match="'f'"):
        attempt(tmp_path, metadata=ruled)
    attempt(tmp_path, metadata=ruled, removes=(tombstone("f"),))
    # New rows are those of a writer that knows of the constraint already.
    attempt(
        tmp_path,
        metadata=ruled,
        removes=(tombstone("f"),),
        adds=(file("g"),),
        enforced=["checkConstraints"],
    )
    table(tmp_path / "empty", ("checkConstraints",))
    attempt(tmp_path / "empty", metadata=ruled)


def test_a_file_that_is_committed_again_is_still_the_old_one(tmp_path: Path) -> None:
    table(tmp_path, ("checkConstraints",), add("f"))
    ruled = with_properties(tmp_path, **{"delta_constraints.positive": "id > 0"})
    with pytest.raises(ConstraintViolationError, match="'f'"):
        attempt(
            tmp_path,
            metadata=ruled,
            adds=(file("f", data_change=False),),
            enforced=["checkConstraints"],
        )


def test_other_partition_columns_need_other_files(tmp_path: Path) -> None:
    table(tmp_path, (), add("f"))
    current = DeltaTable(str(tmp_path)).snapshot().metadata
    parted = replace(current, partition_columns=("part",))
    with pytest.raises(ConstraintViolationError, match=r"the files are partitioned by \[\]"):
        attempt(tmp_path, metadata=parted)
    overwritten = file("g", partition_values={"part": "a"})
    attempt(tmp_path, metadata=parted, removes=(tombstone("f"),), adds=(overwritten,))


def test_column_mapping_is_not_turned_on_by_id(tmp_path: Path) -> None:
    table(tmp_path, ("columnMapping",))
    by_id = {"delta_columnMapping.mode": "id", "delta_columnMapping.maxColumnId": "0"}
    metadata = replace(
        with_properties(tmp_path, **by_id), schema_string='{"type":"struct","fields":[]}'
    )
    with pytest.raises(InvalidArgumentError, match="use 'name'"):
        attempt(tmp_path, metadata=metadata)
