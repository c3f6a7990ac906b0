"""What is special about the local file system; the contract itself is in tests/contracts."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from airflow_delta.engine.errors import (
    InvalidArgumentError,
    ObjectExistsError,
    StorageError,
    UnsafeStorageError,
)
from airflow_delta.engine.storage import local
from airflow_delta.engine.storage.base import FileInfo
from airflow_delta.engine.storage.local import LocalStorage


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path / "t"))


def visible(storage: LocalStorage) -> list[str]:
    return [info.path for info in storage.walk("") if not info.name.startswith(".")]


def test_the_root_is_absolute() -> None:
    with pytest.raises(InvalidArgumentError, match="absolute"):
        LocalStorage("relative/t")


@pytest.mark.parametrize(
    ("dying", "published"),
    [
        # In the middle of the content, before the name, and between the name and the tidying up.
        ('file.write(b"half"); file.flush(); die()', False),
        ('file.write(b"whole"); Path.hardlink_to = die', False),
        ('file.write(b"whole"); Path.unlink = die', True),
    ],
)
def test_a_killed_writer_leaves_all_or_nothing(
    storage: LocalStorage, dying: str, published: bool
) -> None:
    program = f"""
        import os, signal
        from pathlib import Path
        from airflow_delta.engine.storage.local import LocalStorage

        def die(*args, **kwargs):
            os.kill(os.getpid(), signal.SIGKILL)

        with LocalStorage({storage.root!r}).writer("log/0.json", overwrite=False) as file:
            {dying}
    """
    project = Path(__file__).parents[3]
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], cwd=project)
    assert killed.returncode == -signal.SIGKILL
    assert visible(storage) == (["log/0.json"] if published else [])
    if published:
        assert storage.read("log/0.json") == b"whole"
        return
    # What is left is found under a hidden name, and in nobody's way.
    (leftover,) = storage.walk("")
    assert leftover.name.startswith(".0.json.")
    assert leftover.name.endswith(".tmp")
    storage.create("log/0.json", b"next")
    assert storage.read("log/0.json") == b"next"


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_without_links_is_refused(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def no_link(self: Path, target: Path) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "hardlink_to", no_link)
    with pytest.raises(UnsafeStorageError, match="hard link"):
        storage.create("log/0.json", b"x")
    assert list(storage.walk("")) == []
    storage.replace("log/_last", b"still works")
    assert storage.read("log/_last") == b"still works"


def test_a_link_that_reports_its_own_name_as_taken_has_won(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # NFS: the answer to the first request was lost, and the client sent it again.
    link = Path.hardlink_to

    def repeated(self: Path, target: Path) -> None:
        link(self, target)
        link(self, target)

    monkeypatch.setattr(Path, "hardlink_to", repeated)
    storage.create("x", b"mine")
    assert storage.read("x") == b"mine"
    with pytest.raises(ObjectExistsError, match="'x'"):
        storage.create("x", b"theirs")


def test_a_file_in_place_of_a_directory_is_no_conflict(storage: LocalStorage) -> None:
    # An ObjectExistsError here would look like a lost race, and be tried again for ever.
    storage.create("log", b"not a directory")
    with pytest.raises(StorageError, match=r"'log/0\.json'") as error:
        storage.create("log/0.json", b"x")
    assert type(error.value) is StorageError


def test_other_failures_tell_operation_path_and_reason(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"create 'd/x' failed: No space left") as error:
        storage.create("d/x", b"x")
    assert (error.value.table, error.value.operation) == (storage.root, "create")


def test_a_full_disk_is_a_failure_of_the_store(storage: LocalStorage) -> None:
    # /dev/full takes no byte, whatever the name that leads there.
    os.makedirs(storage.root)

    def stream() -> None:
        with storage.writer("x", overwrite=True) as file:
            os.dup2(os.open("/dev/full", os.O_WRONLY), file.fileno())
            file.write(b"x")

    with pytest.raises(StorageError, match="replace 'x' failed: No space left"):
        stream()
    assert list(storage.walk("")) == []


def test_a_directory_that_cannot_be_synced_is_borne(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fsync

    def files_only(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", files_only)
    storage.create("d/x", b"x")
    assert storage.read("d/x") == b"x"


def test_the_longest_name_of_a_file_system_can_be_created(storage: LocalStorage) -> None:
    name = "n" * 255
    storage.create(name, b"x")
    assert [info.name for info in storage.list("")] == [name]


def test_files_get_the_permissions_that_the_user_asked_for(storage: LocalStorage) -> None:
    before = os.umask(0o027)
    try:
        storage.create("x", b"x")
    finally:
        os.umask(before)
    assert os.stat(f"{storage.root}/x").st_mode & 0o777 == 0o640


def test_only_regular_files_are_objects(storage: LocalStorage) -> None:
    storage.create("d/file", b"x")
    os.mkfifo(f"{storage.root}/d/pipe")
    os.symlink("nowhere", f"{storage.root}/d/dangling")
    os.symlink("file", f"{storage.root}/d/link")
    assert [info.name for info in storage.list("d")] == ["file", "link"]


def test_walk_stays_out_of_linked_directories(storage: LocalStorage, tmp_path: Path) -> None:
    storage.create("d/file", b"x")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").write_bytes(b"x")
    os.symlink(tmp_path / "outside", f"{storage.root}/d/link")
    assert [info.path for info in storage.walk("")] == ["d/file"]


def test_a_file_deleted_while_listing_is_left_out(storage: LocalStorage) -> None:
    for name in "abc":
        storage.create(name, b"x")
    listing = storage.list("")
    assert next(listing).name == "a"
    storage.delete(["b"])
    assert [info.name for info in listing] == ["c"]


def test_a_deletion_goes_over_what_is_no_file_and_names_what_it_fails_at(
    storage: LocalStorage,
) -> None:
    for path in ("d/file", "first", "last"):
        storage.create(path, b"x")
    too_long = "x" * 300
    with pytest.raises(StorageError, match="delete 'xxx") as e:
        storage.delete(["first", "missing", "d", "d/file/below", too_long, "last"])
    assert (e.value.path, e.value.operation) == (too_long, "delete")
    assert visible(storage) == ["last", "d/file"]


def test_a_late_start_asks_for_late_files_only(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        storage.replace(f"{number:02}", b"")
    asked = []
    original = local._info

    def counting(path: str, status: os.stat_result) -> FileInfo:
        asked.append(path)
        return original(path, status)

    monkeypatch.setattr(local, "_info", counting)
    assert len(list(storage.list("", start_after="17"))) == 2
    assert asked == ["18", "19"]


def test_a_listing_that_is_given_up_leaves_no_file_open(storage: LocalStorage) -> None:
    for name in "abc":
        storage.create(f"d/{name}", b"x")
    before = sorted(os.listdir("/proc/self/fd"))
    for listing in (storage.list("d"), storage.walk("")):
        next(listing)
        assert len(os.listdir("/proc/self/fd")) == len(before) + 1
        listing.close()
    assert sorted(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("listing", ["list", "walk"])
def test_a_file_that_cannot_be_asked_for_is_named(storage: LocalStorage, listing: str) -> None:
    storage.create("d/file", b"x")
    os.symlink("loop", f"{storage.root}/d/loop")
    with pytest.raises(StorageError, match="list 'd/loop' failed") as error:
        list(getattr(storage, listing)("d"))
    assert (error.value.table, error.value.path) == (storage.root, "d/loop")


def test_a_file_that_cannot_be_read_is_not_missing(storage: LocalStorage) -> None:
    os.makedirs(storage.root)
    os.symlink("loop", f"{storage.root}/loop")
    with pytest.raises(StorageError, match="read 'loop' failed") as error:
        storage.read_many(["nothing", "loop"])
    assert type(error.value) is StorageError


def test_a_storage_over_the_whole_file_system_knows_its_files(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    path = str(tmp_path / "x").lstrip("/")
    everything = LocalStorage("/")
    assert everything.head(path).size == 3
    assert everything.read_many([path, f"{path}/y"]) == [b"abc", None]
