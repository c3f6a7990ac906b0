"""Scans of random tables, against rows known as Python values, and against filters of whole tables."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import (
    LONG,
    STRING,
    AddFile,
    ArrayType,
    DeltaTable,
    StructField,
    StructType,
)
from airflow_delta.engine.data_files import page_pruning, scanned_file
from airflow_delta.engine.data_files.data_file import DataFile
from airflow_delta.engine.errors import (
    CorruptLogError,
    InvalidArgumentError,
    InvalidTableError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.model.schema import DataType
from tests.deep import deep_but_for
from tests.house.test_layers import loaded_after
from tests.log_builder import add, write_table
from tests.row_tables import RowTable, bag, random_table

LAYOUTS: dict[str, dict[str, Any]] = {
    "none": {},
    "name": {"mode": "name", "partition_by": ("p",), "tracked": True},
    "id": {"mode": "id", "partition_by": ("q", "p"), "tracked": True},
    "none, partitioned": {"partition_by": ("q",)},
    "id, tracked": {"mode": "id", "tracked": True},
}
SEEDS = range(6)


def made(path: Path, layout: str, seed: int) -> RowTable:
    return random_table(path / "t", seed, **LAYOUTS[layout])


@pytest.mark.parametrize("layout", deep_but_for(LAYOUTS, "none", "name", "id, tracked"))
@pytest.mark.parametrize("seed", deep_but_for(SEEDS, 0))
def test_all_rows_are_read(tmp_path: Path, layout: str, seed: int) -> None:
    table = made(tmp_path, layout, seed)
    tracked = LAYOUTS[layout].get("tracked", False)
    scan = table.table.snapshot().scan(with_row_tracking=tracked, batch_size=7)
    whole = scan.to_table()
    whole.validate(full=True)
    assert bag(whole.to_pylist()) == bag(table.rows)
    streamed = pa.table(scan)
    assert streamed.schema == scan.schema
    assert bag(streamed.to_pylist()) == bag(table.rows)


TEXTS = [str(number % 8) * (1000 + number) for number in range(8)]
MANY_TEXTS = [f"{number}" * 100 for number in range(10_000, 14_000)]
REPEATED: dict[str, tuple[DataType, list[Any]]] = {
    "texts": (STRING, [TEXTS[number % 8] for number in range(20_000)]),
    "lists": (ArrayType(STRING), [["t" * 100] * 100 for _ in range(400)]),
    "numbers": (ArrayType(LONG), [[7] * 1000 for _ in range(2000)]),
    "large_dictionary": (STRING, [MANY_TEXTS[number % 4000] for number in range(8000)]),
}
ARROW_TYPES = {"large_dictionary": pa.dictionary(pa.int32(), pa.string())}


def table_of_one_file(root: Path, rows: dict[str, Any], **options: Any) -> DeltaTable:
    """A table of one file with row groups of 8000 rows."""
    written = pa.table(rows)
    types = {pa.int64(): LONG, pa.string(): STRING}
    fields = [StructField(f.name, types.get(f.type) or REPEATED[f.name][0]) for f in written.schema]
    table = DeltaTable.create(root, StructType(tuple(fields)))
    path = root / "0.parquet"
    pq.write_table(written, path, row_group_size=8000, **options)
    transaction = table.transaction("WRITE")
    transaction.add_file(AddFile(path.name, {}, path.stat().st_size, 1, data_change=True))
    transaction.commit()
    return table


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> int:
    """The size of batches, in bytes."""
    monkeypatch.setattr(scanned_file, "_BATCH_BYTES", 1 << 20)
    return 1 << 20


@pytest.mark.parametrize("predicate", [None, "n >= 0"])
@pytest.mark.parametrize("name", REPEATED)
def test_batches_are_bounded_also_if_few_values_repeat(
    tmp_path: Path, small_batches: int, name: str, predicate: str | None
) -> None:
    """The file has each value once, so neither its size nor its footer shows the memory of the rows."""
    _, values = REPEATED[name]
    rows = {"n": [*range(len(values))], name: pa.array(values, ARROW_TYPES.get(name))}
    table = table_of_one_file(tmp_path, rows)
    batches = [*table.snapshot().scan(predicate=predicate)]
    whole = sum(batch.nbytes for batch in batches)
    # The first batch has too many lists, because only it shows how long they are.
    assert max(batch.nbytes for batch in batches[1:]) < 1.2 * small_batches
    assert len(batches) < 6 + 1.5 * whole / small_batches
    read = pa.Table.from_batches(batches).sort_by("n")
    assert read[name].to_pylist() == values
    assert batches[0].num_rows <= 256


def test_many_columns_with_short_texts_share_the_size_of_a_batch(
    tmp_path: Path, small_batches: int
) -> None:
    names = [f"v{number}" for number in range(20)]
    rows = {"n": range(8000)} | {name: ["t" * 10] * 8000 for name in names}
    table = table_of_one_file(tmp_path, rows)
    batches = [*table.snapshot().scan()]
    assert max(batch.nbytes for batch in batches) < 1.2 * small_batches
    assert pa.Table.from_batches(batches).num_rows == 8000


def test_batches_of_pages_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_batches: int
) -> None:
    monkeypatch.setattr(page_pruning, "_FEWEST_BYTES", 0)
    rows = {"n": range(8000), "v": [TEXTS[number % 8] for number in range(8000)]}
    table = table_of_one_file(
        tmp_path,
        rows,
        write_page_index=True,
        data_page_size=500,
        write_batch_size=100,
        # Only the texts: their dictionary is small, and the numbers don't repeat.
        use_dictionary=["v"],
    )
    monkeypatch.setattr(DataFile, "batches", None)  # Only pages are read.
    batches = [*table.snapshot().scan(predicate="n >= 150 AND n < 3500")]
    assert max(batch.nbytes for batch in batches) < 1.2 * small_batches
    assert len(batches) < 12
    read = pa.Table.from_batches(batches)
    assert read["n"].to_pylist() == [*range(150, 3500)]
    assert read["v"].to_pylist() == rows["v"][150:3500]


@pytest.mark.parametrize("layout", deep_but_for(LAYOUTS, "name", "none, partitioned"))
@pytest.mark.parametrize("seed", deep_but_for(SEEDS, 1))
def test_a_predicate_selects_the_rows_that_it_selects_in_memory(
    tmp_path: Path, layout: str, seed: int
) -> None:
    snapshot = made(tmp_path, layout, seed).table.snapshot()
    whole, chosen = snapshot.to_arrow(), random.Random(seed)
    for _ in range(6):
        predicate = condition(chosen)
        columns = chosen.choice([None, ["id"], ["text", "s"], ["p"], ["q", "list"]])
        expected = whole.filter(predicate).select(columns or whole.column_names)
        scan = snapshot.scan(columns, predicate, batch_size=chosen.choice([5, 65_536]))
        assert bag(scan.to_table().to_pylist()) == bag(expected.to_pylist()), str(predicate)


def condition(chosen: random.Random, depth: int = 0) -> pc.Expression:
    kind = chosen.random()
    if depth < 3 and kind < 0.5:
        left, right = condition(chosen, depth + 1), condition(chosen, depth + 1)
        return left & right if kind < 0.2 else left | right if kind < 0.4 else ~left
    number = chosen.randint(-1000, 1000)
    micros = pa.scalar(946_684_800_000_000 + number * 10**12)
    price = pa.scalar(Decimal(number), pa.decimal128(12, 3))
    return chosen.choice(
        [
            pc.field("id") == chosen.randint(0, 10**6),
            pc.field("id") > chosen.randint(0, 10**6),
            pc.field("n") <= number * 10 ** chosen.choice([0, 10]),
            pc.field("text") == "a",
            pc.field("d") > number / 8,
            pc.is_nan(pc.field("d")),
            pc.field("day") >= pa.scalar(18262 + number, pa.int32()).cast(pa.date32()),
            pc.field("p") == "a",
            pc.field("q").isin([1, 2]),
            pc.field("added").is_null(),
            pc.field("s", "x") > number,
            pc.field("s.x") == f"dot {number}",
            pc.field("ok"),
            pc.field("price") < price,
            pc.field("at") > micros.cast(pa.timestamp("us", "UTC")),
        ]
    )


def test_a_large_table_is_read_in_threads(tmp_path: Path) -> None:
    table = random_table(tmp_path / "t", 3, tracked=True, num_files=9)
    snapshot = table.table.snapshot()
    request = snapshot.scan(with_row_tracking=True)
    request._threads = 3  # What its size would give it.
    assert bag(request.to_table().to_pylist()) == bag(table.rows)
    assert bag(pa.table(request).to_pylist()) == bag(table.rows)
    stopped = iter(request)
    next(stopped)
    stopped.close()  # type: ignore[attr-defined]


def test_files_that_statistics_exclude_are_not_read(tmp_path: Path) -> None:
    table = random_table(tmp_path / "t", 4, num_files=8)
    least = min(table.rows, key=lambda row: row["id"])
    snapshot = table.table.snapshot()
    assert snapshot.scan().num_files == 8
    scan = snapshot.scan(["id"], f"id <= {least['id']}")
    assert scan.num_files < 8
    assert scan.to_table().to_pylist() == [{"id": least["id"]}]


def test_columns_come_in_the_order_in_which_they_are_named(tmp_path: Path) -> None:
    snapshot = random_table(tmp_path / "t", 5, partition_by=("p",)).table.snapshot()
    assert snapshot.to_arrow(["p", "text", "id"]).column_names == ["p", "text", "id"]


def test_a_table_without_files_has_no_rows(tmp_path: Path) -> None:
    table = DeltaTable.create(str(tmp_path), StructType((StructField("id", LONG),)))
    scan = table.snapshot().scan(predicate="id = 1")
    assert list(scan) == []
    assert scan.to_table().schema == pa.schema([("id", pa.int64())])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"columns": ["no"]}, r"unknown columns \['no'\]: the table has id"),
        ({"columns": []}, "expected a list of at least one name"),
        ({"columns": "id"}, "expected a list of at least one name"),
        ({"columns": ["id", "id"]}, "a column is named twice"),
        ({"predicate": pc.field("id") == "x"}, "can't be evaluated on the columns of the table"),
        ({"predicate": pc.field("id") + 1}, "is of the type int64: expected a condition"),
        ({"predicate": "no = 1"}, "names the column 'no', which the table doesn't have"),
        ({"batch_size": 0}, "batch_size=0: expected a number of rows"),
        ({"with_row_tracking": True}, "the table has no row ids to rely on at version 0"),
    ],
)
def test_wrong_arguments_are_refused(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    snapshot = DeltaTable.create(str(tmp_path), StructType((StructField("id", LONG),))).snapshot()
    with pytest.raises(InvalidArgumentError, match=message):
        snapshot.scan(**arguments)


def test_a_column_of_the_table_hides_no_row_id(tmp_path: Path) -> None:
    schema = StructType((StructField("_row_id", LONG), StructField("id", LONG)))
    told = {"delta.enableRowTracking": "true"}
    snapshot = DeltaTable.create(str(tmp_path), schema, properties=told).snapshot()
    with pytest.raises(InvalidArgumentError, match=r"has the columns \['_row_id'\] of its own"):
        snapshot.scan(with_row_tracking=True)
    names = snapshot.scan(["id"], with_row_tracking=True).schema.names
    assert names == ["id", "_row_id", "_row_commit_version"]


def test_other_formats_than_parquet_are_refused(sales_copy: Path) -> None:
    commit = sales_copy / "_delta_log" / f"{0:020}.json"
    text = commit.read_text(encoding="utf-8")
    commit.write_text(text.replace('"provider":"parquet"', '"provider":"orc"'), encoding="utf-8")
    with pytest.raises(UnsupportedFeatureError, match="the data files are in the format 'orc'"):
        DeltaTable(str(sales_copy)).snapshot().scan()


def test_a_predicate_that_fails_on_a_row_names_the_file(tmp_path: Path) -> None:
    snapshot = random_table(tmp_path / "t", 6).table.snapshot()
    predicate = pc.field("text").cast(pa.int64()) == 1
    with pytest.raises(InvalidArgumentError, match="can't be evaluated on a row of the data file"):
        snapshot.to_arrow(predicate=predicate)


def logged_file(root: Path, *, part: str = "string", **fields: Any) -> DeltaTable:
    """A table partitioned by ``part``; its only file has the ids 1 and 2, and those fields in the log."""
    root.mkdir(exist_ok=True)
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int64())}), root / "f.parquet")
    size = (root / "f.parquet").stat().st_size
    schema = {
        "type": "struct",
        "fields": [
            {"name": name, "type": type_, "nullable": True, "metadata": {}}
            for name, type_ in (("id", "long"), ("part", part))
        ],
    }
    actions = [add("f.parquet", **{"size": size, **fields})]
    return DeltaTable(str(write_table(root, actions, schema=schema, partition_columns=["part"])))


def test_partition_values_that_the_log_lacks_are_null(tmp_path: Path) -> None:
    table = logged_file(tmp_path / "t", partitionValues=None)
    assert table.snapshot().to_arrow().to_pylist() == [
        {"id": 1, "part": None},
        {"id": 2, "part": None},
    ]
    assert table.snapshot().scan(predicate="part = 'x'").to_table().num_rows == 0


def test_a_partition_value_of_another_type_names_file_and_column(tmp_path: Path) -> None:
    table = logged_file(tmp_path / "t", part="integer", partitionValues={"part": "x"})
    with pytest.raises(
        InvalidTableError,
        match=r"'f\.parquet' of version 0, partition column 'part': .*'x' is no integer.*restore",
    ) as caught:
        table.snapshot().to_arrow()
    assert (caught.value.table, caught.value.path) == (str(tmp_path / "t"), "f.parquet")
    assert table.snapshot().to_arrow(["id"]).num_rows == 2


def test_a_file_without_a_size_is_the_fault_of_the_log(tmp_path: Path) -> None:
    table = logged_file(tmp_path / "t", size=None, partitionValues={"part": "x"})
    with pytest.raises(CorruptLogError, match=r"'f\.parquet' in version 0 has no size"):
        table.snapshot().to_arrow()


def test_a_path_that_is_no_uri_names_the_table(tmp_path: Path) -> None:
    table = DeltaTable(str(write_table(tmp_path, [add("a%b.parquet")])))
    for use in (table.snapshot().to_arrow, table.snapshot().file_uris, table.vacuum):
        with pytest.raises(CorruptLogError, match="the writer of this one is at fault") as caught:
            use()
        assert (caught.value.table, caught.value.path) == (str(tmp_path), "a%b.parquet")


PREDICATES = [
    "id >= 0 AND text >= '' AND d < 1e9 AND q IN (1, 2) AND n IS NOT NULL",
    "day > '1990-01-01' OR at < '2026-01-31T12:00:00Z' OR NOT (ok AND text LIKE 'a%')",
    [("q", "in", [1, 2]), ("text", "!=", "a")],
]


def test_predicates_do_not_load_pandas(tmp_path: Path) -> None:
    table = made(tmp_path, "none, partitioned", 0).table
    assert "pandas" not in loaded_after(
        f"""
from airflow_delta.engine import DeltaTable
for predicate in {PREDICATES!r}:
    DeltaTable({table.uri!r}).snapshot().to_arrow(predicate=predicate)
"""
    )


def test_dictionaries_inside_lists_are_read_as_texts(tmp_path: Path) -> None:
    schema = StructType((StructField("l", ArrayType(STRING)), StructField("d", STRING)))
    table = DeltaTable.create(str(tmp_path), schema)
    texts = pa.dictionary(pa.int32(), pa.string())
    rows = pa.table(
        {
            "l": pa.array([["a", "b"], ["c"], ["a"]], pa.list_(texts)),
            "d": pa.array(["x", None, "y"], texts),
        }
    )
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=1)
    transaction = table.transaction("WRITE")
    size = (tmp_path / "a.parquet").stat().st_size
    transaction.add_file(AddFile("a.parquet", {}, size, 1, data_change=True))
    transaction.commit()
    found = table.snapshot().to_arrow()
    assert found.to_pylist() == rows.to_pylist()
    assert found.schema.field("d").type == pa.string()
