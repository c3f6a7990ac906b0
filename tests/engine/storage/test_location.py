"""Which storage a location names."""

from __future__ import annotations

import builtins
import zipfile
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine.errors import InvalidArgumentError, StorageError
from airflow_delta.engine.storage.generic import GenericStorage
from airflow_delta.engine.storage.local import LocalStorage
from airflow_delta.engine.storage.location import open_storage
from airflow_delta.engine.storage.memory import MemoryStorage
from airflow_delta.engine.storage.object_store import ObjectStorage

ACCOUNT = {"account_name": "a", "account_key": "c2VjcmV0"}


@pytest.mark.parametrize(
    ("uri", "root"),
    [
        ("/data/t", "/data/t"),
        ("/data/t/", "/data/t"),
        ("/data//t///", "/data/t"),
        ("//data/t", "/data/t"),
        ("/", "/"),
        ("/data/a%20b", "/data/a%20b"),
        ("/data/k=1:2", "/data/k=1:2"),
        ("/data/k=a::b", "/data/k=a::b"),
        ("file:///data/t", "/data/t"),
        ("file:/data/t/", "/data/t"),
        ("file://localhost/data/t", "/data/t"),
        ("FILE:///data/t", "/data/t"),
        ("file:///data/a%20b", "/data/a b"),
        ("file:///data/a%2520b", "/data/a%20b"),
        ("file:///data/%C3%A9", "/data/é"),
        ("file:///data/a+b#c?d", "/data/a+b#c?d"),
    ],
)
def test_local_locations(uri: str, root: str) -> None:
    storage = open_storage(uri)
    assert isinstance(storage, LocalStorage)
    assert storage.root == root


def test_a_relative_path_is_taken_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_storage("tables/t").root == f"{tmp_path}/tables/t"
    assert open_storage("~/t").root == f"{tmp_path}/~/t"
    assert open_storage("./a::b").root == f"{tmp_path}/a::b"


@pytest.mark.parametrize(
    ("uri", "kind", "options"),
    [
        ("memory://m/t", MemoryStorage, {}),
        ("s3://bucket/t", ObjectStorage, {}),
        ("s3a://bucket/t", ObjectStorage, {}),
        ("gs://bucket/t", ObjectStorage, {"bearer_token": "x"}),
        ("gcs://bucket/t", ObjectStorage, {"bearer_token": "x"}),
        ("az://container/t", ObjectStorage, ACCOUNT),
        ("abfs://container/t", ObjectStorage, ACCOUNT),
        ("abfss://container@a.dfs.core.windows.net/t", ObjectStorage, {}),
    ],
)
def test_schemes(uri: str, kind: type, options: dict[str, str]) -> None:
    storage = open_storage(f"{uri}/", options)
    assert isinstance(storage, kind)
    assert storage.root == uri


def test_other_schemes_go_through_fsspec(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("t/x", b"content")
    storage = open_storage(f"zip://t::file://{tmp_path}/t.zip")
    assert isinstance(storage, GenericStorage)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("", "isn't a location"),
        ("a\0b", "isn't a location"),
        ("nonsense://x/t", "unknown scheme 'nonsense': expected a path or one of file, memory, s3"),
        ("wasbs://c@a.blob.core.windows.net/t", "abfss://<container>@<account>"),
        ("wasb://c@a.blob.core.windows.net/t", "abfs://<container>@<account>"),
        ("dbfs:/mnt/t", "the location in cloud storage"),
        ("file://server/share/t", "names the host 'server'"),
        ("s3://", "names no bucket"),
        ("s3:///t", "names no bucket"),
        ("s3:/bucket/t", "names no bucket"),
        ("s3://bucket/a//t", "empty, '.' or '..' segment"),
        ("s3://bucket/../other/t", "empty, '.' or '..' segment"),
        ("memory:/x", "expected memory://"),
        ("simplecache::file:///data/t", "begins with 'simplecache::'"),
        ("simplecache::/data/t", "zip://<path inside>::<location of the archive>"),
        ("zip::file:///data/t.zip", "begins with 'zip::'"),
        ("a::b", r"put '\./' before it"),
        ("un_known://x/t", "unknown scheme 'un_known'"),
    ],
)
def test_senseless_locations(uri: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message.replace("|", r"\|")):
        open_storage(uri)


@pytest.mark.parametrize("uri", ["/data/t", "file:///data/t", "memory://m/t"])
def test_options_of_the_store_that_is_copied_from_are_no_matter(uri: str) -> None:
    assert open_storage(uri, {"aws_region": "r"}).root == uri.removeprefix("file://")


@pytest.mark.parametrize(
    ("uri", "extra"), [("s3://b/t", "s3"), ("gs://b/t", "gcs"), ("az://c/t", "azure")]
)
def test_a_missing_package_is_named_with_its_extra(
    uri: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = builtins.__import__

    def without_obstore(name: str, *args: Any) -> Any:
        if name.startswith("airflow_delta.engine.storage.") and not name.endswith("location"):
            raise ModuleNotFoundError("No module named 'obstore'", name="obstore")
        return original(name, *args)

    monkeypatch.setattr(builtins, "__import__", without_obstore)
    with pytest.raises(StorageError, match=rf"'obstore'.*pip install 'airflow-delta\[{extra}\]'"):
        open_storage(uri)
