"""FIFOs, sockets and endless files in a table's directory: nothing waits for them, nothing reads them."""

from __future__ import annotations

import json
import os
import signal
import socket
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import CorruptLogError, DeltaError, DeltaWarning
from airflow_delta.engine.log import last_checkpoint, version_checksum
from tests.log_builder import add, commit_path, write_table

_LONGEST_S = 30
HUGE = 1 << 40
"""Of a file with holes: it takes no place on the disk, and reading it takes as long as it says."""


@pytest.fixture(autouse=True)
def deadline() -> Iterator[None]:
    """What waits for a FIFO, or reads all of a device, does so for ever: this ends it."""

    def late(*_: object) -> None:
        pytest.fail("it waits, or reads, without end")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, _LONGEST_S)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A table of three versions and as many files."""
    return write_table(tmp_path / "t", [add("a")], [add("b")], [add("c")])


def fifo(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        descriptor = os.open(path.parent, os.O_PATH)
        server.bind(f"/proc/self/fd/{descriptor}/{path.name}")
        os.close(descriptor)


def endless_link(path: Path) -> None:
    path.symlink_to("/dev/zero")


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, HUGE)


KINDS = [fifo, unix_socket, endless_link, huge]


def peak_mb(use: Callable[[], object]) -> int:
    """The memory that Python takes at most for something, in megabytes."""
    tracemalloc.start()
    try:
        use()
        return tracemalloc.get_traced_memory()[1] >> 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("make", KINDS)
def test_a_hint_that_is_no_file_is_ignored_with_a_warning(
    root: Path, make: Callable[[Path], None]
) -> None:
    hint = root / "_delta_log" / "_last_checkpoint"
    make(hint)

    def use() -> None:
        table = DeltaTable(str(root))
        with pytest.warns(DeltaWarning, match=r"_last_checkpoint is ignored, because it (is|has)"):
            assert table.snapshot().num_files == 3
        with pytest.warns(DeltaWarning, match="_last_checkpoint is ignored"):
            assert table.latest_version() == 2
        assert "hint-damaged" in {found.code for found in table.check(depth="log").findings}

    assert peak_mb(use) < 50
    with pytest.warns(DeltaWarning, match="_last_checkpoint is ignored"):
        DeltaTable(str(root)).checkpoint()
    assert json.loads(hint.read_text())["version"] == 2
    assert not hint.is_symlink()


@pytest.mark.parametrize("make", KINDS)
def test_a_checksum_that_is_no_file_is_no_checksum(
    root: Path, make: Callable[[Path], None]
) -> None:
    make(root / "_delta_log" / f"{2:020}.crc")

    def use() -> None:
        table = DeltaTable(str(root))
        assert table.snapshot().num_files == 3
        with pytest.raises(CorruptLogError, match=r"the version checksum can't be read: .*\.crc"):
            table.snapshot().verify()
        assert "checksum-damaged" in {found.code for found in table.check(depth="log").findings}
        with pytest.warns(DeltaWarning, match=r"isn't compared with .*\.crc"):
            table.checkpoint()

    assert peak_mb(use) < 100


@pytest.mark.parametrize("make", KINDS)
def test_a_note_of_the_last_vacuum_that_is_no_file_is_none(
    root: Path, make: Callable[[Path], None]
) -> None:
    make(root / "_delta_log" / "_last_vacuum_info")

    def use() -> None:
        plan = DeltaTable(str(root)).vacuum(mode="lite", dry_run=True).plan
        assert plan.commits.start == 0

    assert peak_mb(use) < 50


@pytest.mark.parametrize("make", [fifo, unix_socket, endless_link])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_commit_that_is_no_file_is_neither_waited_for_nor_overlooked(
    root: Path, make: Callable[[Path], None], version: int
) -> None:
    commit_path(root, version).unlink(missing_ok=True)
    make(commit_path(root, version))
    table = DeltaTable(str(root))
    for use in (table.snapshot, table.history, table.checkpoint, table.vacuum):
        with pytest.raises(DeltaError, match=f"{version:020}.json") as error:
            use()
        assert error.value.table == str(root)


@pytest.mark.parametrize("make", [fifo, unix_socket, endless_link])
def test_no_vacuum_waits_for_what_is_no_file(root: Path, make: Callable[[Path], None]) -> None:
    make(root / "a")
    make(root / "orphan")
    table = DeltaTable(str(root))
    result = table.vacuum(retention_hours=0, enforce_retention=False)
    assert result.num_deleted == 0
    assert {path.name for path in root.iterdir()} == {"_delta_log", "a", "orphan"}
    findings = {found.code for found in table.check(depth="files").findings}
    assert findings & {"file-missing", "unreadable"}, findings


def test_what_the_engine_writes_it_also_reads(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hint that would be too large is shortened, and such a checksum isn't written."""
    monkeypatch.setattr(last_checkpoint, "_MOST_BYTES", 1000)
    monkeypatch.setattr(version_checksum, "_MOST_BYTES", 10)
    hint = last_checkpoint.LastCheckpointHint(2, 1, v2_checkpoint={"path": "x" * 1000})
    storage = DeltaTable(str(root)).storage
    assert last_checkpoint.write_last_checkpoint(storage, hint)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = last_checkpoint.read_last_checkpoint(storage)
    assert found is not None
    assert (found.version, found.v2_checkpoint) == (2, None)
    told = version_checksum.VersionChecksum(table_size_bytes=1, num_files=1)
    assert not version_checksum.write_checksum(storage, 1, told)
    assert version_checksum.read_checksum(storage, 1) is None
