"""Tables whose rows are sorted: the rows stay as they were, the files divide them along the columns."""

from __future__ import annotations

import errno
import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import LONG, STRING, AddFile, DeltaTable, StructField, StructType
from airflow_delta.engine.data_files import scan
from airflow_delta.engine.errors import (
    DataFileError,
    DeltaError,
    MetadataChangedError,
    StorageError,
)
from airflow_delta.engine.maintenance.optimize import execution, rounds, sorted_writer
from airflow_delta.engine.maintenance.optimize.sorting import buckets, external_sort, keys
from airflow_delta.engine.transaction.file_rows import add_actions
from tests.deep import deep_but_for
from tests.engine.maintenance.optimize.files_of_rows import (
    check_statistics,
    data_files,
    delete_in_log,
    rows_by_file,
)
from tests.row_tables import bag, random_table

LAYOUTS: dict[str, dict[str, Any]] = {
    "none": {},
    "name, tracked": {"mode": "name", "partition_by": ("p",), "tracked": True},
    "id": {"mode": "id", "partition_by": ("q", "p")},
    "id, tracked": {"mode": "id", "tracked": True},
}
COLUMNS: dict[str, list[Any]] = {
    "id": ["id"],
    "text, price": ["text", "price"],
    "all kinds": ["d", "at", ["s", "x"], "wall", "day", "s.x", "n"],
}
Spill = Callable[..., None]


@pytest.fixture
def spill(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Spill:
    """Have even few rows sorted in temporary files, of few bytes each."""

    def set_limits(bucket_bytes: int = 2000, most_open: int = 128, most_split: int = 64) -> None:
        monkeypatch.setattr(external_sort, "_FITS_IN_MEMORY", 1)
        monkeypatch.setattr(external_sort, "_BUCKET_BYTES", bucket_bytes)
        monkeypatch.setattr(external_sort, "_MOST_OPEN", most_open)
        monkeypatch.setattr(external_sort, "_MOST_SPLIT", most_split)
        monkeypatch.setattr(rounds, "_ALONE_BYTES", 1)
        (tmp_path / "spill").mkdir(exist_ok=True)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "spill"))

    return set_limits


def spilled(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "spill").iterdir()]


@pytest.mark.parametrize("columns", deep_but_for(COLUMNS, "text, price", "all kinds"))
@pytest.mark.parametrize("layout", deep_but_for(LAYOUTS, "name, tracked", "none"))
@pytest.mark.parametrize("seed", deep_but_for(range(4), 2))
def test_rows_stay_as_they_were_in_z_order(
    tmp_path: Path, layout: str, columns: str, seed: int, spill: Spill
) -> None:
    if columns == "all kinds":
        spill()
    options = LAYOUTS[layout]
    made = random_table(tmp_path / "t", seed, num_files=6, **options)
    tracked = options.get("tracked", False)
    table = made.table
    before = table.snapshot()
    arguments = {"z_order_by": COLUMNS[columns], "max_file_size": 1 << 20}
    planned = table.optimize(**arguments, dry_run=True).plan
    assert (len(planned.files), planned.num_sorted) == (before.num_files, planned.num_bins)
    done = table.optimize(**arguments)
    after = table.snapshot()
    assert bag(after.to_arrow(with_row_tracking=tracked).to_pylist()) == bag(made.rows)
    assert (after.metadata, after.protocol) == (before.metadata, before.protocol)
    assert done.num_added == after.num_files <= planned.num_new_files
    check_statistics(after, after.files()["path"].to_pylist())
    assert table.optimize(**arguments).num_commits == 0
    assert table.optimize(**arguments, full=True).num_removed == after.num_files
    assert bag(table.snapshot().to_arrow(with_row_tracking=tracked).to_pylist()) == bag(made.rows)


@pytest.mark.parametrize(
    "columns", deep_but_for([("id",), ("id", "text", "day")], ("id", "text", "day"))
)
@pytest.mark.parametrize("layout", deep_but_for(["none", "id, tracked"], "id, tracked"))
@pytest.mark.parametrize("seed", deep_but_for(range(4), 1))
def test_rows_stay_as_they_were_when_clustered(
    tmp_path: Path, layout: str, columns: tuple[str, ...], seed: int
) -> None:
    options = LAYOUTS[layout]
    made = random_table(tmp_path / "t", seed, num_files=6, cluster_by=columns, **options)
    tracked = options.get("tracked", False)
    table = made.table
    before = table.snapshot()
    done = table.optimize(max_file_size=1 << 20)
    after = table.snapshot()
    assert bag(after.to_arrow(with_row_tracking=tracked).to_pylist()) == bag(made.rows)
    assert (after.metadata, after.protocol, after.domains["delta.clustering"]) == (
        before.metadata,
        before.protocol,
        before.domains["delta.clustering"],
    )
    adds = after.files().to_pylist()
    assert len(adds) == done.num_added == 1
    assert adds[0]["clusteringProvider"] == "liquid"
    tags = dict(adds[0]["tags"])
    assert json.loads(tags["ZCUBE_ZORDER_BY"]) == list(columns)
    assert len(tags["ZCUBE_ID"]) == 36
    operation = table.history(1)[0]
    assert operation.operation == "OPTIMIZE"
    assert operation.operation_parameters == {
        "predicate": "[]",
        "zOrderBy": "[]",
        "clusterBy": json.dumps(list(columns), separators=(",", ":")),
        "auto": "false",
        "isFull": "false",
    }
    check_statistics(after, [adds[0]["path"]])
    assert table.optimize(max_file_size=1 << 20).num_commits == 0


def grid_table(path: Path, **options: Any) -> DeltaTable:
    """A table of 64 by 64 rows in any order, in four files."""
    schema = StructType((StructField("x", LONG), StructField("y", STRING), StructField("n", LONG)))
    table = DeltaTable.create(str(path), schema, **options)
    order = np.random.default_rng(3).permutation(64 * 64)
    transaction = table.transaction("WRITE")
    for number, part in enumerate(np.split(order, 4)):
        rows = {
            "x": [int(n) // 64 for n in part],
            "y": [f"text {int(n) % 64:02}" for n in part],
            "n": [int(n) for n in part],
        }
        pq.write_table(pa.table(rows), path / f"{number}.parquet")
        bounds = {name: [min(values), max(values)] for name, values in rows.items()}
        stats = {
            "numRecords": len(part),
            "minValues": {name: low for name, (low, _) in bounds.items()},
            "maxValues": {name: high for name, (_, high) in bounds.items()},
            "nullCount": dict.fromkeys(rows, 0),
        }
        name = f"{number}.parquet"
        size = (path / name).stat().st_size
        add = AddFile(name, {}, size, 1, data_change=True, stats=json.dumps(stats))
        transaction.add_file(add)
    transaction.commit()
    return table


def areas(table: DeltaTable) -> list[tuple[int, int]]:
    """How many different x and y each file has."""
    files = rows_by_file(table.snapshot()).values()
    return [(len(rows["x"].unique()), len(rows["y"].unique())) for rows in files]


@pytest.mark.parametrize("is_clustered", [False, True])
@pytest.mark.parametrize("most_open", [128, 2])
def test_files_hold_squares(
    tmp_path: Path,
    spill: Spill,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_clustered: bool,
    most_open: int,
) -> None:
    spill(bucket_bytes=1 << 12, most_open=most_open)
    table = grid_table(tmp_path / "t", cluster_by=["x", "y"] if is_clustered else [])
    monkeypatch.setattr(sorted_writer, "count_files", lambda *_: 16)
    done = table.optimize(**({} if is_clustered else {"z_order_by": ["x", "y"]}))
    assert done.num_added == 16
    # Each has 256 of 4,096 points: a square of 16 by 16, or a little more where ranges don't fit it.
    assert all(16 <= x <= 20 and 16 <= y <= 20 for x, y in areas(table))
    assert sorted(table.snapshot().to_arrow()["n"].to_pylist()) == [*range(64 * 64)]
    assert spilled(tmp_path) == []


@pytest.mark.parametrize("num_files", [1, 3, 7, 8, 20, 30])
@pytest.mark.parametrize("bucket_bytes", [200, 2000, 1 << 16])
def test_few_temporary_files_are_open_at_once(
    tmp_path: Path,
    spill: Spill,
    monkeypatch: pytest.MonkeyPatch,
    num_files: int,
    bucket_bytes: int,
) -> None:
    spill(bucket_bytes, most_open=8, most_split=4)
    table = grid_table(tmp_path / "t")
    monkeypatch.setattr(sorted_writer, "count_files", lambda *_: num_files)
    num_open: dict[str, list[int]] = {"reading": [], "splitting": []}
    finish = buckets.Buckets.finish

    def count_then_finish(self: Any) -> None:
        is_split = self._folder.name.startswith("bucket-")
        num_open["splitting" if is_split else "reading"].append(len(self._writers))
        finish(self)

    monkeypatch.setattr(buckets.Buckets, "finish", count_then_finish)
    assert table.optimize(z_order_by=["n"]).num_added == num_files
    assert max(num_open["reading"]) <= 8
    assert max(num_open["splitting"], default=0) <= 4
    found = [rows["n"].to_pylist() for rows in rows_by_file(table.snapshot()).values()]
    assert sorted(chain.from_iterable(found)) == [*range(64 * 64)]
    for values in found:  # Each file has a range, in order but for neighbours.
        assert max(values) - min(values) < 2 * 64 * 64 / num_files
        assert max(abs(v - w) for v, w in zip(values, sorted(values), strict=True)) <= 1
    assert spilled(tmp_path) == []


def test_rows_with_equal_values_are_divided_too(
    tmp_path: Path, spill: Spill, monkeypatch: pytest.MonkeyPatch
) -> None:
    spill()
    table = grid_table(tmp_path / "t")
    monkeypatch.setattr(keys, "SAMPLE_ROWS", 500)
    monkeypatch.setattr(sorted_writer, "count_files", lambda *_: 8)
    monkeypatch.setattr(
        "airflow_delta.engine.maintenance.optimize.sorting.keys.make_ranks",
        lambda *_, **__: lambda values: np.zeros(len(values), np.int64),
    )
    table.optimize(z_order_by=["x"])
    counts = [rows.num_rows for rows in rows_by_file(table.snapshot()).values()]
    assert (len(counts), sum(counts)) == (8, 64 * 64)
    assert min(counts) > 300


@pytest.mark.parametrize("is_clustered", [False, True])
def test_texts_that_are_not_utf8_are_sorted_by_their_bytes(
    tmp_path: Path, *, is_clustered: bool
) -> None:
    schema = StructType((StructField("s", STRING), StructField("n", LONG)))
    cluster_by = ["s"] if is_clustered else []
    table = DeltaTable.create(str(tmp_path / "t"), schema, cluster_by=cluster_by)
    transaction = table.transaction("WRITE")
    texts = [b"b", b"a\xff\xfe", "é".encode()[:1], b""]
    for number in range(2):
        path = tmp_path / "t" / f"{number}.parquet"
        rows = {"s": pa.array(texts, pa.binary()).view(pa.string()), "n": [*range(4)]}
        pq.write_table(pa.table(rows), path)
        bounds = {"minValues": {"s": ""}, "maxValues": {"s": "é"}}
        stats = json.dumps({"numRecords": 4, "nullCount": {"s": 0}, **bounds})
        add = AddFile(path.name, {}, path.stat().st_size, 1, data_change=True, stats=stats)
        transaction.add_file(add)
    transaction.commit()
    assert table.optimize(**({} if is_clustered else {"z_order_by": ["s"]})).num_added == 1
    found = table.snapshot().to_arrow()["s"].combine_chunks().view(pa.binary()).to_pylist()
    assert found == sorted([*texts, *texts])


def test_a_bucket_that_is_too_large_is_sorted_in_parts(
    tmp_path: Path, spill: Spill, monkeypatch: pytest.MonkeyPatch
) -> None:
    spill(bucket_bytes=1 << 30)
    monkeypatch.setattr(buckets, "_LARGEST", 10_000)
    table = grid_table(tmp_path / "t")
    table.optimize(z_order_by=["n"])
    (rows,) = rows_by_file(table.snapshot()).values()
    found = rows["n"].to_pylist()
    assert sorted(found) == [*range(64 * 64)]
    # In order, but for neighbours in one range.
    assert max(abs(value - place) for place, value in enumerate(found)) <= 1


def test_the_number_of_files_follows_the_space_that_rows_take(tmp_path: Path) -> None:
    table = grid_table(tmp_path / "t")
    size = table.snapshot().size_in_bytes
    greatest = size // 5
    done = table.optimize(z_order_by=["x", "y"], max_file_size=greatest)
    sizes = table.snapshot().files()["size"].to_pylist()
    assert done.num_added == len(sizes) >= 2
    assert max(sizes) < 1.5 * greatest


def fail_with_full_disk(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_too_many_open_files_are_named(
    tmp_path: Path, spill: Spill, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    spill()
    table = grid_table(tmp_path / "t")
    monkeypatch.setattr(buckets.pa.ipc, "new_stream", fail)
    with pytest.raises(StorageError, match=r"because too many files are open: .* \(ulimit -n\)"):
        table.optimize(z_order_by=["x", "y"])


@pytest.mark.parametrize("where", ["folder", "file"])
def test_a_full_disk_is_named_and_nothing_is_left(
    tmp_path: Path, spill: Spill, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    spill()
    table = grid_table(tmp_path / "t")
    before, version = data_files(tmp_path / "t"), table.latest_version()
    if where == "folder":
        monkeypatch.setattr(tempfile, "TemporaryDirectory", fail_with_full_disk)
    else:
        monkeypatch.setattr(buckets.pa.ipc, "new_stream", fail_with_full_disk)
    with pytest.raises(
        StorageError, match=r"perhaps because the disk is full: .*No space left"
    ) as caught:
        table.optimize(z_order_by=["x", "y"])
    assert caught.value.operation == "sort"
    assert (data_files(tmp_path / "t"), table.latest_version()) == (before, version)
    assert spilled(tmp_path) == []


def test_too_little_space_is_refused_before_it_is_used(
    tmp_path: Path, spill: Spill, monkeypatch: pytest.MonkeyPatch
) -> None:
    spill()
    table = grid_table(tmp_path / "t")
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(buckets.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(StorageError, match=r"has 1,000 bytes left: choose another by .* TMPDIR"):
        table.optimize(z_order_by=["x", "y"])
    assert spilled(tmp_path) == []


def test_a_damaged_file_is_named_and_nothing_is_left(tmp_path: Path, spill: Spill) -> None:
    spill()
    table = grid_table(tmp_path / "t")
    path = tmp_path / "t" / "2.parquet"
    data = bytearray(path.read_bytes())
    data[200:400] = bytes(200)
    path.write_bytes(data)
    before = data_files(tmp_path / "t")
    with pytest.raises(DataFileError) as caught:
        table.optimize(z_order_by=["x", "y"])
    assert caught.value.path == "2.parquet"
    assert (data_files(tmp_path / "t"), table.latest_version()) == (before, 1)
    assert spilled(tmp_path) == []


@pytest.mark.parametrize("rows_read", [0, 4096])
def test_files_with_other_rows_than_counted_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_read: int
) -> None:
    table = grid_table(tmp_path / "t")
    before = data_files(tmp_path / "t")
    monkeypatch.setattr(sorted_writer, "count_rows", lambda *_: 4097)
    if not rows_read:
        monkeypatch.setattr(scan.Scan, "__iter__", lambda _: iter(()))
    with pytest.raises(DataFileError, match=f"have {rows_read} rows .* and 4097 by their footers"):
        table.optimize(z_order_by=["x", "y"])
    assert (data_files(tmp_path / "t"), table.latest_version()) == (before, 1)


@pytest.mark.parametrize("is_clustered", [False, True])
@pytest.mark.parametrize(
    ("cardinality", "message"),
    [
        (1024, "it holds 10 positions, its descriptor states 1024"),
        (1025, "it has 1024 rows, and its deletion vector deletes 1025 by the log"),
    ],
)
def test_a_wrong_cardinality_removes_no_rows(
    tmp_path: Path, cardinality: int, message: str, *, is_clustered: bool
) -> None:
    cluster_by = ["x", "y"] if is_clustered else []
    path = tmp_path / "t"
    grid_table(path, cluster_by=cluster_by, properties={"delta.enableDeletionVectors": "true"})
    delete_in_log(path, 10, cardinality=cardinality)
    before, table = data_files(path), DeltaTable(str(path))
    with pytest.raises(DeltaError, match=message):
        table.optimize(**({} if is_clustered else {"z_order_by": ["x", "y"]}))
    assert (data_files(path), table.latest_version()) == (before, 1)


def test_files_without_live_rows_leave_no_file(tmp_path: Path) -> None:
    path = tmp_path / "t"
    grid_table(path, properties={"delta.enableDeletionVectors": "true"})
    delete_in_log(path, 1024, cardinality=1024)
    done = DeltaTable(str(path)).optimize(z_order_by=["x"])
    assert (done.num_removed, done.num_added) == (4, 0)


@pytest.mark.parametrize("is_clustered", [False, True])
def test_a_file_that_is_rewritten_alone_keeps_its_place(
    tmp_path: Path, *, is_clustered: bool
) -> None:
    cluster_by = ("id",) if is_clustered else ()
    made = random_table(tmp_path / "t", 3, num_files=6, cluster_by=cluster_by, tracked=True)
    table = made.table
    tags = {"Z_ORDER": '{"by":["id"],"id":"1"}', "other": "kept"}
    provider = "liquid" if is_clustered else None
    if is_clustered:
        tags = {"ZCUBE_ID": "cube", "ZCUBE_ZORDER_BY": '["id"]', "other": "kept"}
    transaction = table.transaction("OPTIMIZE", enforces=["rowTracking"])
    adds = transaction.read_files().to_pylist()
    for add in add_actions(transaction.read_files(), data_change=False):
        transaction.add_file(replace(add, tags=tags, clustering_provider=provider))
    transaction.commit()
    with_vectors = sum(add["deletionVector"] is not None for add in adds)
    assert with_vectors > 1
    done = table.optimize(purge=True)
    assert (done.num_removed, done.num_added) == (with_vectors, with_vectors)
    after = table.snapshot().files().to_pylist()
    assert all(add["clusteringProvider"] == provider for add in after)
    assert all(tags.items() <= dict(add["tags"]).items() for add in after)
    rows = table.snapshot().to_arrow(with_row_tracking=True).to_pylist()
    assert bag(rows) == bag(made.rows)


def test_files_for_other_clustering_columns_are_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = grid_table(tmp_path / "t", cluster_by=["x", "y"])
    write = execution._Run.write

    def writing(run: Any, *arguments: Any) -> Any:
        done = write(run, *arguments)
        DeltaTable(str(tmp_path / "t")).alter.cluster_by(["y"])
        return done

    monkeypatch.setattr(execution._Run, "write", writing)
    before = data_files(tmp_path / "t")
    with pytest.raises(MetadataChangedError, match="the clustering or the form of data files"):
        table.optimize()
    assert data_files(tmp_path / "t") == before
