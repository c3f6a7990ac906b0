"""New tables: what is refused before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from airflow_delta.engine import DeltaTable, OptimisticTransaction
from airflow_delta.engine.errors import (
    InvalidArgumentError,
    InvalidTableError,
    TableAlreadyExistsError,
)
from airflow_delta.engine.model.schema import LONG, STRING, ArrayType, StructField, StructType
from tests.log_builder import add, commit_path, write_table

SCHEMA = StructType(
    (StructField("id", LONG), StructField("part", STRING), StructField("many", ArrayType(LONG)))
)


@pytest.mark.parametrize(
    ("partition_by", "problem"),
    [
        ("part", r"partition_by='part': expected a list of columns, such as \['part'\]"),
        (
            ["part", "nowhere"],
            r"\['nowhere'\] are no columns of the table, which has id, part, many",
        ),
        (["PART"], r"\['PART'\] are no columns"),
        (["part", "part"], "a column can partition a table once"),
        (["many", "id", "part"], "these are all columns"),
    ],
)
def test_partition_columns_that_make_no_sense(
    tmp_path: Path, partition_by: Sequence[str], problem: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=problem):
        DeltaTable.create(str(tmp_path), SCHEMA, partition_by=partition_by)
    assert not (tmp_path / "_delta_log").exists()


def test_an_array_is_nothing_to_partition_by(tmp_path: Path) -> None:
    with pytest.raises(InvalidTableError, match="only primitive types"):
        DeltaTable.create(str(tmp_path), SCHEMA, partition_by=["many"])
    assert not (tmp_path / "_delta_log").exists()


REMAINS = [
    "00000000000000000010.crc",
    "00000000000000000010.checkpoint.0000000001.0000000002.parquet",
    "00000000000000000003.00000000000000000005.compacted.json",
    "_last_checkpoint",
]


@pytest.mark.parametrize("name", REMAINS)
def test_the_log_of_a_former_table_does_not_become_a_new_ones(tmp_path: Path, name: str) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / name).write_text('{"version":10,"size":1}')
    with pytest.raises(InvalidTableError, match=rf"_delta_log/{name}.*delete") as caught:
        DeltaTable.create(str(tmp_path), SCHEMA)
    assert caught.value.path == f"_delta_log/{name}"
    with pytest.raises(InvalidTableError, match=name):
        OptimisticTransaction(DeltaTable(str(tmp_path)).storage, None, "WRITE")
    (log / name).unlink()
    assert DeltaTable.create(str(tmp_path), SCHEMA).latest_version() == 0


def test_other_files_in_the_log_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "_delta_log" / "_sidecars").mkdir(parents=True)
    (tmp_path / "_delta_log" / ".tmp").write_text("")
    (tmp_path / "_delta_log" / "notes.txt").write_text("")
    assert DeltaTable.create(str(tmp_path), SCHEMA).latest_version() == 0


def test_a_table_that_lacks_its_first_commits_is_a_table(tmp_path: Path) -> None:
    table = DeltaTable(str(write_table(tmp_path, [add("a")], [add("b")])))
    table.checkpoint()
    for version in (0, 1):
        commit_path(tmp_path, version).unlink()
    with pytest.raises(TableAlreadyExistsError, match="already"):
        DeltaTable.create(str(tmp_path), SCHEMA)


def test_a_table_that_another_writer_creates_meanwhile_exists(tmp_path: Path) -> None:
    made = DeltaTable.create(str(tmp_path / "other"), SCHEMA).snapshot()
    transaction = OptimisticTransaction(DeltaTable(str(tmp_path / "t")).storage, None, "WRITE")
    transaction.set_protocol(made.protocol)
    transaction.set_metadata(made.metadata)
    theirs = DeltaTable.create(str(tmp_path / "t"), SCHEMA)
    with pytest.raises(TableAlreadyExistsError, match="another writer"):
        transaction.commit()
    assert theirs.latest_version() == 0
