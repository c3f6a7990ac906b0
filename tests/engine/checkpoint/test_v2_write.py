from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import pyarrow.parquet as pq
import pytest

from airflow_delta.engine.checkpoint.action_rows import FileActionTable
from airflow_delta.engine.checkpoint.sidecars import layout as sidecar_layout
from airflow_delta.engine.checkpoint.v2_write import (
    CheckpointTarget,
    publish_top_level,
    write_v2_checkpoint,
)
from airflow_delta.engine.checkpoint.write import ExpectedFiles, NonFileContent, Written
from airflow_delta.engine.errors import (
    CorruptLogError,
    InvalidTableError,
    NothingWrittenError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
)
from airflow_delta.engine.log.files import checkpoint_path, v2_checkpoint_path
from airflow_delta.engine.model.actions import DomainMetadata, Sidecar, Txn
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.engine.checkpoint.contents import (
    METADATA,
    PROTOCOL_V2,
    add_row,
    add_table,
    memory,
    remove_row,
    remove_table,
)
from tests.faulty_storage import Fault, FaultyStorage, How

JSON = v2_checkpoint_path(7, "80a083e8-7026-4e79-81be-64bd76c43a11", "json")
PARQUET = v2_checkpoint_path(7, "80a083e8-7026-4e79-81be-64bd76c43a11", "parquet")
CLASSIC = checkpoint_path(7)
SMALL = NonFileContent(
    PROTOCOL_V2,
    METADATA,
    (Txn("app", 5, 1_700_000_000_000), Txn("other", -1)),
    (DomainMetadata("d", "{}"), DomainMetadata("gone", "", removed=True)),
)
FILES: list[FileActionTable] = [
    ("add", add_table([add_row(3), add_row(1)])),
    ("remove", remove_table([remove_row(8)])),
    ("add", add_table([add_row(2)])),
]
# Delta Spark names them so, with the number of parts, which we don't know in advance, in between.
NAME = r"\d{20}\.checkpoint\.\d{10}\.[0-9a-f-]{36}\.parquet"


def write(
    storage: Any, path: str = JSON, files: Any = FILES, *, replaces: bool = False, **options: Any
) -> Written:
    target = CheckpointTarget(path, 7, "t", replaces)
    return write_v2_checkpoint(storage, SMALL, files, target, **options)


def top_level(storage: MemoryStorage, path: str = JSON) -> list[dict[str, Any]]:
    return [json.loads(line) for line in storage.read(path).decode().splitlines()]


def sidecars(storage: MemoryStorage) -> dict[str, Any]:
    """The tables of the sidecars by name, as pyarrow reads them."""
    directory = "_delta_log/_sidecars"
    return {
        info.name: pq.read_table(io.BytesIO(storage.read(info.path)))
        for info in storage.list(directory)
    }


def kinds_of(rows: list[dict[str, Any]]) -> list[str]:
    return [kind for row in rows for kind, value in row.items() if value is not None]


def test_a_top_level_in_json_holds_all_but_the_files() -> None:
    storage = memory()
    write(storage)
    lines = top_level(storage)
    kinds = kinds_of(lines)
    assert kinds[0] == "checkpointMetadata"
    assert sorted(kinds[1:]) == [
        "domainMetadata",
        "metaData",
        "protocol",
        "sidecar",
        "sidecar",
        "txn",
        "txn",
    ]
    by_kind = {kind: line[kind] for line in lines for kind in line}
    assert by_kind["checkpointMetadata"]["version"] == 7
    assert by_kind["protocol"] == {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["v2Checkpoint"],
        "writerFeatures": ["v2Checkpoint"],
    }
    assert by_kind["domainMetadata"] == {"domain": "d", "configuration": "{}", "removed": False}
    assert by_kind["txn"] == {"appId": "other", "version": -1}


def test_sidecars_hold_only_files_and_each_only_one_kind() -> None:
    storage = memory()
    write(storage)
    named = [line["sidecar"] for line in top_level(storage) if "sidecar" in line]
    found = sidecars(storage)
    assert sorted(found) == sorted(sidecar["path"] for sidecar in named)
    assert all(re.fullmatch(NAME, name) for name in found)
    assert all(table.column_names == ["add", "remove"] for table in found.values())
    rows = {name: table.to_pylist() for name, table in found.items()}
    assert sorted(sorted(set(kinds_of(r))) for r in rows.values()) == [["add"], ["remove"]]
    adds = [row["add"] for r in rows.values() for row in r if row["add"]]
    assert [add["path"] for add in adds] == [add_row(n)["path"] for n in (1, 2, 3)]
    assert not any(add["dataChange"] for add in adds)
    for sidecar in named:
        size = storage.head(f"_delta_log/_sidecars/{sidecar['path']}").size
        assert sidecar["sizeInBytes"] == size
    tags = {s["tags"]["numAdds"]: s["tags"] for s in named}
    assert (tags["3"]["numRemoves"], tags["3"]["addsSizeSum"]) == ("0", "306")
    assert tags["0"]["numRemoves"] == "1"


@pytest.mark.parametrize("path", [PARQUET, CLASSIC])
def test_a_top_level_in_parquet_holds_the_same(path: str) -> None:
    storage = memory()
    write(storage)
    named = [Sidecar.from_json(x["sidecar"], "") for x in top_level(storage) if "sidecar" in x]
    publish_top_level(storage, SMALL, named, CheckpointTarget(path, 7, "t"))
    rows = pq.read_table(io.BytesIO(storage.read(path))).to_pylist()
    assert [compact(row) for row in rows] == top_level(storage)


def compact(value: Any) -> Any:
    """A row as JSON has it: maps as objects, nulls left out."""
    if isinstance(value, dict):
        return {
            name: dict(item)
            if name in ("tags", "configuration", "options") and isinstance(item, list)
            else compact(item)
            for name, item in value.items()
            if item is not None
        }
    return value


def test_the_result_tells_what_was_written() -> None:
    storage = memory()
    result = write(storage, expected=ExpectedFiles(3, 306))
    sizes = [info.size for info in storage.walk("_delta_log")]
    checkpoint = result.checkpoint
    assert (checkpoint.version, checkpoint.path) == (7, JSON)
    assert checkpoint.size_in_bytes == result.bytes_written == sum(sizes)
    assert (checkpoint.num_adds, checkpoint.adds_size_sum) == (3, 306)
    # Lines of the top level, and the four rows of the sidecars.
    assert checkpoint.num_actions == len(top_level(storage)) + 4
    assert (result.sidecars_written, result.sidecars_reused) == (2, 0)


def test_a_table_without_files_needs_no_sidecar() -> None:
    storage = memory()
    result = write(storage, files=[("add", add_table([]))])
    assert (result.sidecars_written, result.checkpoint.num_adds) == (0, 0)
    assert kinds_of(top_level(storage))[0] == "checkpointMetadata"


def test_the_top_level_comes_last() -> None:
    storage = FaultyStorage(memory())
    write(storage)
    changes = [call.path for call in storage.calls if call.operation in ("writer", "replace")]
    assert len(changes) == 3
    assert changes.index(JSON) == 2


def test_what_the_hint_repeats_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidecar_layout, "SIDECAR_ROWS", 1)
    storage = memory()
    hint = write(storage).checkpoint.hint_content
    lines = top_level(storage)
    assert hint is not None
    assert (hint["path"], hint["sizeInBytes"]) == (JSON.rpartition("/")[2], storage.head(JSON).size)
    assert hint["nonFileActions"] == [line for line in lines if "sidecar" not in line]
    assert hint["sidecarFiles"] == [line["sidecar"] for line in lines if "sidecar" in line]
    many = [("add", add_table([add_row(n) for n in range(31)]))]
    hint = write(memory(), files=many).checkpoint.hint_content
    assert hint is not None
    assert "sidecarFiles" not in hint
    assert "nonFileActions" in hint
    # Only of a name with a UUID can a reader know that it is the file meant.
    assert write(memory(), path=CLASSIC).checkpoint.hint_content is None


def failing() -> Iterator[FileActionTable]:
    yield from FILES
    raise CorruptLogError("the base is damaged")


def test_nothing_is_left_where_reading_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidecar_layout, "_RUN_BYTES", 1)  # a sidecar for each table
    storage = memory()
    with pytest.raises(CorruptLogError, match="the base is damaged"):
        write(storage, files=failing())
    assert list(storage.walk("")) == []


def test_nothing_is_left_that_does_not_add_up() -> None:
    storage = memory()
    with pytest.raises(InvalidTableError, match="would hold 3 live files, and the version has 4"):
        write(storage, expected=ExpectedFiles(4))
    assert list(storage.walk("")) == []


def test_nothing_is_left_where_an_add_lacks_a_required_field() -> None:
    storage = memory()
    with pytest.raises(CorruptLogError, match=r"version 7 .*'add'.*size of"):
        write(storage, files=[("add", add_table([add_row(1), add_row(2, size=None)]))])
    assert list(storage.walk("")) == []


@pytest.mark.parametrize("how", [How.FAIL, How.LOSE_ANSWER])
def test_nothing_is_left_where_a_sidecar_fails(how: How) -> None:
    storage = memory()
    faulty = FaultyStorage(storage, Fault("writer", nth=2, how=how))
    with pytest.raises(StorageError, match="the connection broke"):
        write(faulty)
    assert list(storage.walk("")) == []


def test_sidecars_stay_where_the_top_level_may_be_there() -> None:
    storage = memory()
    faulty = FaultyStorage(storage, Fault("replace", how=How.LOSE_ANSWER))
    with pytest.raises(StorageError, match="the connection broke"):
        write(faulty)
    named = [line["sidecar"]["path"] for line in top_level(storage) if "sidecar" in line]
    assert sorted(named) == sorted(sidecars(storage))


def test_a_sidecar_that_is_not_whole_is_found_out() -> None:
    """A store that reports a size other than what was written."""
    storage = memory()

    def damage() -> None:
        (info,) = storage.list("_delta_log/_sidecars")
        storage.replace(info.path, storage.read(info.path)[:-9])

    faulty = FaultyStorage(storage, Fault("head", meanwhile=damage))
    with pytest.raises(StorageError, match=r"_sidecars/.* bytes, expected") as caught:
        write(faulty, files=FILES[:1])
    assert caught.value.table == "t"
    assert list(storage.walk("")) == []


def test_a_sidecar_that_is_lost_is_no_missing_part_of_the_log() -> None:
    """Whoever meets an `ObjectNotFoundError` looks for another base."""
    storage = memory()

    def lose() -> None:
        storage.delete(info.path for info in storage.list("_delta_log/_sidecars"))

    faulty = FaultyStorage(storage, Fault("head", meanwhile=lose))
    with pytest.raises(StorageError, match=r"the store lost .* sidecar _delta_log/_sidecars/") as e:
        write(faulty, files=FILES[:1])
    assert not isinstance(e.value, ObjectNotFoundError)


class Refusing(MemoryStorage):
    """A store that refuses top levels, and says so."""

    def create(self, path: str, data: bytes) -> None:
        raise NothingWrittenError("no permission", path=path, operation="create")

    replace = create


@pytest.mark.parametrize("path", [JSON, PARQUET, CLASSIC])
def test_nothing_is_left_where_the_top_level_surely_is_not_there(path: str) -> None:
    storage = Refusing("memory://refusing")
    with pytest.raises(NothingWrittenError):
        write(storage, path)
    assert list(storage.walk("")) == []


@pytest.mark.parametrize("path", [JSON, PARQUET])
@pytest.mark.parametrize("taken", [True, False])
def test_the_hint_repeats_nothing_of_a_top_level_that_others_may_replace(
    path: str, taken: bool
) -> None:
    """Two writers of one damaged checkpoint: the hint of one must not name the other's sidecars."""
    storage = memory()
    if taken:
        storage.create(path, b"damaged")
    hint = write(storage, path, replaces=taken).checkpoint.hint_content
    assert hint is not None
    names = {"path", "sizeInBytes", "modificationTime"}
    assert hint.keys() == (names if taken else names | {"nonFileActions", "sidecarFiles"})
    assert hint["sizeInBytes"] == storage.head(path).size != len(b"damaged")


class Resending(MemoryStorage):
    """A store whose answers are lost, so that its client sends each request again."""

    def create(self, path: str, data: bytes) -> None:
        super().create(path, data)
        super().create(path, data)

    @contextmanager
    def writer(self, path: str, *, overwrite: bool) -> Iterator[BinaryIO]:
        with super().writer(path, overwrite=overwrite) as file:
            yield file
        with super().writer(path, overwrite=overwrite) as file:
            file.write(self.read(path))


@pytest.mark.parametrize("path", [JSON, PARQUET, CLASSIC])
def test_requests_that_are_sent_twice_are_no_failure(path: str) -> None:
    """Of sidecars neither; and the hint repeats what it does of one that is sent once."""
    storage = Resending(f"memory://{path}")
    hint = write(storage, path).checkpoint.hint_content
    assert len(sidecars(storage)) == 2
    once = write(memory(), path).checkpoint.hint_content
    assert (hint is None) == (path == CLASSIC)
    assert (hint or {}).keys() == (once or {}).keys()


def test_the_top_level_of_another_writer_is_kept() -> None:
    """It holds the same, but names sidecars of its own."""
    storage = memory()
    write(storage, CLASSIC)
    theirs = {info.path: storage.read(info.path) for info in storage.walk("")}
    with pytest.raises(ObjectExistsError, match="there is such an object"):
        write(storage, CLASSIC)
    assert {info.path: storage.read(info.path) for info in storage.walk("")} == theirs
