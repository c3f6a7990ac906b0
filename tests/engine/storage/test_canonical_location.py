"""What tells places apart: one place has one name in all its spellings, and no other place has it."""

from __future__ import annotations

import os
from pathlib import Path

import fsspec
import pytest

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.storage.generic import GenericStorage
from airflow_delta.engine.storage.location import open_storage

Options = dict[str, object]

AMAZON, MINIO = "s3://b/t", "s3+http://minio:9000/b/t"
AZURE = "abfss://c@acc.dfs.core.windows.net/t"
AZURITE = "http://127.0.0.1:10000/devstoreaccount1"
IN_HOST = {"virtual_hosted_style_request": "true"}
ACCOUNT = {"account_name": "acc"}


@pytest.mark.parametrize(
    ("uri", "options", "place"),
    [
        ("s3://b/t", {}, AMAZON),
        ("S3A://b/t/", {"region": "eu-west-1"}, AMAZON),
        ("s3://b/t", {"endpoint_url": "https://s3.eu-west-1.amazonaws.com"}, AMAZON),
        ("s3://b/t", {"endpoint": "https://s3.dualstack.us-west-2.amazonaws.com/"}, AMAZON),
        ("s3://b/t", {"endpoint": "https://b.s3.amazonaws.com", **IN_HOST}, AMAZON),
        ("s3://b", {}, "s3://b"),
        (
            "s3://b/t",
            {"endpoint": "https://s3.cn-north-1.amazonaws.com.cn"},
            "s3+https://amazonaws.com.cn/b/t",
        ),
        (
            "s3://b/t",
            {"endpoint": "https://amazonaws.com.evil"},
            "s3+https://amazonaws.com.evil/b/t",
        ),
        ("s3://b/t", {"endpoint": "http://minio:9000"}, MINIO),
        ("s3a://b/t", {"AWS_ENDPOINT_URL": "HTTP://MinIO:9000/"}, MINIO),
        ("s3://b/t", {"endpoint": "http://user:hidden@minio:9000?x=hidden"}, MINIO),
        ("s3://b/t", {"endpoint": "http://b.minio:9000", **IN_HOST}, MINIO),
        ("s3://b/t", {"endpoint": "https://minio:9000"}, "s3+https://minio:9000/b/t"),
        ("s3://b/t", {"endpoint": "http://minio:9001"}, "s3+http://minio:9001/b/t"),
        ("s3://b/t", {"endpoint": "https://minio:443"}, "s3+https://minio/b/t"),
        ("s3://b/t", {"endpoint": "http://minio:443"}, "s3+http://minio:443/b/t"),
        ("s3://b/t", {"endpoint": "http://[::1]:9000/s3/"}, "s3+http://[::1]:9000/s3/b/t"),
        ("gs://b/t", {}, "gs://b/t"),
        ("gcs://b/t/", {"google_base_url": "https://storage.googleapis.com"}, "gs://b/t"),
        ("gs://b/t", {"endpoint_url": "http://localhost:4443"}, "gs+http://localhost:4443/b/t"),
        ("az://c/t", ACCOUNT, AZURE),
        ("abfs://c/t", {"AZURE_STORAGE_ACCOUNT_NAME": "Acc"}, AZURE),
        ("abfss://c@acc.dfs.core.windows.net/t/", {}, AZURE),
        ("abfs://c@acc.blob.core.windows.net/t", {}, AZURE),
        ("az://c/t", {**ACCOUNT, "endpoint": "https://acc.blob.core.windows.net"}, AZURE),
        ("az://c/t", {"account_name": "other"}, "abfss://c@other.dfs.core.windows.net/t"),
        (
            "abfss://c@acc.dfs.core.chinacloudapi.cn/t",
            {},
            "abfss://c@acc.dfs.core.chinacloudapi.cn/t",
        ),
        (
            "az://c/t",
            {**ACCOUNT, "endpoint": "https://acc.blob.core.chinacloudapi.cn"},
            "abfss://c@acc.dfs.core.chinacloudapi.cn/t",
        ),
        (
            "abfss://ws@onelake.dfs.fabric.microsoft.com/lh/t",
            {},
            "abfss://ws@onelake.dfs.fabric.microsoft.com/lh/t",
        ),
        (
            "az://ws/lh/t",
            {"account_name": "onelake", "use_fabric_endpoint": True},
            "abfss://ws@onelake.dfs.fabric.microsoft.com/lh/t",
        ),
        (
            "az://c/t",
            {"account_name": "devstoreaccount1", "endpoint": f"{AZURITE}/"},
            f"abfss+{AZURITE}/c@devstoreaccount1/t",
        ),
        ("memory://m/t", {}, "memory://m/t"),
        ("memory://m//t/", {}, "memory://m/t"),
        ("memory:///m/t", {}, "memory:///m/t"),
        ("memory://m", {}, "memory://m"),
    ],
)
def test_a_place(uri: str, options: Options, place: str) -> None:
    assert open_storage(uri, options).canonical_location == place


@pytest.mark.parametrize(
    ("uri", "environment", "place"),
    [
        ("s3://b/t", {"AWS_ENDPOINT_URL": "http://minio:9000"}, MINIO),
        ("s3://b/t", {"AWS_ENDPOINT": "http://minio:9000"}, MINIO),
        (
            "s3://b/t",
            {"AWS_ENDPOINT": "http://a", "AWS_ENDPOINT_URL_S3": "http://minio:9000"},
            MINIO,
        ),
        (
            "s3://b/t",
            {
                "AWS_ENDPOINT_URL": "http://b.minio:9000",
                "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true",
            },
            MINIO,
        ),
        ("gs://b/t", {"GOOGLE_BASE_URL": "http://localhost:4443"}, "gs+http://localhost:4443/b/t"),
        ("az://c/t", {"AZURE_STORAGE_ACCOUNT_NAME": "acc"}, AZURE),
        (
            "az://c/t",
            {"AZURE_STORAGE_ACCOUNT_NAME": "acc", "AZURE_ENDPOINT": "http://azure:1"},
            "abfss+http://azure:1/c@acc/t",
        ),
        (
            "az://c/t",
            {"AZURE_STORAGE_USE_EMULATOR": "true"},
            f"abfss+{AZURITE}/c@devstoreaccount1/t",
        ),
    ],
)
def test_a_place_that_the_environment_tells(
    uri: str, environment: dict[str, str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert open_storage(uri).canonical_location == place


def test_an_option_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place, and in what the client does, which by itself prefers one of the variables."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    options = {"endpoint": "http://127.0.0.1:2", "skip_signature": "true", "timeout": "1s"}
    storage = open_storage("s3://b/t", options)
    assert storage.canonical_location == "s3+http://127.0.0.1:2/b/t"
    config = storage.store.config  # type: ignore[attr-defined]
    endpoints = {key: value for key, value in config.items() if "endpoint" in key}
    assert set(endpoints.values()) == {"http://127.0.0.1:2"}
    assert len(endpoints) == 2


def test_an_endpoint_that_is_no_url_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="isn't a URL") as caught:
        open_storage("s3://b/t", {"endpoint": "http://user:hidden@minio:port"})
    assert "hidden" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_links_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "table")
    place = os.path.realpath(tmp_path / "table")
    for uri in ("link", "table/", "link/../table", "table/./"):
        assert open_storage(f"{tmp_path}/{uri}").canonical_location == place
    for uri in (f"file://{tmp_path}/link", f"file:{tmp_path}/table", f"local://{tmp_path}/link"):
        assert open_storage(uri).canonical_location == place


class Server(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """A file system that is somewhere else."""

    protocol = "server"


@pytest.mark.parametrize(
    ("root", "options", "place"),
    [
        ("server://h/t", {}, "server://h/t"),
        ("SERVER://h/t", {"host": "h"}, "server://h/t"),
        ("server://user:hidden@h/t", {"host": "h", "password": "hidden"}, "server://h/t"),
        ("server:///t", {"host": "h", "port": 22}, "server://h:22/t"),
        ("server://h/t", {"host": "h", "port": 22}, "server://h:22/t"),
        ("server://h:23/t", {"host": "h", "port": 23}, "server://h:23/t"),
    ],
)
def test_a_place_on_a_server(root: str, options: Options, place: str) -> None:
    assert GenericStorage(root, Server(**options), "/t").canonical_location == place
