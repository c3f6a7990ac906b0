"""Stores that are read through fsspec."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import (
    InvalidArgumentError,
    ObjectNotFoundError,
    StorageError,
    UnsafeStorageError,
)
from airflow_delta.engine.storage.generic import GenericStorage, open_generic
from airflow_delta.engine.storage.location import open_storage
from tests.log_builder import add, commit_path, write_table

FILES = {"log/9": b"nine", "log/10": b"ten", "log/sub/x": b"deep", "log2/x": b"other", "top": b"t"}


@pytest.fixture
def storage(tmp_path: Path) -> GenericStorage:
    for path, data in FILES.items():
        file = tmp_path / "t" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        os.utime(file, (1_700_000_000, 1_700_000_000.25))
    return GenericStorage("test://t", fsspec.filesystem("file"), str(tmp_path / "t"))


def test_reads(storage: GenericStorage) -> None:
    assert storage.read("log/10") == b"ten"
    assert storage.read("log/10", start=1, length=1) == b"e"
    assert storage.read("log/10", start=1) == b"en"
    assert storage.read_many(["top", "missing"]) == [b"t", None]
    with storage.open("log/9") as file:
        file.seek(2)
        assert file.read() == b"ne"
    with pytest.raises(ObjectNotFoundError, match="'missing'"):
        storage.read("missing")


def test_lists(storage: GenericStorage) -> None:
    assert [info.path for info in storage.list("log")] == ["log/10", "log/9"]
    assert [info.path for info in storage.list("log", start_after="10")] == ["log/9"]
    assert [info.path for info in storage.list("")] == ["top"]
    assert list(storage.list("missing")) == []
    assert list(storage.list("top")) == []
    assert {info.path for info in storage.walk("")} == set(FILES)
    head = storage.head("log/9")
    assert (head.path, head.size, head.modified_ms) == ("log/9", 4, 1_700_000_000_250)
    with pytest.raises(ObjectNotFoundError, match="'log'"):
        storage.head("log")


def test_writes_nothing(storage: GenericStorage) -> None:
    def stream() -> None:
        with storage.writer("new", overwrite=True) as file:
            file.write(b"x")

    operations: list[Callable[[], object]] = [
        lambda: storage.create("new", b"x"),
        lambda: storage.replace("top", b"x"),
        stream,
        lambda: storage.delete(["top"]),
    ]
    for operation in operations:
        with pytest.raises(UnsafeStorageError, match="for reading"):
            operation()
    assert {info.path: storage.read(info.path) for info in storage.walk("")} == FILES
    assert not storage.capabilities.put_if_absent


def test_stays_below_its_root(storage: GenericStorage) -> None:
    with pytest.raises(InvalidArgumentError, match="below the root"):
        storage.read("../secret")
    with pytest.raises(InvalidArgumentError, match="below the root"):
        list(storage.list("../.."))


def test_reads_from_an_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("t/log/0.json", b"content")
    storage = open_generic(f"zip://t::file://{tmp_path}/t.zip", {})
    assert storage.read("log/0.json") == b"content"


@pytest.mark.parametrize(
    ("form", "inside"), [("zip", "t"), ("zip", ""), ("tar", "t")], ids=["zip", "at the top", "tar"]
)
def test_a_table_is_read_from_an_archive(tmp_path: Path, form: str, inside: str) -> None:
    lake = tmp_path / "lake"
    root = write_table(lake / inside, [add("a")], [add("b")])
    for version in (0, 1):  # archives begin in 1980, and may know every other second only
        os.utime(commit_path(root, version), (1_700_000_000 + 10 * version,) * 2)
    DeltaTable(str(root)).checkpoint(0)
    archive = shutil.make_archive(str(tmp_path / "archive"), form, lake, inside or None)
    packed = DeltaTable(f"{form}://{inside}::file://{archive}")
    assert packed.snapshot().files(["path"])["path"].to_pylist() == ["a", "b"]
    assert packed.snapshot(version=0).num_files == 1
    newer, older = (packed.snapshot(version).timestamp_ms for version in (1, 0))
    assert newer is not None
    assert older == newer - 10_000


def test_the_root_directory_has_a_canonical_location(tmp_path: Path) -> None:
    storage = open_storage("local:///")
    (tmp_path / "x").write_bytes(b"content")
    inside = str(tmp_path).lstrip("/")
    assert storage.read(f"{inside}/x") == b"content"
    assert [info.path for info in storage.list(inside)] == [f"{inside}/x"]


def test_the_times_in_an_archive_are_those_of_utc(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr(zipfile.ZipInfo("t/x", (2026, 1, 31, 12, 0, 2)), b"")
        archive.writestr(zipfile.ZipInfo("t/unknown", (1980, 0, 0, 0, 0, 0)), b"")
    storage = open_generic(f"zip://t::file://{tmp_path}/t.zip", {})
    assert storage.head("x").modified_ms == 1_769_860_802_000
    with pytest.raises(StorageError, match="no modification time"):
        storage.head("unknown")


def test_a_store_that_cannot_be_reached_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"none\.zip"):
        open_generic("zip://t::file:///none.zip", {})
    (tmp_path / "none.zip").write_bytes(b"no archive")
    with pytest.raises(StorageError, match=r"can't be opened: BadZipFile"):
        open_generic(f"zip://t::file://{tmp_path}/none.zip", {})


def test_a_location_that_does_not_say_enough_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"'dir' can't be opened .* options: none"):
        open_generic("dir://x", {})


def test_a_scheme_may_be_registered(tmp_path: Path) -> None:
    class Lake(LocalFileSystem):
        protocol = "my_lake"

    with pytest.raises(InvalidArgumentError, match="unknown scheme 'my_lake'"):
        open_storage("my_lake://t")
    fsspec.register_implementation("my_lake", Lake)
    write_table(tmp_path, [add("a")])
    assert DeltaTable(f"my_lake://{tmp_path}").snapshot().num_files == 1


def test_options_that_the_file_system_does_not_take_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(url: str, **options: object) -> None:
        raise TypeError("unexpected keyword argument")

    monkeypatch.setattr(fsspec, "url_to_fs", refuse)
    with pytest.raises(InvalidArgumentError, match="nonsense") as error:
        open_generic("hdfs://h/t", {"nonsense": "VALUE"})
    assert "VALUE" not in str(error.value)


def test_a_store_without_times_is_refused() -> None:
    class Timeless:
        def info(self, path: str) -> dict[str, object]:
            return {"name": path, "type": "file", "size": 1}

    with pytest.raises(StorageError, match="no modification time"):
        GenericStorage("test://t", Timeless(), "t").head("x")
