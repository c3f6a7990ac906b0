"""Credentials that expire: the option ``credential_provider``, and what a store's refusal becomes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine.errors import (
    AccessDeniedError,
    InvalidArgumentError,
    NothingWrittenError,
    StorageError,
    WriteDeniedError,
)
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.location import open_storage
from airflow_delta.engine.storage.store_arguments import StoreOptions
from tests.answering_store import AnsweringStore, answering_store

SECRET = "hush-hush"
ACCOUNT = "abfss://files@lake.dfs.core.windows.net/t"


@pytest.fixture
def server() -> Iterator[AnsweringStore]:
    with answering_store() as store:
        yield store


def s3(server: AnsweringStore, provider: object, **options: object) -> Storage:
    settings = {"endpoint_url": server.url, "region": "us-east-1", "conditional_put": "etag"}
    return open_storage("s3://lake/t", {**settings, "credential_provider": provider, **options})


class Keys:
    """Provides another key each time, each valid for so long."""

    def __init__(self, valid: timedelta) -> None:
        self.valid, self.calls = valid, 0

    def __call__(self) -> dict[str, Any]:
        self.calls += 1
        return {
            "access_key_id": f"KEY{self.calls}",
            "secret_access_key": SECRET,
            "token": "token",
            "expires_at": datetime.now(timezone.utc) + self.valid,
        }


def test_credentials_are_requested_again_before_they_expire(
    server: AnsweringStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The identity of the worker, which isn't used.
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "WORKER")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    lasting, expiring = Keys(timedelta(minutes=6)), Keys(timedelta(seconds=0))
    for keys in (lasting, expiring):
        storage = s3(server, keys)
        assert keys.calls == 0, "opening makes no request"
        for _ in range(3):
            storage.read("x")
    assert server.asked == ["KEY1"] * 3 + ["KEY1", "KEY2", "KEY3"]


@pytest.mark.parametrize("uri", ["gs://lake/t", ACCOUNT])
def test_tokens_of_the_other_clouds(
    server: AnsweringStore, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The key of the worker, which isn't used.
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "aGVsbG8=")
    endpoint = "base_url" if uri.startswith("gs") else "azure_storage_endpoint"
    provider = lambda: {"token": "t1", "expires_at": None}  # noqa: E731
    storage = open_storage(uri, {endpoint: server.url, "credential_provider": provider})
    storage.read("x")
    assert server.asked == ["Bearer t1"]


def raising(error: Exception) -> Callable[[], Any]:
    def provide() -> Any:
        raise error

    return provide


@pytest.mark.parametrize(
    ("error", "reading", "writing"),
    [
        (AccessDeniedError("no such role"), AccessDeniedError, WriteDeniedError),
        (StorageError("no answer"), StorageError, NothingWrittenError),
        (RuntimeError("no answer"), StorageError, NothingWrittenError),
    ],
    ids=repr,
)
def test_without_credentials_no_request_is_made(
    server: AnsweringStore,
    error: Exception,
    reading: type[StorageError],
    writing: type[StorageError],
) -> None:
    storage = s3(server, raising(error))
    with pytest.raises(StorageError, match=f"read 'x' failed: {error}$") as read:
        storage.read("x")
    with pytest.raises(StorageError, match=f"nothing was written: {error}$") as replaced:
        storage.replace("x", b"")
    assert (type(read.value), type(replaced.value)) == (reading, writing)
    assert server.asked == []


def test_credentials_without_a_key_are_an_error(server: AnsweringStore) -> None:
    with pytest.raises(StorageError, match=r"read 'x' failed: 'access_key_id'$"):
        s3(server, lambda: {"secret_access_key": SECRET}).read("x")


EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>it has expired</Message></Error>"


@pytest.mark.parametrize(("status", "body"), [(400, EXPIRED), (401, b"no"), (403, b"no")])
def test_refused_credentials_are_an_error_at_once(
    server: AnsweringStore, status: int, body: bytes
) -> None:
    server.status, server.body = status, body
    storage = s3(server, Keys(timedelta(hours=1)))
    with pytest.raises(AccessDeniedError, match=r"read 'x' failed: .*wrong or expired") as read:
        storage.read("x")
    with pytest.raises(WriteDeniedError, match=r"nothing was written: .*wrong or expired"):
        storage.replace("x", b"")
    with pytest.raises(AccessDeniedError, match=r"head 'x' failed: .*wrong or expired"):
        storage.head("x")  # whose answer has no body
    assert len(server.asked) == 3, "none is repeated"
    assert SECRET not in str(read.value)


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, b"InvalidRequest"), (403, b"RequestTimeTooSkewed"), (403, b"rateLimitExceeded")],
)
def test_other_refusals_are_none_of_the_credentials(
    server: AnsweringStore, status: int, code: bytes
) -> None:
    server.status, server.body = status, b"<Error><Code>%b</Code></Error>" % code
    with pytest.raises(StorageError) as read:
        s3(server, Keys(timedelta(hours=1))).read("x")
    assert type(read.value) is StorageError


def test_a_request_is_repeated_as_often_as_is_said(server: AnsweringStore) -> None:
    server.status = 500
    with pytest.raises(StorageError, match="read 'x' failed"):
        s3(server, Keys(timedelta(hours=1)), max_retries="1").read("x")
    assert len(server.asked) == 2
    with pytest.raises(InvalidArgumentError, match="can't be opened with these storage options"):
        s3(server, Keys(timedelta(hours=1)), max_retries="often")


def test_two_kinds_of_credentials_contradict_each_other(server: AnsweringStore) -> None:
    with pytest.raises(InvalidArgumentError, match=r"other credentials \(access_key_id\)"):
        s3(server, Keys(timedelta(hours=1)), aws_access_key_id="KEY")
    with pytest.raises(InvalidArgumentError, match="is a str: expected a function"):
        s3(server, SECRET)


def test_other_stores_have_no_such_credentials(tmp_path: Path) -> None:
    provider = Keys(timedelta(hours=1))
    options = {"credential_provider": provider}
    for uri in (str(tmp_path), "memory://lake"):
        assert list(open_storage(uri, options).list("")) == []
    with pytest.raises(InvalidArgumentError, match="is for S3, GCS and Azure"):
        open_storage("hdfs://lake/t", options)
    assert provider.calls == 0


def test_a_provider_is_not_shown() -> None:
    class Shown(Keys):
        def __repr__(self) -> str:
            return SECRET

    provider = Shown(timedelta(hours=1))
    storage = open_storage("s3://lake/t", {"region": "r", "credential_provider": provider})
    assert SECRET not in repr(storage)
    assert SECRET not in repr(StoreOptions({}, {}, credential_provider=provider))
