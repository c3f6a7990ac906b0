"""The user's word that there is one writer; how such a storage keeps the contract is in tests/contracts."""

from __future__ import annotations

import errno
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore

from airflow_delta.engine import AddFile, DeltaTable
from airflow_delta.engine.errors import (
    InvalidArgumentError,
    ObjectExistsError,
    StorageError,
    UnsafeStorageError,
)
from airflow_delta.engine.model.schema import PrimitiveType, StructField, StructType
from airflow_delta.engine.storage import exclusive_put
from airflow_delta.engine.storage.base import Capabilities
from airflow_delta.engine.storage.location import open_storage
from airflow_delta.engine.storage.object_store import ObjectStorage
from airflow_delta.engine.storage.s3 import open_s3
from airflow_delta.engine.storage.single_writer import is_single_writer
from tests.object_stores import KINDS, new_place

SCHEMA = StructType((StructField("id", PrimitiveType("long"), nullable=True),))
YES = {"single_writer": "true"}
CAPABLE = Capabilities(put_if_absent=True, start_after=True, remote=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, False),
        ({"single_writer": "false"}, False),
        ({"single_writer": False}, False),
        ({"single_writer": "true"}, True),
        ({"SINGLE_WRITER": "True"}, True),
        ({"aws_region": "r", "single_writer": True}, True),
    ],
)
def test_the_word(options: dict[str, object], said: bool) -> None:
    assert is_single_writer(options) is said


@pytest.mark.parametrize(
    "options",
    [
        {"single_writer": "yes"},
        {"single_writer": ""},
        {"single_writer": 1},
        {"single_writer": "true", "Single_Writer": "false"},
    ],
)
@pytest.mark.parametrize(
    "uri", ["/t", "memory://m/t", "s3://b/t", "gs://b/t", "az://c/t", "local:///t"]
)
def test_a_word_that_is_neither_yes_nor_no(uri: str, options: dict[str, str]) -> None:
    with pytest.raises(
        InvalidArgumentError, match=rf"'single_writer' for '{uri}' says .*: expected 'true'"
    ) as caught:
        open_storage(uri, options)
    assert caught.value.uri == uri


@pytest.mark.parametrize("kind", KINDS)
def test_it_changes_nothing_where_the_store_can_do_better(kind: str, tmp_path: Path) -> None:
    uri, options = new_place(kind, tmp_path)
    assert open_storage(f"{uri}/t", {**options, **YES}).capabilities.put_if_absent


@pytest.fixture(params=["s3 without conditions", "directory without links", "fsspec"])
def unsafe(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A location where nothing can be created exclusively, and its options."""
    if request.param == "fsspec":
        return f"local://{tmp_path}/t", {}
    if request.param == "directory without links":

        def no_link(*arguments: object, **options: object) -> None:
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

        monkeypatch.setattr(os, "link", no_link)
        return str(tmp_path / "t"), {}
    uri, options = new_place("s3", tmp_path)
    return f"{uri}/t", {**options, "aws_conditional_put": "disabled"}


def test_a_table_is_refused_without_it_and_kept_with_it(unsafe: Any) -> None:
    uri, options = unsafe
    with pytest.raises(UnsafeStorageError, match=r"'single_writer'.* that nobody else writes"):
        DeltaTable.create(uri, SCHEMA, storage_options=options)
    assert list(open_storage(uri, options).walk("")) == []

    table = DeltaTable.create(uri, SCHEMA, storage_options={**options, **YES})
    for name in ("a", "b"):
        transaction = table.transaction("WRITE")
        transaction.add_file(AddFile(name, {}, 1, 1, data_change=True))
        transaction.commit()
    table.checkpoint()
    seen = DeltaTable(uri, options).snapshot()
    assert seen.version == 2
    assert sorted(seen.files(columns=["path"])["path"].to_pylist()) == ["a", "b"]

    # And without his word it is refused again, where somebody else wrote it before.
    transaction = DeltaTable(uri, options).transaction("WRITE")
    transaction.add_file(AddFile("c", {}, 1, 1, data_change=True))
    with pytest.raises(UnsafeStorageError, match="'single_writer'"):
        transaction.commit()


def test_of_writers_one_after_the_other_none_is_lost(unsafe: Any) -> None:
    """What a retried task does: a second writer, but not at the same time."""
    uri, options = unsafe
    DeltaTable.create(uri, SCHEMA, storage_options={**options, **YES})
    transactions = [DeltaTable(uri, {**options, **YES}).transaction("WRITE") for _ in range(3)]
    for number, transaction in enumerate(transactions):
        transaction.add_file(AddFile(f"f{number}", {}, 1, 1, data_change=True))
    assert [transaction.commit().version for transaction in transactions] == [1, 2, 3]


class Modes:
    """An obstore store that keeps how it was written to, and may ignore conditions."""

    def __init__(self, *, ignores_conditions: bool) -> None:
        self.inner = MemoryStore()
        self.modes: list[str] = []
        self._ignores = ignores_conditions

    def put(self, path: str, data: bytes, *, mode: str) -> Any:
        if "trial" not in path:
            self.modes.append(mode)
        return self.inner.put(path, data, mode="overwrite" if self._ignores else mode)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.mark.parametrize(("ignores", "mode"), [(True, "overwrite"), (False, "create")])
def test_a_look_alike_is_tried_all_the_same(
    ignores: bool, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exclusive_put, "_TRIED", {})
    store = Modes(ignores_conditions=ignores)
    storage = ObjectStorage(
        "s3://b/t", "s3://b/t", store, CAPABLE, unproven="http://old", single_writer=True
    )
    storage.create("log/0.json", b"mine")
    storage.create("log/1.json", b"mine")
    with pytest.raises(ObjectExistsError, match=r"'log/0\.json'"):
        storage.create("log/0.json", b"other")
    assert storage.read("log/0.json") == b"mine"
    assert set(store.modes) == {mode}
    assert [info.path for info in storage.walk("")] == ["log/0.json", "log/1.json"]


def test_the_environment_may_switch_conditions_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    assert not open_s3("s3://b/t", {}).capabilities.put_if_absent
    assert open_s3("s3://b/t", {"conditional_put": "etag"}).capabilities.put_if_absent


def test_a_file_system_that_is_for_reading_stays_so(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("t/log/0.json", b"content")
    storage = open_storage(f"zip://t::file://{tmp_path}/t.zip", YES)
    with pytest.raises(StorageError, match=r"create 'log/1\.json' failed: "):
        storage.create("log/1.json", b"x")
    with pytest.raises(StorageError, match=r"delete 'log/0\.json' failed: "):
        storage.delete(["log/0.json"])
    assert storage.read("log/0.json") == b"content"


def test_a_neighbour_that_is_left_hides(tmp_path: Path) -> None:
    """The file system breaks as a file in the making gets its name."""
    storage: Any = open_storage(f"local://{tmp_path}/t", YES)

    class Breaks:
        def __getattr__(self, name: str) -> Any:
            if name in ("mv", "rm_file"):
                raise OSError("the connection broke")
            return getattr(storage.file_system, name)

    broken = type(storage)(storage.root, Breaks(), storage.base)
    with pytest.raises(StorageError, match="create 'log/x' failed: the connection broke"):
        broken.create("log/x", b"content")
    (left,) = storage.walk("")
    assert left.name.startswith(".x.")
    assert left.name.endswith(".tmp")
