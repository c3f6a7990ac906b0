from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine import AddFile, DeltaTable
from airflow_delta.engine.deletion_vectors import roaring, z85
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.model.schema import LONG, StructField, StructType
from airflow_delta.spark import read_snapshot
from airflow_delta.spark.row_vectors import VECTOR_TYPE, RowVectors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EDGES = [0, 63, 64, 4095, 4096, 65_535, 65_536, 131_071, 199_999]
# The ends of words, of blocks, of what int32 holds, and more rows than a file has in practice.
FAR = [0, 1, 62, 63, 64, 65, 4095, 4096, 8191, 2**31 - 1, 2**31, 2**32, 2**34, 2**40 + 63]


def _named(spark: SparkSession, vectors: dict[int, BitMap64], rows: DataFrame) -> pa.Table:
    """The rows, each with an ``entry`` and a ``place``, that their entry's vector names."""
    found, count = RowVectors(vectors), max(vectors) + 2
    column = found.column(count)
    column.validate(full=True)
    entries = spark.createDataFrame(
        pa.table({"number": range(count), "vector": column}),
        f"number long, vector {VECTOR_TYPE.simpleString()}",
    )
    joined = rows.join(F.broadcast(entries), F.col("entry") == F.col("number"))
    named = joined.where(found.names(F.col("vector"), F.col("place")))
    return named.select("entry", "place").toArrow()


def test_rows_are_named_by_entry_and_place(spark: SparkSession) -> None:
    chance, rows_each = random.Random(1), 140_000
    vectors = {
        0: BitMap64([p for p in EDGES if p < rows_each]),
        2: BitMap64(chance.sample(range(rows_each), 30_000)),
        3: BitMap64(),
        4: BitMap64(range(70_000, 70_100)),
    }
    place = F.col("id") % rows_each
    rows = spark.range(6 * rows_each).select(
        ((F.col("id") - place) / rows_each).cast("long").alias("entry"), place.alias("place")
    )
    found = _named(spark, vectors, rows)
    for entry in range(6):
        places = found.filter(pc.equal(found["entry"], entry))["place"].to_pylist()
        assert sorted(places) == list(vectors.get(entry, BitMap64()))


def test_places_far_behind(spark: SparkSession) -> None:
    chance = random.Random(8)
    vectors = {entry: BitMap64(chance.sample(FAR, entry)) for entry in range(len(FAR))}
    pairs = [(entry, place) for entry in range(len(FAR) + 1) for place in FAR]
    rows = spark.createDataFrame(pairs, "entry long, place long")
    found = _named(spark, vectors, rows).to_pylist()
    wanted = [(e, p) for e, p in pairs if p in vectors.get(e, BitMap64())]
    assert sorted((row["entry"], row["place"]) for row in found) == wanted


@given(
    st.dictionaries(
        st.integers(0, 9), st.sets(st.sampled_from(EDGES) | st.integers(0, 300_000)), min_size=1
    ),
    st.integers(1, 12),
)
def test_the_column_holds_the_rows_of_each_vector(
    rows: dict[int, set[int]], at_a_time: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("airflow_delta.spark.row_vectors._ROWS_AT_A_TIME", at_a_time)
        column = RowVectors({n: BitMap64(some) for n, some in rows.items()}).column(11)
    column.validate(full=True)
    for number, blocks in enumerate(column.to_pylist()):
        assert (blocks is None) == (number not in rows)
        found = {
            block * 4096 + word * 64 + bit
            for block, words in enumerate(blocks or ())
            for word, bits in enumerate(words or ())
            for bit in range(64)
            if bits >> bit & 1
        }
        assert found == rows.get(number, set())


def test_a_place_that_no_file_has_costs_nothing(spark: SparkSession) -> None:
    vectors = {0: BitMap64([5, 2**62])}
    assert RowVectors(vectors).column(1).nbytes < 50_000_000
    rows = spark.createDataFrame([(0, 5), (0, 6)], "entry long, place long")
    assert _named(spark, vectors, rows)["place"].to_pylist() == [5]


@pytest.mark.parametrize("predicate", [None, "n >= 150000", "n = 65536"])
def test_positions_hold_whatever_row_groups_are_skipped(
    spark: SparkSession, tmp_path: Path, predicate: str | None
) -> None:
    table = str(tmp_path)
    DeltaTable.create(
        table,
        StructType((StructField("n", LONG),)),
        properties={"delta.enableDeletionVectors": "true"},
    )
    numbers = pa.table({"n": range(200_000)})
    for name in ("masked.parquet", "plain.parquet"):
        pq.write_table(numbers, tmp_path / name, row_group_size=10_000)
    size = (tmp_path / "plain.parquet").stat().st_size
    data = roaring.serialize(BitMap64(EDGES))
    inline = z85.encode(data + bytes(-len(data) % 4))
    vector = DeletionVectorDescriptor("i", inline, None, len(data), len(EDGES))
    transaction = DeltaTable(table).transaction("WRITE")
    for name, deletion_vector in (("masked.parquet", vector), ("plain.parquet", None)):
        transaction.add_file(
            AddFile(
                name,
                {},
                size,
                0,
                data_change=True,
                stats='{"numRecords":200000}',
                deletion_vector=deletion_vector,
            )
        )
    transaction.commit()
    rows = [
        n for n in range(200_000) if predicate is None or eval(predicate.replace(" = ", " == "))
    ]
    want = sorted(rows + [n for n in rows if n not in EDGES])
    found = read_snapshot(spark, table, predicate=predicate).toArrow()["n"].to_pylist()
    assert sorted(found) == want
