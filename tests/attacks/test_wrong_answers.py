"""Answers that were wrong without anybody noticing: each of them once, from the outside."""

from __future__ import annotations

from decimal import Decimal, localcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as Peer

from airflow_delta.engine import AddFile, DeltaTable, RemoveFile, StructField, StructType
from airflow_delta.engine.errors import ConstraintViolationError, InvalidArgumentError
from airflow_delta.engine.model.partition_values import serialize_partition_value
from airflow_delta.engine.model.schema import BINARY, LONG, DecimalType

SCHEMA = StructType((StructField("id", LONG), StructField("p", BINARY)))
FEED = {"delta.enableChangeDataFeed": "true"}
TEXT = "Österreich 😀"


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    """A partitioned table that keeps a feed of its changes, with one file."""
    made = DeltaTable.create(str(tmp_path), SCHEMA, partition_by=["p"], properties=FEED)
    data = tmp_path / "f.parquet"
    pq.write_table(pa.table({"id": [1]}), data)
    add = AddFile(data.name, {"p": TEXT}, data.stat().st_size, 0, data_change=True)
    transaction = made.transaction("WRITE")
    transaction.add_file(add)
    transaction.commit()
    return made


def test_a_remove_by_its_path_leaves_the_change_feed_readable(table: DeltaTable) -> None:
    transaction = table.transaction("DELETE")
    transaction.remove_file(RemoveFile("f.parquet", data_change=True))
    version = transaction.commit().version
    (change,) = table.changes(version).files.to_pylist()
    assert (change["_change_type"], dict(change["partitionValues"])) == ("delete", {"p": TEXT})


def test_a_remove_that_lies_about_the_partition_is_refused(table: DeltaTable) -> None:
    transaction = table.transaction("DELETE")
    lie = RemoveFile("f.parquet", data_change=True, partition_values={"p": "elsewhere"})
    transaction.remove_file(lie)
    with pytest.raises(ConstraintViolationError, match="partitionValues"):
        transaction.commit()


def test_binary_partition_values_are_what_others_take_them_for(table: DeltaTable) -> None:
    (row,) = Peer(table.uri).to_pyarrow_table().to_pylist()
    assert row["p"] == TEXT.encode()
    for value, found in ((row["p"], 1), (TEXT.encode("utf-16"), 0)):
        assert table.snapshot().files(predicate=pc.field("p") == value).num_rows == found
    with pytest.raises(InvalidArgumentError, match="expected bytes in UTF-8"):
        serialize_partition_value(b"\xff", BINARY)


@pytest.mark.parametrize("precision", [3, 28, 60])
def test_no_file_is_left_out_because_a_decimal_was_rounded(tmp_path: Path, precision: int) -> None:
    """Whatever the thread that asks has set its decimals to."""
    values = [Decimal(f"{n}e-10") for n in (10**38 - 1, 10**38 // 81, 1 - 10**38)]
    type_ = pa.decimal128(38, 10)
    kinds = StructType((StructField("id", LONG), StructField("d", DecimalType(38, 10))))
    made = DeltaTable.create(str(tmp_path), kinds)
    transaction = made.transaction("WRITE")
    for number, value in enumerate(values):
        stats = f'{{"numRecords":1,"minValues":{{"d":{value:f}}},"maxValues":{{"d":{value:f}}}}}'
        transaction.add_file(AddFile(f"{number}", {}, 1, 0, data_change=True, stats=stats))
    transaction.commit()
    with localcontext() as context:
        context.prec = precision
        for number, value in enumerate(values):
            for constant in (pa.scalar(value, type_), pa.scalar(float(value))):
                found = made.snapshot().files(["path"], pc.field("d") == constant)
                assert f"{number}" in found["path"].to_pylist()
