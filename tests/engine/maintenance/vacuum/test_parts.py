"""The parts of a vacuum, each by itself: locations, references, what is hidden, inventories."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.deletion_vectors import z85
from airflow_delta.engine.deletion_vectors.read import get_relative_path
from airflow_delta.engine.errors import (
    CorruptLogError,
    DeltaWarning,
    InvalidArgumentError,
    ObjectNotFoundError,
)
from airflow_delta.engine.maintenance.table_files import removals as vacuum_log
from airflow_delta.engine.maintenance.table_files.deletion_vector_files import (
    locate_deletion_vectors,
)
from airflow_delta.engine.maintenance.table_files.listing import (
    drop_duplicates,
    drop_phantoms,
    list_files,
)
from airflow_delta.engine.maintenance.table_files.locations import locate_or_decode, locate_paths
from airflow_delta.engine.maintenance.table_files.oldest_restorable import find_oldest_restorable
from airflow_delta.engine.maintenance.table_files.removals import read_commits
from airflow_delta.engine.maintenance.vacuum import inventory as vacuum_inventory
from airflow_delta.engine.maintenance.vacuum.inventory import (
    check_times,
    read_inventory,
    select_inventory_files,
)
from airflow_delta.engine.maintenance.vacuum.last_vacuum import (
    LAST_VACUUM,
    read_last_vacuum,
    write_last_vacuum,
)
from airflow_delta.engine.maintenance.vacuum.references import collect_references
from airflow_delta.engine.maintenance.vacuum.scope import (
    Scope,
    are_in_other_tables,
    find_kinds,
    find_roots_of_other_tables,
)
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.storage.base import Capabilities, FileInfo
from airflow_delta.engine.storage.local import LocalStorage
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.faulty_storage import Fault, FaultyStorage, How
from tests.log_builder import SCHEMA, add, commit_path, metadata, remove, write_commit, write_table
from tests.vacuum_world import vector

VECTOR_TYPE = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
        ("maxRowIndex", pa.int64()),
    ]
)


def texts(values: Sequence[str | None], *, chunks: int = 2) -> pa.ChunkedArray:
    """Some texts, in several chunks, as tables have them."""
    step = max(1, -(-len(values) // chunks))
    parts = [pa.array(values[at : at + step], pa.string()) for at in range(0, len(values), step)]
    return pa.chunked_array(parts, pa.string())


def actions(paths: Sequence[str], vectors: Sequence[dict[str, Any] | None] = ()) -> pa.Table:
    descriptors = pa.array([*vectors, *([None] * (len(paths) - len(vectors)))], VECTOR_TYPE)
    return pa.table({"path": texts(paths, chunks=1), "deletionVector": descriptors})


# Locations


@pytest.mark.parametrize(
    ("root", "path", "location"),
    [
        ("/t", "a", "a"),
        ("/t", "a%20b/c%2520d", "a b/c%20d"),
        ("/t", "k=1:2/a", "k=1:2/a"),
        ("/t", "a%2Fb", "a/b"),
        ("/t", "/t/a%20b", "a b"),
        ("/t", "file:/t/a", "a"),
        ("/t", "file:///t/k=1/a", "k=1/a"),
        ("/t", "/tt/a", None),
        ("/t", "s3://b/t/a", None),
        ("/a b", "file:/a%20b/c", "c"),
        ("/", "/a", "a"),
        ("s3://b/t", "s3://b/t/a%20b", "a b"),
        ("s3://b/t", "s3a://b/t/a", "a"),
        ("s3a://b/t", "s3n://b/t/a", "a"),
        ("s3://b/t", "s3://other/t/a", None),
        ("s3://b/t", "/t/a", "a"),
        ("s3://b", "s3://b/a", "a"),
        ("gs://b/t", "gcs://b/t/a", "a"),
        ("gs://b/t", "s3://b/t/a", None),
        ("abfss://c@a.dfs.core.windows.net/t", "abfs://c@a.dfs.core.windows.net/t/a", "a"),
        ("memory://b/t", "memory://b/t/a", "a"),
        # Not worth a guess.
        ("/t", "./a", None),
        ("/t", "a//b", None),
        ("/t", "../a", None),
        ("/t", "a/../b", None),
        ("/t", "/t/../a", None),
        ("/t", "", None),
        ("/t", "a/", None),
        ("/t", "a/.b/..c", "a/.b/..c"),
    ],
)
def test_the_location_of_a_path(root: str, path: str, location: str | None) -> None:
    # Beside others, which must not change it.
    found = locate_paths(texts(["x", path, "y%20z", path]), root=root)
    assert found.to_pylist() == ["x", location, "y z", location]


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("a%20b", "a b"),
        ("/t/a%20b", "a b"),
        ("s3://b/t/a%20b", "s3://b/t/a b"),
        ("/tt/a", "/tt/a"),
        ("a:1", "a:1"),
        ("./a", None),
    ],
)
def test_paths_are_located_or_decoded(path: str, location: str | None) -> None:
    found = locate_or_decode(texts(["x", path, "y%20z"]), root="/t")
    assert found.to_pylist() == ["x", location, "y z"]


def test_a_root_that_is_a_link_is_called_by_both_its_names(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "t")
    paths = texts([f"{tmp_path}/t/a", f"file://{tmp_path}/link/b", f"{tmp_path}/c"])
    assert locate_paths(paths, root=f"{tmp_path}/link").to_pylist() == ["a", "b", None]


def test_no_paths_have_no_locations() -> None:
    assert locate_paths(pa.chunked_array([], pa.string()), root="/t").to_pylist() == []


def test_a_path_that_can_not_be_decoded_is_named_as_a_whole() -> None:
    with pytest.raises(CorruptLogError, match="'k=1/a%zz/b%20c'") as error:
        locate_paths(texts(["ok%20", "k=1/a%zz/b%20c"]), root="/t")
    assert error.value.path == "k=1/a%zz/b%20c"


# Deletion vectors


def test_many_deletion_vectors_are_located_as_each_alone() -> None:
    stored = [
        prefix + z85.encode(uuid.UUID(int=number * 7919 + 1).bytes)
        for number in range(40)
        for prefix in ("", "ab", "ü^")
    ]
    # PROTOCOL.md's example, "Deletion Vector Descriptor Schema".
    stored += ["ab^-aqEH.-t@S}K{vb[*k^", z85.encode(bytes(16)), z85.encode(b"\xff" * 16)]
    rows = [{"storageType": "u", "pathOrInlineDv": value, "offset": 1} for value in stored]
    rows[7:7] = [None, {"storageType": "i", "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f5"}]
    rows.append({"storageType": "p", "pathOrInlineDv": "s3://b/deletion%20vector.bin"})
    column = pa.chunked_array([pa.array(rows[:9], VECTOR_TYPE), pa.array(rows[9:], VECTOR_TYPE)])
    relative, absolute = locate_deletion_vectors(column, table="/t")
    expected = [
        get_relative_path(DeletionVectorDescriptor("u", row["pathOrInlineDv"], 1, 0, 0))
        if row and row["storageType"] == "u"
        else None
        for row in rows
    ]
    assert relative.to_pylist() == expected
    assert "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin" in expected
    assert absolute.to_pylist() == [None] * (len(rows) - 1) + ["s3://b/deletion%20vector.bin"]


# References


@pytest.mark.parametrize(
    ("path", "stay"),
    [
        ("a%20b", ["a b", "a%20b"]),
        ("a%2520b", ["a%20b", "a%2520b"]),
        ("k=1/./a//b", ["k=1/a/b"]),
        ("x/../a", ["a"]),
        ("/mnt/lake/t/k=1/a%20b", ["k=1/a b", "a b", "t/k=1/a b", "k=1/a%20b"]),
        ("s3a://bucket/t/a", ["a", "t/a"]),
        ("s3://else/where/a", ["a"]),
        ("x:1.parquet", ["x:1.parquet"]),
    ],
)
def test_what_a_path_protects(path: str, stay: list[str]) -> None:
    others = ["b", "k=2/a b", "aa", "a/b", "1/a b", "%20b"]
    protected = collect_references([actions(["c", path, "d%20e"])], table="/t")
    others_left = [path for path in others if path not in stay]
    assert protected.protect(texts([*stay, *others_left])).to_pylist() == [
        *([True] * len(stay)),
        *([False] * len(others_left)),
    ]


def test_deletion_vectors_are_protected_in_all_storage_types() -> None:
    file = uuid.uuid4()
    far = {"storageType": "p", "pathOrInlineDv": "s3://else/t/vectors/v%20w.bin", "offset": 1}
    inline = {"storageType": "i", "pathOrInlineDv": "abcde"}
    protected = collect_references(
        [
            actions(["a", "b"], [vector(file, 1), vector(file, 50)]),
            actions(["c", "d"], [far, inline]),
        ],
        table="s3://b/t",
    )
    name = f"deletion_vector_{file}.bin"
    candidates = texts([name, f"x/{name}", "vectors/v w.bin", "abcde", "a", "d", None])
    assert protected.protect(candidates).to_pylist() == [
        True,
        False,
        True,
        False,
        True,
        True,
        False,
    ]


def test_references_of_two_are_those_of_both() -> None:
    one, two = (collect_references([actions([path])], table="/t") for path in ("a", "/x/b"))
    assert (one | two).protect(texts(["a", "b", "c"])).to_pylist() == [True, True, False]
    nothing = collect_references([], table="/t")
    assert nothing.protect(texts(["a"])).to_pylist() == [False]


# What is hidden


def test_what_is_hidden() -> None:
    scope = Scope(("_p", ".q", "_a.b"), iceberg=False)
    paths = {
        "a": False,
        "k=1/a": False,
        "_a": True,
        ".a": True,
        "k=1/_a": True,
        "k=1/.a.crc": True,
        "_delta_log/0.json": True,
        "_p=1/a": False,
        "k=1/_p=2/a": False,
        ".q=1/_p=2/a": False,
        "_p=1/_x=2/a": True,
        "_p/a": True,
        "_pp=1/a": True,
        "_a.b=1/a": False,
        "_axb=1/a": True,
        "_change_data/a": False,
        "_change_data/_p=1/a": False,
        "_change_data/_x/a": True,
        "k=1/_change_data/a": True,
        "_change_data": True,
        "metadata/v1.json": False,
        "_p=_x/a": False,
    }
    assert dict(zip(paths, scope.are_hidden(texts([*paths])).to_pylist(), strict=True)) == paths


@pytest.mark.parametrize(
    ("configuration", "hidden"),
    [
        ({}, False),
        ({"delta.universalFormat.enabledFormats": "hudi"}, False),
        ({"delta.universalFormat.enabledFormats": "hudi, Iceberg"}, True),
    ],
)
def test_icebergs_metadata_stays_where_it_is_kept(
    tmp_path: Path, configuration: dict[str, str], hidden: bool
) -> None:
    write_table(tmp_path, [add("a")], configuration=configuration)
    scope = Scope.of(DeltaTable(str(tmp_path)).snapshot())
    found = scope.are_hidden(texts(["metadata/v1.json", "k=1/metadata/a", "metadata"]))
    assert found.to_pylist() == [hidden, False, False]


def test_partition_columns_count_by_both_their_names(tmp_path: Path) -> None:
    mapped = {
        "name": "_new",
        "type": "string",
        "nullable": True,
        "metadata": {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "_old"},
    }
    id_ = {"delta.columnMapping.id": 2, "delta.columnMapping.physicalName": "id"}
    fields = [mapped, {**SCHEMA["fields"][0], "metadata": id_}]
    write_commit(
        tmp_path,
        0,
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        metadata(
            configuration={"delta.columnMapping.mode": "name"},
            partition_columns=["_new"],
            schema={"type": "struct", "fields": fields},
        ),
    )
    assert Scope.of(DeltaTable(str(tmp_path)).snapshot()).partitions == ("_new", "_old")


def test_other_tables_are_found_by_their_logs() -> None:
    paths = {
        "a": False,
        "k=1/a": False,
        "other/_delta_log/0.json": True,
        "other/k=1/a": True,
        "others/a": False,
        "x/o.t*er/_delta_log/_sidecars/a": True,
        "x/o.t*er/a": True,
        "x/a": False,
        "other/inner/_delta_log/0.json": True,
    }
    column = texts([*paths])
    inside = are_in_other_tables(column, find_roots_of_other_tables(column)).to_pylist()
    assert dict(zip(paths, inside, strict=True)) == paths


def test_the_kinds_of_files() -> None:
    name = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    paths = {
        name: "deletion vectors",
        f"ab/{name}": "deletion vectors",
        f"{name}.parquet": "data",
        f"x{name}": "data",
        "_change_data/a": "change data",
        f"_change_data/{name}": "change data",
        "k=1/a": "data",
    }
    assert dict(zip(paths, find_kinds(texts([*paths])).to_pylist(), strict=True)) == paths


# Listings and inventories


def test_files_whose_names_are_not_text_stay(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    for name in (b"a", b"\xff\xfe", b"_delta_log/0.json", "é".encode()):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(b"xy")
    found = list_files(LocalStorage(str(tmp_path)))
    assert sorted(found["path"].to_pylist()) == ["a", "é"]
    assert found["size"].to_pylist() == [2, 2]


class Listed(MemoryStorage):
    """A remote store that lists the given files."""

    capabilities = Capabilities(put_if_absent=True, start_after=True, remote=True)

    def __init__(self, *infos: tuple[str, int]) -> None:
        super().__init__("memory://listed/t")
        self._infos = infos

    def walk(self, directory: str) -> Iterator[FileInfo]:
        return (FileInfo(path, size, 1) for path, size in self._infos)


def test_directory_markers_are_not_listed() -> None:
    """As obstore lists the keys ``t/``, ``t/k=1/``, ``t/k=1/l=2/``, ``t/none/`` of a table at ``t``."""
    files = [
        ("k=1/l=2/a", 1),
        ("k=1/l=2/empty", 0),
        ("none", 0),
        ("k=10", 0),
        ("k=1/l", 0),
        ("b", 2),
    ]
    markers = [("", 0), ("k=1", 0), ("k=1/l=2", 0)]
    found = list_files(Listed(*files[:3], *markers, *files[3:], ("_delta_log/0.json", 0)))
    assert found["path"].to_pylist() == [path for path, _ in files]
    assert list_files(Listed(("", 0), ("a", 1)))["path"].to_pylist() == ["a"]
    assert list_files(Listed()).num_rows == 0


def test_empty_files_that_are_not_there_are_markers_of_empty_directories() -> None:
    storage = Listed()
    storage.replace("there", b"")
    files = pa.table({"path": texts(["there", "marker", "b"]), "size": [0, 0, 2]})
    assert drop_phantoms(files, storage)["path"].to_pylist() == ["there", "b"]
    plain = MemoryStorage("memory://plain/t")
    assert drop_phantoms(files, plain).num_rows == 3


def test_of_a_file_that_is_there_twice_the_youngest_counts() -> None:
    rows = {
        "path": texts(["a", "b", "a", "c", "a", "b"], chunks=3),
        "size": [1, 2, 3, 4, 5, None],
        "modificationTime": [5, None, 9, 7, 2, None],
    }
    found = drop_duplicates(pa.table(rows)).sort_by("path").to_pylist()
    assert [tuple(row.values()) for row in found] == [("a", 3, 9), ("b", 2, None), ("c", 4, 7)]


NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


def inventory(**columns: Any) -> pa.Table:
    times = [NOW_MS]
    whole = {"path": ["a"], "length": [1], "isDir": [False], "modificationTime": times, **columns}
    return pa.table({name: value for name, value in whole.items() if value is not None})


@pytest.mark.parametrize(
    ("root", "path", "location"),
    [
        ("/t", "a", "a"),
        ("/t", "a%20b", "a%20b"),
        ("/t", "/t/a b", "a b"),
        ("/t", "file:/t/a", "a"),
        ("/t", "file:///t/a", "a"),
        ("/t", "k=1:2/a", "k=1:2/a"),
        ("/t", "/tt/a", None),
        ("/t", "../a", None),
        ("/t", "_delta_log/0.json", None),
        ("/t", "/t/_delta_log/0.json", None),
        ("s3://b/t", "s3a://b/t/a", "a"),
        ("s3://b/t", "s3://b/other/a", None),
        ("s3://b/t", "b/t/a", "b/t/a"),
    ],
)
def test_the_paths_of_an_inventory(root: str, path: str, location: str | None) -> None:
    found = select_inventory_files(inventory(path=[path]), root=root)
    assert found["path"].to_pylist() == ([] if location is None else [location])


@pytest.mark.parametrize(
    "times",
    [
        pa.array([NOW_MS], pa.uint64()),
        pa.array([datetime(2023, 11, 14, 22, 13, 20, 999)], pa.timestamp("us")),
        pa.array([datetime(2023, 11, 14, 22, 13, 20, 0, timezone.utc)], pa.timestamp("ns", "UTC")),
    ],
)
def test_the_times_of_an_inventory(times: pa.Array) -> None:
    found = select_inventory_files(
        inventory(modificationTime=times, path=pa.array(["a"], pa.large_string())), root="/t"
    )
    assert found.to_pylist() == [{"path": "a", "size": 1, "modificationTime": NOW_MS}]


@pytest.mark.parametrize(
    ("time", "unit"),
    [
        (NOW_MS // 1000, "as if it were seconds"),
        (NOW_MS * 1000, "as if it were microseconds"),
        (NOW_MS * 1_000_000, "as if it were nanoseconds"),
        (0, "modificationTime 0: expected epoch milliseconds"),
        (NOW_MS + DAY_MS + 1, "expected epoch milliseconds"),
    ],
)
def test_times_of_another_unit_are_refused(time: int, unit: str) -> None:
    rows = inventory(
        path=["a", "b"],
        length=[1, 1],
        isDir=[False, False],
        modificationTime=pa.array([NOW_MS, time], pa.int64()),
    )
    with pytest.raises(InvalidArgumentError, match=unit):
        check_times(select_inventory_files(rows, root="/t"), table="/t", now_ms=NOW_MS)
    # What isn't the table's doesn't matter.
    elsewhere = rows.set_column(0, "path", [["a", "/elsewhere/b"]])
    check_times(select_inventory_files(elsewhere, root="/t"), table="/t", now_ms=NOW_MS)


def test_an_inventory_in_seconds_is_refused_as_it_is_read(tmp_path: Path) -> None:
    write_table(tmp_path, [add("a")])
    rows = inventory(path=["uncommitted"], modificationTime=[NOW_MS // 1000])
    with pytest.raises(InvalidArgumentError, match="as if it were seconds"):
        DeltaTable(str(tmp_path)).vacuum(inventory=rows, dry_run=True)


def test_times_up_to_tomorrow_are_accepted() -> None:
    for time in (946_684_800_000, NOW_MS + DAY_MS):
        files = select_inventory_files(inventory(modificationTime=[time]), root="/t")
        check_times(files, table="/t", now_ms=NOW_MS)


def test_large_texts_are_cast_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vacuum_inventory, "_CHUNK_ROWS", 2)
    names = ["a", "b", "c", "d", "e"]
    columns = {"length": [1] * 5, "isDir": [False] * 5, "modificationTime": [NOW_MS] * 5}
    rows = inventory(path=pa.array(names, pa.large_string()), **columns)
    found = select_inventory_files(rows, root="/t")["path"]
    assert (found.to_pylist(), found.num_chunks) == (names, 3)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"isDir": None}, r"lacks the columns \['isDir'\].*found path, length"),
        ({"path": [1]}, "column path of the inventory is of type int64: expected string"),
        ({"modificationTime": ["5"]}, "modificationTime of the inventory is of type string"),
        ({"modificationTime": pa.array([None], pa.int64())}, "modificationTime .* has 1 nulls"),
        ({"isDir": pa.array([None], pa.bool_())}, "isDir of the inventory has 1 nulls"),
    ],
)
def test_a_table_that_is_no_inventory_is_refused(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidArgumentError, match=match):
        select_inventory_files(read_inventory(inventory(**changes), {}, table="/t"), root="/t")


def test_an_inventory_may_lie_in_a_file(tmp_path: Path) -> None:
    rows = inventory(length=pa.array([None], pa.int64()), more=["x"])
    pq.write_table(rows, tmp_path / "inventory.parquet")
    # The user names it: it may be a link, as the newest one often is.
    (tmp_path / "latest").symlink_to(tmp_path / "inventory.parquet")
    for location in (
        tmp_path / "inventory.parquet",
        f"file://{tmp_path}/inventory.parquet",
        tmp_path / "latest",
    ):
        found = select_inventory_files(read_inventory(location, {}, table="/t"), root="/t")
        assert found.to_pylist() == [{"path": "a", "size": None, "modificationTime": NOW_MS}]
    (tmp_path / "text").write_text("no Parquet")
    with pytest.raises(InvalidArgumentError, match="text can't be read as a Parquet file"):
        read_inventory(tmp_path / "text", {}, table="/t")
    with pytest.raises(ObjectNotFoundError, match="missing"):
        read_inventory(str(tmp_path / "missing"), {}, table="/t")
    with pytest.raises(
        InvalidArgumentError, match=r"inventory: expected an Arrow table.*found the int"
    ):
        read_inventory(7, {}, table="/t")  # type: ignore[arg-type]


# The note of the last vacuum


@pytest.mark.parametrize(
    ("content", "version"),
    [
        # As Delta Spark 3.3 and 4.0 write it, after a LITE vacuum and after a full one.
        (b'{"latestCommitVersionOutsideOfRetentionWindow":10}\n', 10),
        (b"{}\n", None),
        (b'{"latestCommitVersionOutsideOfRetentionWindow":null}', None),
        (b'{"latestCommitVersionOutsideOfRetentionWindow":-1}', None),
        (b'{"latestCommitVersionOutsideOfRetentionWindow":"1"}', None),
        (b'{"latestCommitVersionOutsideOfRetentionWindow":true}', None),
        (b"[1]", None),
        (b"", None),
        (b"\xff", None),
    ],
)
def test_the_note_of_the_last_vacuum(content: bytes, version: int | None) -> None:
    storage = MemoryStorage(f"memory://{uuid.uuid4()}/t")
    assert read_last_vacuum(storage) is None
    storage.replace(LAST_VACUUM, content)
    assert read_last_vacuum(storage) == version
    write_last_vacuum(storage, 11)
    assert storage.read(LAST_VACUUM) == b'{"latestCommitVersionOutsideOfRetentionWindow":11}\n'


def test_a_note_that_can_not_be_written_is_a_warning() -> None:
    storage = FaultyStorage(MemoryStorage("memory://n/t"), Fault("replace", how=How.FAIL))
    with pytest.warns(DeltaWarning, match=r"vacuum is done.*_last_vacuum_info can't be written"):
        write_last_vacuum(storage, 1)


# The commits, and what can be restored


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_table(
        tmp_path, [add("a"), add("b")], [remove("a")], [add("c")], [remove("b")], [add("d")]
    )


@pytest.mark.parametrize("run_bytes", [1, 300, 1 << 20])
def test_commits_are_read_some_at_a_time(
    log: Path, run_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vacuum_log, "_RUN_BYTES", run_bytes)
    snapshot = DeltaTable(str(log)).snapshot()
    ascending = [*read_commits(snapshot, range(1, 5))]
    descending = [*read_commits(snapshot, range(1, 5), newest_first=True)]
    for runs in (ascending, descending):
        removes = [commits.files.removes["path"].to_pylist() for _, commits in runs]
        found = [path for run in (removes if runs is ascending else removes[::-1]) for path in run]
        assert found == ["a", "b"]
    assert [first for first, _ in ascending] == sorted(first for first, _ in ascending)
    assert ascending[0][0] == descending[-1][0] == 1
    assert (len(ascending) == 4) == (run_bytes == 1)


def gone(*names: str) -> Any:
    return lambda removes, locations: pa.chunked_array(
        [[p in names for p in locations.to_pylist()]]
    )


@pytest.mark.parametrize("run_bytes", [1, 1 << 20])
@pytest.mark.parametrize(
    ("lost", "oldest"), [((), 0), (("a",), 1), (("b",), 3), (("a", "b"), 3), (("c",), 0)]
)
def test_the_last_removal_of_a_file_that_is_gone_begins_what_is_whole(
    log: Path, lost: tuple[str, ...], oldest: int, run_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vacuum_log, "_RUN_BYTES", run_bytes)
    assert find_oldest_restorable(DeltaTable(str(log)).snapshot(), gone(*lost)) == oldest


def test_what_the_log_can_not_rebuild_is_not_restorable(log: Path) -> None:
    table = DeltaTable(str(log))
    assert table.checkpoint(2).written
    commit_path(log, 0).unlink()
    assert find_oldest_restorable(table.snapshot(), gone()) == 2
    assert find_oldest_restorable(table.snapshot(), gone("a")) == 2
    assert find_oldest_restorable(table.snapshot(), gone("b")) == 3


def test_a_concurrent_cleanup_makes_the_log_shorter(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vacuum_log, "_RUN_BYTES", 1)
    snapshot = DeltaTable(str(log)).snapshot()
    assert snapshot.timeline.earliest_recreatable == 0
    for version in (0, 1, 2):
        commit_path(log, version).unlink()
    assert find_oldest_restorable(snapshot, gone("a")) == 3
