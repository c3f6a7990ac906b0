"""Scans that skip pages, against scans that don't and against filters of whole tables."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from airflow_delta.engine import (
    BOOLEAN,
    DATE,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    AddFile,
    DecimalType,
    DeltaTable,
    StructField,
    StructType,
)
from airflow_delta.engine.data_files import page_pruning
from airflow_delta.engine.data_files.data_file import DataFile
from airflow_delta.engine.data_files.scanned_file import FilePart
from airflow_delta.engine.deletion_vectors.write import write_deletion_vectors
from airflow_delta.engine.errors import DataFileError, DeltaError
from airflow_delta.engine.features.column_mapping import field_id, physical_name
from tests.conftest import golden_manifest
from tests.deep import deep_but_for
from tests.row_tables import bag

SCHEMA = StructType(
    (
        StructField("id", LONG),
        StructField("n", LONG),
        StructField("d", DOUBLE),
        StructField("text", STRING),
        StructField("price", DecimalType(20, 2)),
        StructField("day", DATE),
        StructField("at", TIMESTAMP),
        StructField("ok", BOOLEAN),
        StructField("later", LONG),
    )
)
TEXT = pa.string()
MODES = ("none", "name", "id")
GOLDEN = [
    case["name"]
    for case in golden_manifest()
    if case["expect"] != "error"
    and not case.get("data_files_missing")
    # The log has wrong bounds.
    and case["name"] != "issue_1374"
]
KEPT = ("basic-decimal-table", "data-skipping-basic-stats-all-types", "table-with-dv-small")
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> list[FilePart]:
    """Skip pages wherever that is possible, and return the parts that do."""
    parts: list[FilePart] = []
    own = page_pruning.PagePruner.parts

    def parts_of(*args: Any) -> dict[int, list[FilePart]]:
        found = own(*args)
        parts.extend(part for of in found.values() for part in of)
        return found

    monkeypatch.setattr(page_pruning, "_FEWEST_BYTES", 0)
    monkeypatch.setattr(page_pruning, "_MOST_READ", 100)
    monkeypatch.setattr(page_pruning.PagePruner, "parts", parts_of)
    return parts


def some_rows(chosen: random.Random, num_rows: int, first: int) -> pa.Table:
    """Rows of which some columns are sorted, with nulls, and NaN."""

    def thinned(values: list[Any]) -> list[Any]:
        share = chosen.choice([0, 0.1, 0.9])
        start = chosen.randrange(num_rows)
        end = start + num_rows // 3
        return [
            None if start <= n < end or chosen.random() < share else value
            for n, value in enumerate(values)
        ]

    numbers = [chosen.randrange(-1000, 1000) for _ in range(num_rows)]
    if chosen.random() < 0.7:
        numbers.sort(reverse=chosen.random() < 0.3)
    doubles = [chosen.choice([float("nan"), -0.0, n / 7]) for n in numbers]
    return pa.table(
        {
            "id": range(first, first + num_rows),
            "n": pa.array(thinned(numbers), pa.int64()),
            "d": pa.array(thinned(doubles), pa.float64()),
            "text": pa.array(thinned([f"{'x' * (n % 90)}é{n:05}" for n in numbers]), pa.string()),
            "price": pa.array(thinned([Decimal(n) / 4 for n in numbers]), pa.decimal128(20, 2)),
            "day": pa.array(thinned([dt.date(2000, 1, 1) + dt.timedelta(n) for n in numbers])),
            "at": pa.array(
                thinned([EPOCH + dt.timedelta(hours=n) for n in numbers]),
                pa.timestamp("us", "UTC"),
            ),
            "ok": pa.array(thinned([n > 0 for n in numbers]), pa.bool_()),
        }
    )


def made(root: Path, seed: int, mode: str = "none") -> DeltaTable:
    """A table of two files with page indexes, of which one has a deletion vector."""
    chosen = random.Random(seed)
    properties = {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}
    if mode != "none":
        properties["delta.columnMapping.mode"] = mode
    table = DeltaTable.create(str(root), SCHEMA, properties=properties)
    schema = table.snapshot().schema
    transaction = table.transaction("WRITE", enforces=["rowTracking"])
    for number in range(2):
        rows = some_rows(chosen, chosen.randrange(500, 3000), number * 10_000)
        fields = []
        for own in rows.schema:
            field = schema.field(own.name)
            assert field is not None
            metadata = {} if mode == "none" else {"PARQUET:field_id": str(field_id(field))}
            fields.append(pa.field(physical_name(field, mode), own.type, metadata=metadata))
        path = root / f"{number}.parquet"
        pq.write_table(
            rows.cast(pa.schema([pa.field(own.name, own.type) for own in rows.schema]))
            .rename_columns([field.name for field in fields])
            .cast(pa.schema(fields)),
            path,
            row_group_size=chosen.choice([300, 1000, 5000]),
            write_page_index=True,
            data_page_size=chosen.choice([64, 300, 2000]),
            write_batch_size=chosen.choice([10, 33]),
            data_page_version=chosen.choice(["1.0", "2.0"]),
            use_dictionary=chosen.choice([True, False, [fields[3].name]]),
            use_deprecated_int96_timestamps=chosen.random() < 0.3,
            store_schema=chosen.random() < 0.5,
            compression=chosen.choice(["snappy", "zstd", "none"]),
            write_page_checksum=chosen.random() < 0.5,
        )
        vector = None
        if number:
            positions = BitMap64(chosen.sample(range(rows.num_rows), rows.num_rows // 5))
            (vector,) = write_deletion_vectors(table.storage, [positions])[0]
        stats = json.dumps({"numRecords": rows.num_rows, "tightBounds": False})
        size = path.stat().st_size
        transaction.add_file(AddFile(path.name, {}, size, 1, True, stats, deletion_vector=vector))
    transaction.commit()
    return table


def condition(chosen: random.Random, depth: int = 0) -> pc.Expression:
    kind = chosen.random()
    if depth < 3 and kind < 0.5:
        left, right = condition(chosen, depth + 1), condition(chosen, depth + 1)
        return left & right if kind < 0.25 else left | right if kind < 0.4 else ~left
    n = chosen.randrange(-1100, 1100)
    at = pa.scalar(EPOCH + dt.timedelta(hours=n), pa.timestamp("us", "UTC"))
    day = pa.scalar(dt.date(2000, 1, 1) + dt.timedelta(n))
    return chosen.choice(
        [
            pc.field("id") == chosen.randrange(3000),
            pc.field("id") > chosen.randrange(13_000),
            pc.field("n") < n,
            pc.field("n") >= n,
            pc.field("n") == n,
            pc.field("n") != n,
            pc.field("n").isin([n, n + 1, None]),
            pc.field("n").is_null(),
            pc.field("n").is_valid(),
            pc.field("d") > n / 7,
            pc.field("d") == 0.0,
            pc.field("d").is_null(nan_is_null=True),
            pc.field("d").isin([float("nan"), n / 7]),
            pc.field("text") < f"{'x' * (n % 90)}é{n:05}",
            pc.field("text") == f"{'x' * (n % 90)}é{n:05}",
            pc.field("price") <= pa.scalar(Decimal(n) / 4, pa.decimal128(20, 2)),
            pc.field("day") > day,
            pc.field("at") < at,
            pc.field("ok"),
            pc.field("later").is_null(),
            pc.field("later") > n,
            pc.field("n") < pc.field("id"),
        ]
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", deep_but_for(range(15), 0))
def test_the_rows_are_those_without_skipping(
    tmp_path: Path, always: list[FilePart], seed: int, mode: str
) -> None:
    snapshot = made(tmp_path / "t", seed, mode).snapshot()
    whole, chosen = snapshot.to_arrow(with_row_tracking=True), random.Random(seed)
    for _ in range(15):
        predicate = condition(chosen)
        columns = chosen.choice([None, ["id"], ["text", "d"], ["later", "ok"]])
        tracked = chosen.random() < 0.5
        ids = ["_row_id", "_row_commit_version"]
        names = [name for name in whole.column_names if name not in ids]
        expected = whole.filter(predicate).select((columns or names) + (ids if tracked else []))
        size = chosen.choice([5, 65_536])
        scan = snapshot.scan(columns, predicate, batch_size=size, with_row_tracking=tracked)
        assert bag(scan.to_table().to_pylist()) == bag(expected.to_pylist()), str(predicate)
    assert always


@pytest.mark.parametrize("name", deep_but_for(GOLDEN, *(name for name in KEPT if name in GOLDEN)))
def test_the_rows_of_golden_tables(
    golden_copy: Callable[[str], Path], always: list[FilePart], name: str
) -> None:
    try:
        snapshot = DeltaTable(str(golden_copy(name))).snapshot()
        whole = snapshot.to_arrow()
    except DeltaError:  # A variant, or metadata without a schema and without files.
        return
    if whole.num_rows > 100_000:
        return
    for column in whole.column_names:
        type_ = whole[column].type
        if pa.types.is_nested(type_) or pa.types.is_binary(type_):
            continue
        for value in whole[column].unique()[:3]:
            predicate = pc.field(column) == value if value.is_valid else pc.field(column).is_null()
            expected = whole.filter(predicate)
            found = snapshot.to_arrow(predicate=predicate)
            assert bag(found.to_pylist()) == bag(expected.to_pylist()), str(predicate)


def one_file(
    root: Path, num_rows: int = 20_000, type_: pa.DataType = TEXT, **options: Any
) -> DeltaTable:
    table = DeltaTable.create(
        str(root), StructType((StructField("id", LONG), StructField("text", STRING)))
    )
    texts = pa.array([f"{n % 7} {n * n}" for n in range(num_rows)]).cast(type_)
    rows = pa.table({"id": range(num_rows), "text": texts})
    options = {"write_page_index": True, "data_page_size": 4096, "write_batch_size": 64} | options
    pq.write_table(rows, root / "a.parquet", **options)
    transaction = table.transaction("WRITE")
    size = (root / "a.parquet").stat().st_size
    transaction.add_file(AddFile("a.parquet", {}, size, 1, data_change=True))
    transaction.commit()
    return table


@pytest.mark.parametrize(
    "type_", [TEXT, pa.dictionary(pa.int32(), TEXT), pa.string_view()], ids=str
)
def test_only_some_bytes_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, type_: pa.DataType
) -> None:
    snapshot = one_file(tmp_path / "t", 300_000, type_, use_dictionary=False).snapshot()
    size = (tmp_path / "t/a.parquet").stat().st_size
    lengths: list[int] = []
    own = DataFile._read

    def read(self: DataFile, source: Any, start: int, length: int) -> bytes:
        lengths.append(length)
        return own(self, source, start, length)

    monkeypatch.setattr(DataFile, "_read", read)

    def no_row_groups(*args: Any, **options: Any) -> None:
        raise AssertionError("a whole row group is read")

    monkeypatch.setattr(DataFile, "batches", no_row_groups)
    found = snapshot.to_arrow(predicate="id = 123456")
    assert found.to_pylist() == [{"id": 123456, "text": f"{123456 % 7} {123456**2}"}]
    assert 0 < sum(lengths) < size / 5


@pytest.mark.parametrize(
    ("predicate", "options"),
    [
        ("id >= 0", {}),
        ("id > 5000 and id < 300000", {}),
        ("id = 7", {"write_page_index": False}),
    ],
)
def test_row_groups_are_read_as_a_whole_if_that_is_cheaper(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    always: list[FilePart],
    predicate: str,
    options: dict[str, Any],
) -> None:
    monkeypatch.setattr(page_pruning, "_MOST_READ", 0.5)
    snapshot = one_file(tmp_path / "t", **options).snapshot()
    assert snapshot.to_arrow(predicate=predicate).num_rows
    assert not always


def test_texts_that_no_array_can_hold_together_stay_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, always: list[FilePart]
) -> None:
    class Arrow:
        """Returns texts in pieces of 100 rows, as if these had the 2 GiB that an array may have."""

        def __init__(self, reader: Any) -> None:
            self._reader = reader
            self.metadata = reader.metadata

        def iter_batches(self, *args: Any, **options: Any) -> Any:
            for batch in self._reader.iter_batches(*args, **options):
                is_text = batch.schema.types == [pa.string()]
                yield from pa.Table.from_batches([batch]).to_batches(100 if is_text else None)

        def set_batch_size(self, size: int) -> None:
            self._reader.set_batch_size(size)

    own = DataFile.open_extract
    monkeypatch.setattr(DataFile, "open_extract", lambda *args: Arrow(own(*args)))
    snapshot = one_file(tmp_path / "t").snapshot()
    batches = [*snapshot.scan(predicate="id >= 5050 and id < 8010")]
    assert always
    assert [n for batch in batches for n in batch["id"].to_pylist()] == [*range(5050, 8010)]
    assert all(
        batch["text"].to_pylist() == [f"{n % 7} {n * n}" for n in batch["id"].to_pylist()]
        for batch in batches
    )
    assert max(batch.num_rows for batch in batches) == 100


@pytest.mark.parametrize("seed", deep_but_for(range(150), *range(10)))
def test_a_damaged_index_gives_an_error_or_the_rows(
    tmp_path: Path, always: list[FilePart], seed: int
) -> None:
    chosen = random.Random(seed)
    root = tmp_path / "t"
    snapshot = one_file(root, 2000, data_page_size=512).snapshot()
    data = bytearray((root / "a.parquet").read_bytes())
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    group = pq.read_metadata(root / "a.parquet").row_group(0)
    end_of_data = max(
        (chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size
        for chunk in map(group.column, range(2))
    )
    # The column indexes come first. A wrong bound can hide rows, as in any statistics.
    start = end_of_data + (footer - end_of_data) * 3 // 4
    for _ in range(chosen.choice([1, 1, 3])):
        data[chosen.randrange(start, footer)] = chosen.randrange(256)
    (root / "a.parquet").write_bytes(data)
    wanted = chosen.randrange(2000)
    with suppress(DataFileError):
        found = snapshot.to_arrow(predicate=pc.field("id") == wanted).to_pylist()
        assert found == [{"id": wanted, "text": f"{wanted % 7} {wanted**2}"}]
