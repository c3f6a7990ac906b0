"""What is special about the local file system; the contract itself is in tests/contracts."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine.errors import (
    InvalidArgumentError,
    NotRegularFileError,
    ObjectExistsError,
    StorageError,
    UnsafeStorageError,
)
from airflow_delta.engine.storage import local
from airflow_delta.engine.storage.base import FileInfo, Level
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
        ('file.write(b"whole"); os.link = die', False),
        ('file.write(b"whole"); os.unlink = die', True),
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
    def no_link(*arguments: object, **options: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", no_link)
    with pytest.raises(UnsafeStorageError, match="hard link"):
        storage.create("log/0.json", b"x")
    assert list(storage.walk("")) == []
    storage.replace("log/_last", b"still works")
    assert storage.read("log/_last") == b"still works"


def test_a_link_that_reports_its_own_name_as_taken_has_won(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # NFS: the answer to the first request was lost, and the client sent it again.
    link = os.link

    def repeated(*arguments: Any, **options: Any) -> None:
        link(*arguments, **options)
        link(*arguments, **options)

    monkeypatch.setattr(os, "link", repeated)
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


def test_files_get_the_permissions_of_the_users_umask(storage: LocalStorage) -> None:
    before = os.umask(0o027)
    try:
        storage.create("x", b"x")
    finally:
        os.umask(before)
    assert os.stat(f"{storage.root}/x").st_mode & 0o777 == 0o640


def special_files(storage: LocalStorage) -> dict[str, str]:
    """Make what is no regular file in the directory ``d``; what an error calls each of them."""
    storage.create("d/file", b"x")
    d = f"{storage.root}/d"
    os.symlink("file", f"{d}/link")
    os.symlink("nowhere", f"{d}/dangling")
    os.symlink("loop", f"{d}/loop")
    os.symlink(".", f"{d}/folder")
    os.mkfifo(f"{d}/pipe")
    with socket.socket(socket.AF_UNIX) as server:
        descriptor = os.open(d, os.O_PATH)
        server.bind(f"/proc/self/fd/{descriptor}/socket")  # a whole path may be too long for one
        os.close(descriptor)
    links = dict.fromkeys(("link", "dangling", "loop", "folder"), "a symbolic link")
    return {**links, "pipe": "a FIFO", "socket": "a socket"}


def test_only_regular_files_are_objects(storage: LocalStorage) -> None:
    kinds = special_files(storage)
    for name, kind in kinds.items():
        path = f"d/{name}"
        for operation, call in {
            "read": lambda path=path: storage.read(path),
            "open": lambda path=path: storage.open(path),
            "head": lambda path=path: storage.head(path),
        }.items():
            with pytest.raises(NotRegularFileError, match=f"'{path}' is {kind}, and ") as error:
                call()
            assert (error.value.table, error.value.path) == (storage.root, path)
            assert error.value.operation == operation
        with pytest.raises(NotRegularFileError, match=f"'{path}' is {kind}, and "):
            storage.read_many(["d/file", path])
    assert storage.read_many(["d/file"]) == [b"x"]


def test_a_device_is_no_object() -> None:
    with pytest.raises(NotRegularFileError, match="'null' is a device, and only regular files"):
        LocalStorage("/dev").read("null")


def test_what_is_no_object_has_a_name_but_nobody_finds_it_to_delete_it(
    storage: LocalStorage,
) -> None:
    """A reader that doesn't see a commit takes the version before it for the newest."""
    names = sorted(["file", *special_files(storage)])
    assert [info.name for info in storage.list("d")] == names
    assert [info.path for info in storage.walk("")] == ["d/file"]
    assert storage.level("d") == Level([storage.head("d/file")], [])


def test_no_operation_goes_through_a_linked_directory(
    storage: LocalStorage, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    (outside / "below").mkdir(parents=True)
    (outside / "below" / "x").write_bytes(b"theirs")
    storage.create("d/file", b"x")
    os.symlink(outside, f"{storage.root}/d/link")

    def stream(path: str) -> None:
        with storage.writer(path, overwrite=True) as file:
            file.write(b"mine")

    operations: dict[str, Callable[[str], object]] = {
        "read": storage.read,
        "read_many": lambda path: storage.read_many([path]),
        "open": storage.open,
        "head": storage.head,
        "create": lambda path: storage.create(f"{path}2", b"mine"),
        "make": lambda path: storage.create(f"{path}/2/3", b"mine"),
        "replace": lambda path: storage.replace(path, b"mine"),
        "stream": stream,
        "delete": lambda path: storage.delete([path]),
        "list": lambda path: list(storage.list(path.rpartition("/")[0])),
        "walk": lambda path: list(storage.walk(path.rpartition("/")[0])),
        "level": lambda path: storage.level(path.rpartition("/")[0]),
    }
    for name, operation in operations.items():
        for path in ("d/link/below/x", "./d//link/below/x"):
            with pytest.raises(NotRegularFileError, match=r"'d/link' is a symbolic link") as error:
                operation(path)
            assert error.value.table == storage.root, name
    assert {path.name for path in outside.rglob("*")} == {"below", "x"}
    assert (outside / "below" / "x").read_bytes() == b"theirs"
    assert [info.path for info in storage.walk("")] == ["d/file"]


def test_a_link_at_the_end_is_replaced_or_deleted_itself(
    storage: LocalStorage, tmp_path: Path
) -> None:
    (tmp_path / "theirs").write_bytes(b"theirs")
    storage.create("d/file", b"x")
    for name in ("replaced", "created", "deleted"):
        os.symlink(tmp_path / "theirs", f"{storage.root}/d/{name}")
    storage.replace("d/replaced", b"mine")
    with pytest.raises(ObjectExistsError):
        storage.create("d/created", b"mine")
    storage.delete(["d/deleted"])
    assert storage.read("d/replaced") == b"mine"
    assert [info.name for info in storage.list("d")] == ["created", "file", "replaced"]
    assert (tmp_path / "theirs").read_bytes() == b"theirs"


@pytest.mark.parametrize("exchanged", ["t/d", "t/d/e"])
def test_a_directory_that_becomes_a_link_is_not_followed(
    storage: LocalStorage, tmp_path: Path, exchanged: str
) -> None:
    """Between two files of one deletion: nothing that was looked at before is trusted by its path."""
    for path in ("d/e/x", "d/e/y"):
        storage.create(path, b"x")
    shutil.copytree(tmp_path / "t", tmp_path / "outside")

    def going() -> Iterator[str]:
        yield "d/e/x"
        os.rename(tmp_path / exchanged, tmp_path / "moved")
        os.symlink(tmp_path / exchanged.replace("t/", "outside/"), tmp_path / exchanged)
        yield "d/e/y"

    storage.delete(going())
    assert sorted(info.path for info in LocalStorage(str(tmp_path / "outside")).walk("")) == [
        "d/e/x",
        "d/e/y",
    ]


def test_the_root_may_be_a_link_or_lie_behind_one(storage: LocalStorage, tmp_path: Path) -> None:
    storage.create("d/x", b"x")
    os.symlink(tmp_path, tmp_path / "link")
    os.symlink(tmp_path / "link" / "t", tmp_path / "again")
    for root in (tmp_path / "link" / "t", tmp_path / "again"):
        linked = LocalStorage(str(root))
        linked.create("d/y", b"y")
        assert linked.read_many(["d/x", "d/y"]) == [b"x", b"y"]
        assert sorted(info.path for info in linked.walk("")) == ["d/x", "d/y"]
        linked.delete(["d/y"])


def test_directories_in_each_other_are_bounded(storage: LocalStorage) -> None:
    """Of a path that nobody could have written there is nothing; of one that is too deep, an error."""
    assert storage.read_many(["d/" * 40_000 + "x"]) == [None]
    storage.create("d/" * 128 + "x", b"x")
    assert [info.path for info in storage.walk("")] == ["d/" * 128 + "x"]
    with pytest.raises(StorageError, match="more than 128 directories in each other"):
        storage.create("d/" * 129 + "x", b"x")


def test_a_file_deleted_while_listing_is_left_out(storage: LocalStorage) -> None:
    for name in "abc":
        storage.create(name, b"x")
    listing = storage.list("")
    assert next(listing).name == "a"
    storage.delete(["b"])
    assert [info.name for info in listing] == ["c"]


def test_a_deletion_goes_over_what_is_no_file_and_names_what_it_fails_at(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("d/file", "first", "stuck", "last"):
        storage.create(path, b"x")
    unlink = os.unlink

    def failing(path: Any, **options: Any) -> None:
        if path == "stuck":
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        unlink(path, **options)

    monkeypatch.setattr(os, "unlink", failing)
    too_long = "x" * 300
    with pytest.raises(StorageError, match="delete 'stuck' failed: Permission denied") as e:
        storage.delete(["first", "missing", "d", "d/file/below", too_long, "stuck", "last"])
    assert (e.value.path, e.value.operation) == ("stuck", "delete")
    assert sorted(visible(storage)) == ["d/file", "last", "stuck"]


def test_a_late_start_requests_late_files_only(
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
        assert len(os.listdir("/proc/self/fd")) > len(before)
        listing.close()
    assert sorted(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("listing", ["list", "walk"])
def test_a_file_that_cannot_be_requested_is_named(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, listing: str
) -> None:
    for name in ("file", "stale"):
        storage.create(f"d/{name}", b"x")
    status = os.stat

    def failing(path: Any, **options: Any) -> os.stat_result:
        if path == "stale":
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return status(path, **options)

    monkeypatch.setattr(os, "stat", failing)
    with pytest.raises(StorageError, match="list 'd/stale' failed") as error:
        list(getattr(storage, listing)("d"))
    assert (error.value.table, error.value.path) == (storage.root, "d/stale")


def test_a_file_that_cannot_be_read_is_not_missing(storage: LocalStorage) -> None:
    os.makedirs(storage.root)
    with pytest.raises(StorageError, match=r"read 'nnn.* failed: File name too long") as error:
        storage.read_many(["nothing", "n" * 300])
    assert type(error.value) is StorageError


def test_a_storage_over_the_whole_file_system_knows_its_files(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    path = str(tmp_path / "x").lstrip("/")
    everything = LocalStorage("/")
    assert everything.head(path).size == 3
    assert everything.read_many([path, f"{path}/y"]) == [b"abc", None]
