"""Commits to tables that Iceberg can read: PROTOCOL.md, "Iceberg Compatibility V1" and "V2"."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import (
    ConstraintViolationError,
    InvalidTableError,
    UnsupportedFeatureError,
)
from tests.engine.transaction.prepare.attempts import (
    attempt,
    counted,
    file,
    mapped,
    schema,
    table,
    with_properties,
)

MAPPING = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}


def iceberg_table(root: Path, number: int, **options: Any) -> str:
    feature = f"icebergCompatV{number}"
    configuration = {**MAPPING, f"delta.enableIcebergCompatV{number}": "true"}
    columns = mapped(schema(id="long", part="string"))
    table(
        root,
        ("columnMapping", feature),
        configuration=configuration,
        **{"schema": columns, **options},
    )
    return feature


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("stats", [None, "{}", '{"minValues":{}}'])
def test_each_file_needs_num_records(tmp_path: Path, number: int, stats: str | None) -> None:
    feature = iceberg_table(tmp_path, number)
    with pytest.raises(ConstraintViolationError, match=rf"numRecords, .* {feature} needs it"):
        attempt(tmp_path, adds=(file(stats=stats),), enforced=[feature])
    attempt(tmp_path, adds=(file(stats=counted(3)),), enforced=[feature])


@pytest.mark.parametrize("number", [1, 2])
def test_files_of_a_writer_that_does_not_know_how_to_write_them_are_refused(
    tmp_path: Path, number: int
) -> None:
    feature = iceberg_table(tmp_path, number)
    with pytest.raises(UnsupportedFeatureError, match=feature):
        attempt(tmp_path, adds=(file(stats=counted(3)),))
    attempt(tmp_path, metadata=with_properties(tmp_path, mine="1"))


@pytest.mark.parametrize("number", [1, 2])
def test_the_partition_columns_stay(tmp_path: Path, number: int) -> None:
    iceberg_table(tmp_path, number, partition_columns=["part"])
    current = DeltaTable(str(tmp_path)).snapshot().metadata
    for columns in ((), ("id",)):
        with pytest.raises(InvalidTableError, match=r"\['part'\], which can't become"):
            attempt(tmp_path, metadata=replace(current, partition_columns=columns))


@pytest.mark.parametrize("number", [1, 2])
def test_a_partition_column_may_get_another_name(tmp_path: Path, number: int) -> None:
    iceberg_table(tmp_path, number, partition_columns=["part"])
    current = DeltaTable(str(tmp_path)).snapshot().metadata
    swapped = mapped(schema(part="long", other="string"))  # physical names keep their positions
    renamed = replace(current, schema_string=json.dumps(swapped), partition_columns=("other",))
    attempt(tmp_path, metadata=renamed)
    # The old name is another column's by now.
    with pytest.raises(InvalidTableError, match=r"\['part'\], which can't become \['part'\]"):
        attempt(tmp_path, metadata=replace(renamed, partition_columns=("part",)))


def test_deletion_vectors_are_not_turned_on(tmp_path: Path) -> None:
    iceberg_table(tmp_path, 2)
    both = DeltaTable(str(tmp_path)).snapshot().protocol
    lists = ((both.reader_features or frozenset()) | {"deletionVectors"}, both.writer_features)
    upgraded = replace(
        both,
        reader_features=lists[0],
        writer_features=(lists[1] or frozenset()) | {"deletionVectors"},
    )
    on = with_properties(tmp_path, delta_enableDeletionVectors="true")
    with pytest.raises(InvalidTableError, match="deletion vectors are enabled"):
        attempt(tmp_path, protocol=upgraded, metadata=on)
    attempt(tmp_path, protocol=upgraded)
