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
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.engine import AddFile, DeltaTable
from airflow_delta.engine.deletion_vectors import roaring, z85
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.model.schema import LONG, StructField, StructType
from airflow_delta.spark import read_snapshot
from airflow_delta.spark.reader.row_vectors import RowVectors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("compiled")

EDGES = [0, 63, 64, 4095, 4096, 65_535, 65_536, 131_071, 199_999]
# The ends of words, of blocks, of what int32 holds, and more rows than a file has in practice.
FAR = [0, 1, 62, 63, 64, 65, 4095, 4096, 8191, 2**31 - 1, 2**31, 2**32, 2**34, 2**40 + 63]


def _named(spark: SparkSession, vectors: dict[int, BitMap64], rows: DataFrame) -> pa.Table:
    """The rows, each with an ``entry`` and a ``place``, that their entry's vector names."""
    count = max(vectors) + 2
    found = RowVectors(vectors, count)
    columns = {name: values for name, (_, values) in found.facts.items()}
    for column in columns.values():
        column.validate(full=True)
    types = [T.StructField(name, type_) for name, (type_, _) in found.facts.items()]
    entries = spark.createDataFrame(
        pa.table({"number": range(count), **columns}),
        T.StructType([T.StructField("number", T.LongType()), *types]),
    )
    joined = rows.join(F.broadcast(entries), F.col("entry") == F.col("number"))
    return joined.where(found.is_named(F.col("place"))).select("entry", "place").toArrow()


def _rows_of(found: RowVectors, entry: int) -> set[int]:
    """The rows that the columns have for an entry, by the forms that the module tells of."""
    facts = {name: values[entry].as_py() for name, (_, values) in found.facts.items()}
    rows = {
        block * 4096 + word * 64 + bit
        for block, words in enumerate(facts.get("entry_bits") or ())
        # A block without words has all of its rows.
        for word, bits in enumerate([-1] * 64 if words == [] else words or ())
        for bit in range(64)
        if bits >> bit & 1
    }
    for group, places in enumerate(facts.get("entry_indexes") or ()):
        assert places is None or {place >> facts["entry_shift"] for place in places} == {group}
        rows |= set(places or ())
    return rows


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
        patch.setattr("airflow_delta.spark.reader.row_vectors._ROWS_AT_A_TIME", at_a_time)
        found = RowVectors({n: BitMap64(some) for n, some in rows.items()}, 11)
    for _, column in found.facts.values():
        column.validate(full=True)
    assert {entry: _rows_of(found, entry) for entry in range(11)} == {
        entry: rows.get(entry, set()) for entry in range(11)
    }


def _nbytes(found: RowVectors) -> int:
    return sum(column.nbytes for _, column in found.facts.values())


@pytest.mark.parametrize(
    ("step", "form", "most_bytes"),
    [
        (10, "entry_bits", 140_000),
        (1_000, "entry_indexes", 40_000),
        (10_000, "entry_indexes", 4_000),
        (400_000, "entry_indexes", 200),
    ],
)
def test_a_sparse_vector_takes_little(step: int, form: str, most_bytes: int) -> None:
    found = RowVectors({0: BitMap64(range(5, 1_000_000, step))}, 1)
    assert form in found.facts
    assert len(found.facts) == (1 if form == "entry_bits" else 2)
    assert _nbytes(found) < most_bytes


def test_the_last_place_there_can_be() -> None:
    found = RowVectors({0: BitMap64([3, 2**44 - 1, 2**44])}, 1)
    assert _rows_of(found, 0) == {3, 2**44 - 1}


def test_neighbours_among_few_are_told_by_bits() -> None:
    rows = {3, *range(500_000, 500_100), 999_999}
    found = RowVectors({0: BitMap64(rows)}, 1)
    assert list(found.facts) == ["entry_bits"]
    assert _rows_of(found, 0) == rows


def test_vectors_of_both_forms_stand_side_by_side(spark: SparkSession) -> None:
    chance = random.Random(5)
    kinds = [range(0, 200_000, 3), range(7, 200_000, 50_000), (), range(9_000, 9_900)]
    vectors = {
        entry: BitMap64([p for p in kinds[entry % 4] if chance.random() < 0.9])
        for entry in range(16)
    }
    assert len(RowVectors(vectors, 16).facts) == 3
    rows = spark.range(17 * 200_000).select(
        (F.col("id") / 200_000).cast("long").alias("entry"),
        (F.col("id") % 200_000).alias("place"),
    )
    found = _named(spark, vectors, rows).to_pylist()
    wanted = [(entry, place) for entry, bitmap in vectors.items() for place in bitmap]
    assert sorted((row["entry"], row["place"]) for row in found) == wanted


def test_a_cluster_among_few_rows_costs_what_it_takes() -> None:
    spread = [*range(0, 50_000_000, 5_000)]
    alone, with_cluster = (
        RowVectors({0: BitMap64([*spread, *more])}, 1) for more in ((), range(9, 40))
    )
    assert _nbytes(with_cluster) - _nbytes(alone) < 1_000


def test_dense_rows_far_behind_are_told_by_bits(spark: SparkSession) -> None:
    vectors = {0: BitMap64(range(2**40, 2**40 + 100_000, 2)), 1: BitMap64([7])}
    assert "entry_bits" in RowVectors(vectors, 2).facts
    rows = spark.range(2**40 - 10, 2**40 + 100_010).select(
        F.lit(0).cast("long").alias("entry"), F.col("id").alias("place")
    )
    found = _named(spark, vectors, rows)["place"].to_pylist()
    assert sorted(found) == list(vectors[0])


def test_a_place_that_no_file_has_costs_nothing(spark: SparkSession) -> None:
    vectors = {0: BitMap64([5, 2**62])}
    assert _nbytes(RowVectors(vectors, 1)) < 1_000
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


def _runs(*ranges: range) -> BitMap64:
    found = BitMap64()
    for each in ranges:
        found.add_range(each.start, each.stop)
    return found


WIDE = {
    # Whole windows, whole blocks in a window, words in a block, and a single row.
    0: _runs(range(10), range(65_536, 262_144), range(300_000, 400_000), range(500_001, 500_002)),
    1: BitMap64([3, 4096]),
    2: _runs(range(4096, 8192)),
    3: _runs(range(70_000, 200_000), range(2**35, 2**35 + 200_000)),
}


def test_rows_in_runs_are_named_block_by_block(spark: SparkSession) -> None:
    near = {entry: _runs(range(600_000)) & vector for entry, vector in WIDE.items()}
    rows = spark.range(5 * 600_000).select(
        (F.col("id") / 600_000).cast("long").alias("entry"),
        (F.col("id") % 600_000).alias("place"),
    )
    found = _named(spark, near, rows).to_pylist()
    wanted = [(entry, place) for entry, bitmap in near.items() for place in bitmap]
    assert sorted((row["entry"], row["place"]) for row in found) == wanted


@pytest.mark.parametrize("at_a_time", [1, 1 << 22])
def test_windows_hold_the_rows_of_each_vector(
    at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_delta.spark.reader.row_vectors._ROWS_AT_A_TIME", at_a_time)
    near = {entry: vector for entry, vector in WIDE.items() if entry != 3}
    found = RowVectors(near, 4)
    assert {entry: _rows_of(found, entry) for entry in near} == {
        entry: set(vector) for entry, vector in near.items()
    }


def test_a_vector_of_many_rows_in_runs_takes_what_its_bytes_say() -> None:
    # 2 ** 33 rows in 1.8 MB: as bits they would take a gigabyte, as positions 64.
    found = RowVectors({0: _runs(range(1, 2**33))}, 1)
    assert _nbytes(found) < 60_000_000
    assert list(found.facts) == ["entry_bits"]
    lists = found.facts["entry_bits"][1][0].values
    assert (len(lists), len(lists.values)) == (2**21, 64)


def test_neighbours_and_one_that_is_far_away_take_little() -> None:
    rows = [*range(200), 2**34 - 1]
    found = RowVectors({0: BitMap64(rows)}, 1)
    assert _nbytes(found) < 10_000
    assert _rows_of(found, 0) == {*rows}
