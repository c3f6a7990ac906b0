"""What a commit may say of the partitions of its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_delta.engine.errors import ConstraintViolationError
from airflow_delta.engine.model.actions import AddCdcFile
from tests.engine.transaction.prepare.attempts import attempt, file, mapped, schema, table

VALUES = [
    ("integer", "12", True),
    ("integer", None, True),
    ("integer", "", True),
    ("integer", "12.5", False),
    ("integer", "2147483648", False),
    ("date", "2024-02-29", True),
    ("date", "2023-02-29", False),
    ("timestamp", "2024-01-01 00:00:00", True),
    ("timestamp", "yesterday", False),
    ("boolean", "true", True),
    ("boolean", "yes", False),
    ("decimal(3,1)", "12.5", True),
    ("decimal(3,1)", "12.55", False),
    ("string", "any text", True),
    ("string", "__HIVE_DEFAULT_PARTITION__", False),
    ("integer", "__HIVE_DEFAULT_PARTITION__", False),
]


@pytest.mark.parametrize(("type_", "text", "fits"), VALUES)
def test_a_partition_value_is_a_text_of_its_type(
    tmp_path: Path, type_: str, text: str | None, fits: bool
) -> None:
    table(tmp_path, (), partition_columns=["p"], schema=schema(id="long", p=type_))
    added = file(partition_values={"p": text})
    if fits:
        assert attempt(tmp_path, adds=(added,)).actions.adds == (added,)
    else:
        with pytest.raises(
            ConstraintViolationError, match=r"'f\.parquet', partition column 'p': "
        ) as caught:
            attempt(tmp_path, adds=(added,))
        assert caught.value.version == 1


def test_the_hive_null_is_explained(tmp_path: Path) -> None:
    table(tmp_path, (), partition_columns=["part"])
    null = file(partition_values={"part": "__HIVE_DEFAULT_PARTITION__"})
    with pytest.raises(ConstraintViolationError, match="directory names only; expected null"):
        attempt(tmp_path, adds=(null,))


@pytest.mark.parametrize("null", [None, ""])
def test_a_column_without_nulls_is_in_no_partition_of_nulls(
    tmp_path: Path, null: str | None
) -> None:
    columns = schema(id="long", p="integer")
    columns["fields"][1]["nullable"] = False
    table(tmp_path, ("invariants",), partition_columns=["p"], schema=columns)
    attempt(tmp_path, adds=(file(partition_values={"p": "0"}),))
    with pytest.raises(ConstraintViolationError, match="the column is NOT NULL"):
        attempt(tmp_path, adds=(file(partition_values={"p": null}),))


@pytest.mark.parametrize("values", [{}, {"part": "a", "id": "1"}, {"Part": "a"}])
def test_each_partition_column_has_a_value_and_no_other(
    tmp_path: Path, values: dict[str, str]
) -> None:
    table(tmp_path, (), partition_columns=["part"])
    with pytest.raises(ConstraintViolationError, match=r"partitioned by \['part'\]"):
        attempt(tmp_path, adds=(file(partition_values=values),))


def test_a_partition_value_is_known_by_the_physical_name(tmp_path: Path) -> None:
    table(
        tmp_path,
        ("columnMapping",),
        partition_columns=["p"],
        schema=mapped(schema(id="long", p="integer")),
        configuration={"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"},
    )
    with pytest.raises(ConstraintViolationError, match="partitioned by"):
        attempt(tmp_path, adds=(file(partition_values={"p": "1"}),))
    with pytest.raises(ConstraintViolationError, match="'x' is no integer"):
        attempt(tmp_path, adds=(file(partition_values={"c2": "x"}),))
    attempt(tmp_path, adds=(file(partition_values={"c2": "1"}),))


def test_files_of_changed_rows_have_partitions_too(tmp_path: Path) -> None:
    feed = {"delta.enableChangeDataFeed": "true"}
    table(tmp_path, ("changeDataFeed",), partition_columns=["part"], configuration=feed)
    with pytest.raises(ConstraintViolationError, match="'_change_data/c' has partition values"):
        attempt(tmp_path, cdc=(AddCdcFile("_change_data/c", {}, 1),))
    attempt(tmp_path, cdc=(AddCdcFile("_change_data/c", {"part": None}, 1),))
