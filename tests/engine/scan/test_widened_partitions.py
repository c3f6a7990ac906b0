"""Partition columns whose types were widened: old files have the texts of the narrower types."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from airflow_delta.engine import AddFile, DeltaTable
from airflow_delta.engine.errors import CommitConflictError
from airflow_delta.engine.features.type_widening import can_widen
from airflow_delta.engine.model.schema import PRIMITIVE_TYPES, DataType, DecimalType
from airflow_delta.engine.transaction.transaction import OptimisticTransaction
from tests.widened_partitions import CHANGES, FIRST, SECOND, make_table, row, texts


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    return make_table(tmp_path_factory.mktemp("widened") / "t")


def rows(table: DeltaTable) -> dict[int, str]:
    found = table.snapshot().to_arrow().to_pylist()
    return {each.pop("id"): str(each) for each in found}


EXPECTED = {
    0: str(row(FIRST)),
    1: str(row(FIRST)),
    2: str(row(SECOND)),
    3: str(row(SECOND)),
}


def test_each_change_of_types_has_a_column() -> None:
    """Those of decimals are told apart by what becomes a decimal only."""
    types: list[DataType] = [*PRIMITIVE_TYPES.values(), DecimalType(38, 4)]
    allowed = {
        (str(old), str(new).split("(")[0])
        for old in types
        for new in types
        if old != new and can_widen(old, new)
    }
    assert allowed <= {(str(old), str(new).split("(")[0]) for old, new, _ in CHANGES.values()}


def test_rows_have_the_values_of_the_wider_types(table: DeltaTable) -> None:
    assert rows(table) == EXPECTED
    assert not [f for f in table.check(depth="files").findings if f.severity == "error"]


@pytest.mark.parametrize("name", CHANGES)
def test_filters_select_files_of_before_and_after(table: DeltaTable, name: str) -> None:
    value = row(FIRST)[name]
    literal = value.isoformat(sep=" ") if isinstance(value, datetime) else value
    told = f"'{literal}'" if isinstance(value, datetime) else literal
    predicates: list[Any] = [
        [(name, "=", value)],
        pc.field(name) == value,
        pc.field(name).isin([value]),
        f"{name} = {told}",
    ]
    snapshot = table.snapshot()
    for predicate in predicates:
        assert set(snapshot.files(predicate=predicate)["path"].to_pylist()) == {
            "0.parquet",
            "1.parquet",
        }
        assert sorted(snapshot.to_arrow(["id"], predicate)["id"].to_pylist()) == [0, 1]


def test_files_of_before_and_after_are_one_partition(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    widened = table.latest_version()
    done = table.optimize()
    assert (done.num_removed, done.num_added) == (4, 2)
    assert rows(table) == EXPECTED
    table.checkpoint()
    assert rows(DeltaTable(str(tmp_path))) == EXPECTED
    table.restore(widened)
    assert rows(table) == EXPECTED


def test_a_reader_of_a_partition_meets_a_file_of_before(tmp_path: Path) -> None:
    """A concurrent writer, such as an optimize, may copy the text of an older file."""
    table = make_table(tmp_path)

    def reading(name: str, value: Any) -> OptimisticTransaction:
        transaction = table.transaction("DELETE")
        transaction.remove_files(transaction.read_files([(name, "=", value)]))
        return transaction

    name = "date_timestamp_ntz"
    first, second = (reading(name, row(partition)[name]) for partition in (FIRST, SECOND))
    appending = table.transaction("WRITE")
    add = next(a for a in table.snapshot().files().to_pylist() if a["path"] == "0.parquet")
    assert dict(add["partitionValues"]) == texts(FIRST, wide=False)
    (tmp_path / "new.parquet").write_bytes((tmp_path / "0.parquet").read_bytes())
    appending.add_file(
        AddFile("new.parquet", texts(FIRST, wide=False), add["size"], 1, data_change=True)
    )
    appending.commit()
    second.commit()
    with pytest.raises(CommitConflictError):
        first.commit()
