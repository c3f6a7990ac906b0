"""Changes of a table that its files don't allow."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import ConstraintViolationError, InvalidArgumentError
from airflow_delta.engine.model.actions import Metadata
from tests.engine.transaction.prepare.attempts import (
    attempt,
    file,
    mapped,
    schema,
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


MAPPING = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "9"}


def columns(root: Path, **changes: Any) -> Metadata:
    """The table's metadata with another schema: a change is made to the first column."""
    current = DeltaTable(str(root)).snapshot().metadata
    schema_json = json.loads(current.schema_string or "")
    schema_json["fields"][0] |= changes
    return replace(current, schema_string=json.dumps(schema_json))


def refused_with_files(root: Path, metadata: Metadata, match: str) -> None:
    """A change that a file that stays forbids, and the overwriting of the table allows."""
    with pytest.raises(ConstraintViolationError, match=match):
        attempt(root, metadata=metadata)
    with pytest.raises(ConstraintViolationError, match=match):
        attempt(root, metadata=metadata, adds=(file("f", data_change=False),))
    attempt(root, metadata=metadata, removes=(tombstone("f"),), adds=(file("g"),))


@pytest.mark.parametrize(
    ("old", "new", "widens"),
    [
        ("long", "boolean", False),
        ("long", "integer", False),
        ("integer", "long", True),
        ("integer", "string", False),
        ("float", "double", True),
        ("date", "timestamp_ntz", True),
        ("decimal(5,2)", "decimal(7,3)", True),
        ("decimal(5,2)", "decimal(5,3)", False),
        ("long", schema(x="long"), False),
        (schema(x="long"), "long", False),
        (schema(x="integer"), schema(x="long"), True),
        (schema(x="long"), schema(x="string"), False),
    ],
)
def test_a_column_keeps_a_type_that_its_files_can_be_read_as(
    tmp_path: Path, old: Any, new: Any, widens: bool
) -> None:
    features = ("typeWidening", "timestampNtz")
    widening = {"delta.enableTypeWidening": "true"}
    table(tmp_path / "off", features, add("f"), schema=schema(c=old))
    refused_with_files(tmp_path / "off", columns(tmp_path / "off", type=new), "the type of the col")
    on = table(tmp_path / "on", features, add("f"), schema=schema(c=old), configuration=widening)
    if widens:
        attempt(on, metadata=columns(on, type=new))
    else:
        refused_with_files(on, columns(on, type=new), "the type of the column c.* changes from")


def test_a_column_without_a_type_gets_any(tmp_path: Path) -> None:
    table(tmp_path, (), add("f"), schema=schema(c="void"))
    attempt(tmp_path, metadata=columns(tmp_path, type="string"))


@pytest.mark.parametrize(
    ("number", "physical", "fits"),
    [
        (1, "c1", True),
        (1, "other", False),
        (2, "c1", False),
        # Another column, that happens to have the name of the one that is gone.
        (3, "other", True),
    ],
)
def test_a_mapped_column_keeps_its_physical_name_and_its_id(
    tmp_path: Path, number: int, physical: str, fits: bool
) -> None:
    table(
        tmp_path,
        ("columnMapping",),
        add("f"),
        schema=mapped(schema(c="long")),
        configuration=MAPPING,
    )
    mapping = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    for name in ("c", "renamed"):
        changed = columns(tmp_path, name=name, metadata=mapping)
        if fits:
            attempt(tmp_path, metadata=changed)
        else:
            refused_with_files(tmp_path, changed, "the physical name or the id of a column changes")


@pytest.mark.parametrize(("physical", "fits"), [("c", True), ("other", False)])
def test_a_column_goes_on_by_its_name_when_mapping_is_turned_on(
    tmp_path: Path, physical: str, fits: bool
) -> None:
    table(tmp_path, ("columnMapping",), add("f"), schema=schema(c="long"))
    mapping = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": physical}
    changed = replace(columns(tmp_path, metadata=mapping), configuration=MAPPING)
    if fits:
        attempt(tmp_path, metadata=changed)
    else:
        refused_with_files(tmp_path, changed, "the physical name c; a column")


def test_not_null_needs_files_that_were_checked(tmp_path: Path) -> None:
    table(tmp_path, ("invariants",), add("f"), schema=schema(c="long"))
    ruled = columns(tmp_path, nullable=False)
    with pytest.raises(ConstraintViolationError, match="NOT NULL of the column c"):
        attempt(tmp_path, metadata=ruled)
    attempt(tmp_path, metadata=ruled, removes=(tombstone("f"),))


def test_column_mapping_is_not_turned_on_by_id(tmp_path: Path) -> None:
    table(tmp_path, ("columnMapping",))
    by_id = {"delta_columnMapping.mode": "id", "delta_columnMapping.maxColumnId": "0"}
    metadata = replace(
        with_properties(tmp_path, **by_id), schema_string='{"type":"struct","fields":[]}'
    )
    with pytest.raises(InvalidArgumentError, match="use 'name'"):
        attempt(tmp_path, metadata=metadata)
