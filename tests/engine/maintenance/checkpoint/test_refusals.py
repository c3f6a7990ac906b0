"""What can't be checkpointed is refused with an error that says why, and nothing is left behind."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import (
    CorruptLogError,
    DeltaError,
    DeltaWarning,
    InvalidArgumentError,
    InvalidTableError,
    StorageError,
    TableNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from airflow_delta.engine.log.files import checkpoint_path, checksum_path
from tests.faulty_storage import Fault, FaultyStorage, How
from tests.laws.histories import protocol
from tests.log_builder import PROTOCOL, add, metadata, remove
from tests.table_builder import (
    FAR_FUTURE_MS,
    Action,
    Files,
    MemoryTable,
    checksum,
    classic_checkpoint,
    commit_file,
    commits,
    hint,
    lines,
    state_of,
    states,
    v2_checkpoint,
)

FUTURE = "featureOfTheFuture"
V2 = protocol({"v2Checkpoint"})
HISTORY: list[list[Action]] = [
    [V2, metadata(), *(add(name) for name in "abcd")],
    [add("e")],
    [remove("a", deletionTimestamp=FAR_FUTURE_MS), add("f")],
]
LAST = len(HISTORY) - 1
STATES = [state.visible() for state in states(HISTORY)]
POLICIES: list[Any] = ["classic", "v2"]


def with_feature(name: str) -> Action:
    known = V2["protocol"]
    return {"protocol": {**known, "writerFeatures": [*known["writerFeatures"], name]}}


def refused(
    files: Files, error: type[DeltaError], match: str, work: Callable[[DeltaTable], object]
) -> DeltaError:
    """The error of what doesn't succeed and changes nothing."""
    with MemoryTable(files) as table, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeltaWarning)
        with pytest.raises(error, match=match) as caught:
            work(table.delta())
        assert table.files() == files
        assert caught.value.table == table.uri
        return caught.value


# The protocol of the version decides.


@pytest.mark.parametrize("policy", POLICIES)
def test_a_checkpoint_is_refused_for_an_unknown_writer_feature(policy: Any) -> None:
    files = commits([*HISTORY, [with_feature(FUTURE)]])
    error = refused(
        files, UnsupportedFeatureError, FUTURE, lambda table: table.checkpoint(policy=policy)
    )
    assert error.features == (FUTURE,)
    # Before that there was none.
    with MemoryTable(files) as table:
        assert table.delta().checkpoint(LAST, policy=policy).written


@pytest.mark.parametrize("policy", POLICIES)
def test_a_writer_feature_that_was_dropped_later(policy: Any) -> None:
    files = commits([[with_feature(FUTURE), *HISTORY[0][1:]], *HISTORY[1:], [V2]])
    for version in range(LAST + 1):
        refused(
            files,
            UnsupportedFeatureError,
            FUTURE,
            lambda table, version=version: table.checkpoint(version, policy=policy),
        )
    with MemoryTable(files) as table:
        assert table.delta().checkpoint(policy=policy).written


def test_a_writer_version_of_the_future() -> None:
    history = [
        [
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 8, "writerFeatures": []}},
            metadata(),
        ]
    ]
    refused(
        commits(history),
        (UnsupportedFeatureError, InvalidTableError),  # type: ignore[arg-type]
        "writer version 8",
        DeltaTable.checkpoint,
    )


def test_v2_without_the_feature() -> None:
    files = commits([[PROTOCOL, *HISTORY[0][1:]], *HISTORY[1:]])
    refused(
        files,
        UnsupportedFeatureError,
        "v2Checkpoint.*version 2 lacks",
        lambda table: table.checkpoint(policy="v2"),
    )


def test_v2_before_the_feature_was_there() -> None:
    files = commits([[PROTOCOL, *HISTORY[0][1:]], *HISTORY[1:], [V2]])
    refused(
        files,
        UnsupportedFeatureError,
        "v2Checkpoint.*version 1 lacks",
        lambda table: table.checkpoint(1, policy="v2"),
    )
    with MemoryTable(files) as table:
        assert table.delta().checkpoint(policy="v2").kind == "v2"


def test_a_policy_that_is_none() -> None:
    unknown: Any = "v3"
    refused(
        commits(HISTORY),
        InvalidArgumentError,
        "v3.*expected 'classic' or 'v2'",
        lambda table: table.checkpoint(policy=unknown),
    )


# Versions and tables that aren't there.


@pytest.mark.parametrize("policy", POLICIES)
def test_a_version_of_the_future(policy: Any) -> None:
    error = refused(
        commits(HISTORY),
        VersionNotFoundError,
        "version 3",
        lambda table: table.checkpoint(LAST + 1, policy=policy),
    )
    assert (error.version, error.latest) == (LAST + 1, LAST)


def test_a_version_whose_commits_cleanup_has_deleted_is_refused() -> None:
    files = {**commits(HISTORY), **classic_checkpoint(STATES[1], 1), **hint(1)}
    del files[commit_file(0)]
    error = refused(
        files, VersionNotFoundError, "version 0", lambda table: table.checkpoint(version=0)
    )
    assert (error.version, error.earliest) == (0, 1)


@pytest.mark.parametrize("version", [None, 0])
def test_a_table_that_is_gone(version: int | None) -> None:
    refused({}, TableNotFoundError, "no Delta table", lambda table: table.checkpoint(version))
    refused({"part-0.parquet": b""}, TableNotFoundError, "no Delta", DeltaTable.checkpoint)


def test_a_table_that_vanishes_after_planning() -> None:
    """What was read when it was opened isn't enough."""
    with MemoryTable(commits(HISTORY)) as table:
        delta = table.delta()
        gone = [commit_file(version) for version in range(LAST + 1)]
        vanish = Fault("read_many", 2, meanwhile=lambda: table.storage.delete(gone))
        delta.__dict__["storage"] = FaultyStorage(table.storage, vanish)
        with pytest.raises((TableNotFoundError, StorageError)):
            delta.checkpoint()
        assert table.files() == {}


# Damage.


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "broken", [b"", b"{\n", b'{"add":{"path":"x"}}\n', b'{"add":7}\n', b"\xff"]
)
def test_a_corrupt_commit(policy: Any, broken: bytes) -> None:
    files = {**commits(HISTORY), commit_file(1): broken}
    error = refused(
        files,
        CorruptLogError,
        rf"{1:020}|version 2 .* size of 'x'",
        lambda table: table.checkpoint(policy=policy),
    )
    assert error.version in {1, LAST}


def test_a_commit_that_is_missing() -> None:
    files = commits(HISTORY)
    del files[commit_file(1)]
    refused(files, CorruptLogError, "commit 1 is missing", DeltaTable.checkpoint)


BASES: dict[str, Callable[[], Files]] = {
    "classic": lambda: classic_checkpoint(STATES[1], 1),
    "v2": lambda: v2_checkpoint(STATES[1], 1, form="json", sidecars=2),
}


@pytest.mark.parametrize("cut", [1, 4, 0.5, -1])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("base", BASES)
def test_a_corrupt_previous_checkpoint(base: str, policy: Any, cut: float) -> None:
    """With the commits before it, it's as good as none; without them nothing can be said."""
    made = BASES[base]()
    path = min(path for path in made if path.endswith(".parquet"))  # a sidecar, if it has some
    size = len(made[path])
    broken = made[path][: int(cut * size) if isinstance(cut, float) else cut]
    files = {**commits(HISTORY), **made, **hint(1), path: broken}
    with MemoryTable(files) as table:
        with pytest.warns(DeltaWarning, match="can't be used"):
            assert table.delta().checkpoint(policy=policy).written
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert state_of(table.delta().snapshot()) == STATES[LAST]
    del files[commit_file(0)]
    refused(
        files,
        CorruptLogError,
        "truncated|damaged",
        lambda table: table.checkpoint(policy=policy),
    )


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("previous", [None, *POLICIES])
def test_other_counts_than_expected_are_an_error(policy: Any, previous: Any) -> None:
    """Whether all is written or just what has changed; only sidecars that nobody names may stay."""
    with MemoryTable(commits(HISTORY)) as table:
        if previous is not None:
            table.delta().checkpoint(1, policy=previous)
        table.put(checksum(STATES[0], LAST))  # of another version
        before = table.files()
        with pytest.raises(InvalidTableError, match="was not written: it would hold 5") as caught:
            table.delta().checkpoint(policy=policy)
        assert caught.value.version == LAST
        assert table.files() == before


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("previous", [None, *POLICIES])
@pytest.mark.parametrize("broken", [b"", b"{", b"[]", b'{"numFiles":5}'])
def test_an_unreadable_version_checksum_is_a_warning(
    policy: Any, previous: Any, broken: bytes
) -> None:
    """The checkpoint is written, with a warning that its counts were not compared."""
    path = checksum_path(LAST)
    with MemoryTable(commits(HISTORY)) as table:
        if previous is not None:
            table.delta().checkpoint(1, policy=previous)
        table.put({path: broken})
        with pytest.warns(
            DeltaWarning, match=rf"version 2 isn't compared with {path} \("
        ) as caught:
            assert table.delta().checkpoint(policy=policy).num_files == len(STATES[LAST].files)
        assert len(caught) == 1
        assert "delete it" in str(caught[0].message)
        assert table.storage.read(path) == broken
        assert state_of(table.delta().snapshot()) == STATES[LAST]


# Stores that don't take anything.


@pytest.mark.parametrize("how", [How.FULL, How.FAIL])
@pytest.mark.parametrize("previous", [None, *POLICIES])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_store_that_takes_nothing(policy: Any, previous: Any, how: How) -> None:
    with MemoryTable(commits(HISTORY)) as table:
        if previous is not None:
            table.delta().checkpoint(1, policy=previous)
        before = table.files()
        delta = table.delta()
        operations = ("create", "replace", "file.new", "writer", "delete")
        delta.__dict__["storage"] = FaultyStorage(
            table.storage, *(Fault(operation, 0, how) for operation in operations)
        )
        with pytest.raises(StorageError, match=r"No space left|connection broke") as caught:
            delta.checkpoint(policy=policy)
        assert caught.value.table == table.uri
        assert table.files() == before
        assert state_of(table.delta().snapshot()) == STATES[LAST]


def test_a_compaction_in_a_store_that_takes_nothing() -> None:
    with MemoryTable(commits(HISTORY)) as table:
        delta = table.delta()
        delta.__dict__["storage"] = FaultyStorage(table.storage, Fault("create", 0, How.FULL))
        with pytest.raises(StorageError, match="No space left"):
            delta.compact_log(0, LAST)
        assert table.files() == commits(HISTORY)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    root = tmp_path / "table"
    (root / "_delta_log").mkdir(parents=True)
    for path, content in commits(HISTORY).items():
        (root / path).write_bytes(content)
    return root


def below(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_directory_that_takes_nothing(
    policy: Any, number: int, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an error of the operating system; permissions wouldn't do, as root may do anything."""

    def opened(path: str, flags: int, *rest: Any, **options: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(number, os.strerror(number), path)
        return really(path, flags, *rest, **options)

    really = os.open
    monkeypatch.setattr(os, "open", opened)
    before = below(directory)
    with pytest.raises(StorageError, match=os.strerror(number)) as caught:
        DeltaTable(str(directory)).checkpoint(policy=policy)
    assert caught.value.table == str(directory)
    assert below(directory) == before


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Let no file grow beyond a size: the same way through the system as when a disk is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    ("policy", "size"),
    [
        ("classic", 1),
        ("classic", 5_000),
        ("v2", 1),
        ("v2", 5_000),  # enough for the sidecars
    ],
)
def test_a_disk_that_gets_full_in_the_middle(policy: Any, size: int, directory: Path) -> None:
    before = below(directory)
    with room_for(size), pytest.raises(StorageError, match="File too large") as caught:
        DeltaTable(str(directory)).checkpoint(policy=policy)
    assert caught.value.table == str(directory)
    # Sidecars that nobody names, where the top level failed: that may have arrived all the same.
    assert [path for path in below(directory) if path.parent.name != "_sidecars"] == before
    assert DeltaTable(str(directory)).checkpoint(policy=policy).written


def test_a_directory_in_place_of_the_checkpoint(directory: Path) -> None:
    (directory / checkpoint_path(LAST)).mkdir()
    before = below(directory)
    with pytest.raises(StorageError, match="checkpoint"):
        DeltaTable(str(directory)).checkpoint()
    assert below(directory) == before
    shutil.rmtree(directory / checkpoint_path(LAST))
    assert DeltaTable(str(directory)).checkpoint().written


def test_a_line_is_not_lost_to_the_wrong_version() -> None:
    """A checkpoint of an old version doesn't hold what came later."""
    with MemoryTable({**commits(HISTORY), commit_file(LAST + 1): lines([remove("b")])}) as table:
        assert table.delta().checkpoint(LAST).num_files == len(STATES[LAST].files)
        assert state_of(table.delta().snapshot(LAST)) == STATES[LAST]
