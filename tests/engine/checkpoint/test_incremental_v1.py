from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.arrow.action_schema import POSITION, VERSION, FileActions
from airflow_delta.engine.checkpoint import action_rows, classic_reuse
from airflow_delta.engine.checkpoint.incremental_v1 import (
    has_files_inline,
    write_incremental_classic,
)
from airflow_delta.engine.checkpoint.read import open_checkpoint
from airflow_delta.engine.checkpoint.row_encoder import RowEncoder
from airflow_delta.engine.checkpoint.write import (
    CheckpointWritten,
    ExpectedFiles,
    NonFileContent,
    write_classic_checkpoint,
)
from airflow_delta.engine.errors import CorruptLogError, InvalidTableError, ObjectNotFoundError
from airflow_delta.engine.log.files import (
    Checkpoint,
    ClassicCheckpoint,
    MultipartCheckpoint,
    V2Checkpoint,
    checkpoint_path,
)
from airflow_delta.engine.parquet import StitchedFile, parse_stored_file
from airflow_delta.engine.replay.reconcile import ReconciledCommits, reconcile_commits
from airflow_delta.engine.snapshot.segment_commits import SegmentCommits
from airflow_delta.engine.storage.base import FileInfo
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.engine.checkpoint.contents import (
    add_row,
    add_table,
    content,
    memory,
    remove_row,
    remove_table,
)
from tests.log_builder import add, remove, write_commit, write_table

BASE, NEW = checkpoint_path(7), checkpoint_path(8)
GROUP = 10


@pytest.fixture(autouse=True)
def small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(action_rows, "_GROUP_ROWS", GROUP)


@pytest.fixture
def storage() -> MemoryStorage:
    """A checkpoint of version 7: three full row groups of adds, and one of removes."""
    storage = memory()
    write(storage)
    return storage


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the row groups that were copied."""
    numbers: list[int] = []
    copied = classic_reuse.Judge._copied

    def counting(self: Any, ours: Any) -> Any:
        data = copied(self, ours)
        numbers.append(ours.number)
        return data

    monkeypatch.setattr(classic_reuse.Judge, "_copied", counting)
    return numbers


def write(storage: MemoryStorage, *, adds: int = 30, removes: int = 10, **changes: Any) -> None:
    given = content(
        adds=[add_table([add_row(n) for n in range(adds)])],
        removes=[remove_table([remove_row(n) for n in range(removes)])],
        **changes,
    )
    write_classic_checkpoint(storage, given, version=7, table=storage.root, replaces=True)


def base_of(storage: MemoryStorage) -> ClassicCheckpoint:
    info = storage.head(BASE)
    return ClassicCheckpoint(7, info.path, info.size, info.modified_ms)


def tail_of(
    storage: MemoryStorage,
    adds: Iterable[dict[str, Any]] = (),
    removes: Iterable[dict[str, Any]] = (),
) -> ReconciledCommits:
    tables = [add_table(list(adds)), remove_table(list(removes))]
    first = tables[0].num_rows
    placed = [
        table.append_column(VERSION, pa.array([8] * table.num_rows, pa.int64())).append_column(
            POSITION, pa.array(range(start, start + table.num_rows), pa.int64())
        )
        for table, start in zip(tables, (0, first), strict=True)
    ]
    return reconcile_commits(FileActions(*placed), table=storage.root)


def follow(
    storage: MemoryStorage,
    adds: Iterable[dict[str, Any]] = (),
    removes: Iterable[dict[str, Any]] = (),
    *,
    base: Checkpoint | None = None,
    oldest_ms: int = 0,
    small: NonFileContent | None = None,
    expected: ExpectedFiles | None = None,
) -> CheckpointWritten:
    """Write the checkpoint of version 8."""
    return write_incremental_classic(
        storage,
        small or content(),
        base or base_of(storage),
        tail_of(storage, adds, removes),
        oldest_tombstone_ms=oldest_ms,
        version=8,
        table=storage.root,
        expected=expected,
        replaces=True,
    )


def groups(storage: MemoryStorage, path: str) -> list[bytes]:
    """The bytes of the row groups of a file."""
    data = storage.read(path)
    return [data[g.start : g.start + g.length] for g in parse_stored_file(data).groups]


def kept(storage: MemoryStorage) -> int:
    """How many row groups of the new checkpoint are in the old one, byte for byte."""
    return len({*groups(storage, NEW)[1:]} & {*groups(storage, BASE)[1:]})


def paths(storage: MemoryStorage, kind: str, path: str = NEW) -> list[str]:
    file = pq.ParquetFile(io.BytesIO(storage.read(path)), page_checksum_verification=True)
    return sorted(row[kind]["path"] for row in file.read().to_pylist() if row[kind])


def added(*numbers: int) -> list[str]:
    return sorted(add_row(n)["path"] for n in numbers)


def test_appends_copy_every_full_row_group(storage: MemoryStorage, copies: list[int]) -> None:
    result = follow(storage, [add_row(100)])
    assert sorted(copies) == [1, 2, 3, 4]
    assert kept(storage) == 4
    assert paths(storage, "add") == added(*range(30), 100)
    assert paths(storage, "remove") == paths(storage, "remove", BASE)
    assert (result.num_actions, result.num_adds) == (46, 31)
    assert result.adds_size_sum == sum(add_row(n)["size"] for n in (*range(30), 100))
    assert (result.version, result.path) == (8, NEW)
    assert result.size_in_bytes == storage.head(NEW).size


def test_only_row_groups_with_rows_that_are_gone_are_encoded_again(storage: MemoryStorage) -> None:
    follow(storage, removes=[remove_row(0, path=add_row(15)["path"])])
    assert kept(storage) == 3
    assert paths(storage, "add") == added(*range(15), *range(16, 30))
    assert add_row(15)["path"] in paths(storage, "remove")


def test_a_file_that_is_added_again_leaves_its_tombstone(storage: MemoryStorage) -> None:
    follow(storage, [add_row(0, path=remove_row(3)["path"])])
    assert kept(storage) == 3
    assert remove_row(3)["path"] not in paths(storage, "remove")
    assert remove_row(3)["path"] in paths(storage, "add")


def test_expired_tombstones_go(storage: MemoryStorage) -> None:
    oldest = remove_row(4)["deletionTimestamp"]
    follow(
        storage,
        removes=[remove_row(50), remove_row(51, deletionTimestamp=oldest)],
        oldest_ms=oldest,
    )
    assert paths(storage, "remove") == [remove_row(n)["path"] for n in (5, 6, 7, 8, 9, 50)]
    assert kept(storage) == 3
    follow(storage, oldest_ms=remove_row(9)["deletionTimestamp"])
    assert paths(storage, "remove") == []


def test_a_deletion_vector_makes_another_file(storage: MemoryStorage) -> None:
    vector = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 4,
        "sizeInBytes": 40,
        "cardinality": 6,
    }
    write(storage, adds=0, removes=0)
    both = [add_row(n) for n in range(5)] + [
        add_row(n, deletionVector=vector) for n in range(5, 10)
    ]
    write_classic_checkpoint(
        storage,
        content(adds=[add_table(both)], removes=[]),
        version=7,
        table=storage.root,
        replaces=True,
    )
    # Of the paths with a vector, the files without one were removed; and the other way round.
    gone = [remove_row(0, path=add_row(n)["path"]) for n in (0, 5)]
    gone += [remove_row(0, path=add_row(n)["path"], deletionVector=vector) for n in (1, 6)]
    follow(storage, removes=gone)
    assert paths(storage, "add") == added(1, 2, 3, 4, 5, 7, 8, 9)


def test_small_row_groups_do_not_pile_up(storage: MemoryStorage) -> None:
    version, base = 7, base_of(storage)
    for number in range(100, 125):
        version += 1
        info = storage.head(base.path)
        written = write_incremental_classic(
            storage,
            content(),
            ClassicCheckpoint(base.version, info.path, info.size, info.modified_ms),
            tail_of(storage, [add_row(number)]),
            oldest_tombstone_ms=0,
            version=version,
            table=storage.root,
            replaces=True,
        )
        base = ClassicCheckpoint(
            version,
            written.path,
            written.size_in_bytes,
            storage.head(written.path).modified_ms,
        )
    assert paths(storage, "add", base.path) == added(*range(30), *range(100, 125))
    sizes = [g.num_rows for g in parse_stored_file(storage.read(base.path)).groups]
    assert min(sizes[1:]) >= GROUP // 2
    # The full ones were never touched.
    assert {*groups(storage, BASE)[1:]} <= {*groups(storage, base.path)}


def test_a_small_row_group_alone_is_copied(storage: MemoryStorage) -> None:
    write(storage, adds=31, removes=3)
    follow(storage, removes=[])
    assert kept(storage) == 5
    follow(storage, [add_row(100)])
    assert kept(storage) == 4


@pytest.mark.parametrize(
    "configuration",
    [
        {"delta.checkpoint.writeStatsAsStruct": "true"},
        {
            "delta.checkpoint.writeStatsAsStruct": "true",
            "delta.checkpoint.writeStatsAsJson": "false",
        },
    ],
)
def test_other_columns_are_written_anew_once(
    storage: MemoryStorage, configuration: dict[str, str]
) -> None:
    small = content()
    changed = type(small.metadata)(
        **{
            **{name: getattr(small.metadata, name) for name in ("id", "name", "schema_string")},
            "partition_columns": ("p",),
            "configuration": configuration,
        }
    )
    follow(storage, [add_row(100)], small=content(metadata=changed))
    assert kept(storage) == 0
    assert paths(storage, "add") == added(*range(30), 100)
    first = {*groups(storage, NEW)[1:]}
    storage.replace(BASE, storage.read(NEW))
    follow(storage, [add_row(101)], small=content(metadata=changed))
    # All full row groups: the three of adds, one of removes.
    assert len(first & {*groups(storage, NEW)[1:]}) == 4
    file = pq.ParquetFile(io.BytesIO(storage.read(NEW)))
    parsed = [row["add"]["stats_parsed"] for row in file.read().to_pylist() if row["add"]]
    assert sorted(stats["numRecords"] for stats in parsed) == [*range(30), 100, 101]


def test_a_checkpoint_of_another_writer_is_written_anew(
    storage: MemoryStorage, copies: list[int]
) -> None:
    table = pq.read_table(io.BytesIO(storage.read(BASE)))
    for settings in ({"compression": "snappy"}, {"compression": "gzip", "row_group_size": 7}):
        sink = io.BytesIO()
        pq.write_table(table, sink, **settings)
        storage.replace(BASE, sink.getvalue())
        result = follow(storage, [add_row(100)], [remove_row(0, path=add_row(4)["path"])])
        assert not copies
        assert paths(storage, "add") == added(*(n for n in range(30) if n != 4), 100)
        assert result.num_adds == 30


def parts_of(storage: MemoryStorage, numbers: list[list[int]]) -> MultipartCheckpoint:
    """The row groups of the checkpoint dealt out to parts."""
    data, files = storage.read(BASE), []
    stored = parse_stored_file(data)
    for part, chosen in enumerate(numbers, 1):
        sink = io.BytesIO()
        file = StitchedFile(sink)
        for number in chosen:
            group = stored.groups[number]
            file.append(stored, group, data[group.start : group.start + group.length])
        file.close()
        path = f"_delta_log/{7:020}.checkpoint.{part:010}.{len(numbers):010}.parquet"
        storage.replace(path, sink.getvalue())
        files.append(FileInfo(path, len(sink.getvalue()), 0))
    return MultipartCheckpoint(7, tuple(files))


def test_parts_are_copied_from_each(storage: MemoryStorage) -> None:
    base = parts_of(storage, [[1, 4], [0, 2], [3]])
    follow(storage, [add_row(100)], [remove_row(0, path=add_row(15)["path"])], base=base)
    assert kept(storage) == 3
    assert paths(storage, "add") == added(*(n for n in range(30) if n != 15), 100)


def test_some_parts_may_be_of_another_writer(storage: MemoryStorage, copies: list[int]) -> None:
    base = parts_of(storage, [[0, 1, 2], [3, 4]])
    sink = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(storage.read(base.parts[1].path))), sink)
    storage.replace(base.parts[1].path, sink.getvalue())
    size = len(sink.getvalue())
    base = MultipartCheckpoint(7, (base.parts[0], FileInfo(base.parts[1].path, size, 0)))
    follow(storage, [add_row(100)], base=base)
    assert sorted(copies) == [1, 2]
    assert paths(storage, "add") == added(*range(30), 100)
    assert paths(storage, "remove") == paths(storage, "remove", BASE)


def test_adds_and_removes_in_one_row_group_are_told_apart(storage: MemoryStorage) -> None:
    # As we never write it, but with our settings.
    data = pq.read_table(io.BytesIO(storage.read(BASE)))
    encoder = RowEncoder(data.schema)
    storage.replace(BASE, bytes(encoder._content(data)))
    follow(storage, [add_row(100)])
    assert paths(storage, "add") == added(*range(30), 100)
    assert len(paths(storage, "remove")) == 10


@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize("touched", [False, True])
def test_damage_is_not_copied(storage: MemoryStorage, group: int, touched: bool) -> None:
    whole = storage.read(BASE)
    stored = parse_stored_file(whole).groups[group]
    found: list[CorruptLogError] = []
    for place in range(stored.start, stored.start + stored.length, stored.length // 12):
        damaged = bytearray(whole)
        damaged[place] ^= 0x55
        storage.replace(BASE, bytes(damaged))
        gone = [remove_row(0, path=add_row(5)["path"])] if touched else []
        try:
            follow(storage, removes=gone)
        except CorruptLogError as error:
            found.append(error)
            assert not any(info.path == NEW for info in storage.list("_delta_log"))
        else:
            # It lay where nobody reads: in the columns of other kinds, which are made anew.
            assert paths(storage, "add") == added(*(n for n in range(30) if n != 5 or not touched))
            storage.delete([NEW])
    assert len(found) >= 3
    assert {error.facts["path"] for error in found} == {BASE}


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[:-100],
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data[:-2000] + bytes(1000) + data[-1000:],
        lambda data: b"x" * len(data),
    ],
)
def test_a_damaged_file_is_told_of(
    storage: MemoryStorage, damage: Callable[[bytes], bytes]
) -> None:
    storage.replace(BASE, damage(storage.read(BASE)))
    with pytest.raises(CorruptLogError, match=r"00007\.checkpoint\.parquet is damaged"):
        follow(storage)
    assert [info.path for info in storage.list("_delta_log")] == [BASE]


def test_a_base_that_is_gone_is_told_of(storage: MemoryStorage) -> None:
    base = base_of(storage)
    storage.delete([BASE])
    with pytest.raises(ObjectNotFoundError, match=r"00007\.checkpoint\.parquet"):
        follow(storage, base=base)
    assert list(storage.list("_delta_log")) == []


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        (ExpectedFiles(30), "hold 31 live files, and the version has 30"),
        (ExpectedFiles(31, 5), "5$|5\\."),
    ],
)
def test_nothing_is_published_that_another_counted_otherwise(
    storage: MemoryStorage, expected: ExpectedFiles, message: str
) -> None:
    with pytest.raises(InvalidTableError, match=message):
        follow(storage, [add_row(100)], expected=expected)
    assert [info.path for info in storage.list("_delta_log")] == [BASE]


def test_rows_that_get_lost_on_the_way_are_noticed(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = classic_reuse.Judge._encoded

    def lossy(self: Any, ours: Any, kept: Any) -> Any:
        return encoded(self, ours, pa.chunked_array([[False] + [True] * (len(kept) - 1)]))

    monkeypatch.setattr(classic_reuse.Judge, "_encoded", lossy)
    with pytest.raises(InvalidTableError, match=r"must hold 29 adds of .* would hold 29 adds of"):
        follow(storage, removes=[remove_row(0, path=add_row(15)["path"])])
    assert [info.path for info in storage.list("_delta_log")] == [BASE]


@pytest.mark.parametrize(
    ("form", "sidecars", "inline"),
    [("parquet", False, True), ("json", False, False), ("parquet", True, False)],
)
def test_what_can_be_a_base(form: Any, sidecars: bool, inline: bool) -> None:
    storage = memory()
    name = f"_delta_log/{7:020}.checkpoint.{'0' * 8}-0000-0000-0000-{'0' * 12}.{form}"
    checkpoint = V2Checkpoint(7, name, form, name, 1, 0)
    actions: list[tuple[str, dict[str, Any]]] = [("checkpointMetadata", {"version": 7})]
    if sidecars:
        actions.append(("sidecar", {"path": "s", "sizeInBytes": 1, "modificationTime": 1}))
    reader = open_checkpoint(storage, checkpoint, table="t", actions=actions)
    assert has_files_inline(checkpoint, reader) == inline


def checkpointed(root: Path) -> CheckpointWritten:
    """An incremental checkpoint of the newest version of a table on disk."""
    delta = DeltaTable(str(root))
    snapshot = delta.snapshot()
    segment = snapshot.segment
    assert segment.checkpoint is not None
    small = NonFileContent(
        snapshot.protocol, snapshot.metadata, tuple(snapshot.transactions.values()), ()
    )
    return write_incremental_classic(
        delta.storage,
        small,
        segment.checkpoint,
        SegmentCommits(delta.storage, segment.plan(), table=segment.table).files(None),
        oldest_tombstone_ms=0,
        version=snapshot.version,
        table=snapshot.table,
        replaces=True,
    )


@pytest.mark.parametrize("foreign", [False, True])
def test_deltalake_reads_what_was_stitched_and_its_own_checkpoints_are_bases(
    tmp_path: Path, foreign: bool
) -> None:
    root = write_table(tmp_path / "t", [add(f"f{n}.parquet") for n in range(40)])
    if foreign:
        deltalake.DeltaTable(root).create_checkpoint()
    else:
        DeltaTable(str(root)).checkpoint()
    live = {f"f{n}.parquet" for n in range(40)}
    for version in range(1, 6):
        new = [f"g{version}-{n}.parquet" for n in range(version)]
        gone = f"f{7 * version}.parquet"
        write_commit(root, version, *map(add, new), remove(gone))
        live = (live | {*new}) - {gone}
        written = checkpointed(root)
        assert written.num_adds == len(live)
        for old in (root / "_delta_log").glob(f"*{version - 1}.*"):
            old.unlink()
        (root / "_delta_log" / "_last_checkpoint").unlink(missing_ok=True)
        peer = deltalake.DeltaTable(root)
        assert peer.version() == version
        assert {Path(uri).name for uri in peer.file_uris()} == live
        ours = DeltaTable(str(root)).snapshot().files(columns=["path"])["path"]
        assert {*ours.to_pylist()} == live
