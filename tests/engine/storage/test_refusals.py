"""A write that the store refuses outright wrote nothing; every other failure leaves that open."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from obstore.store import S3Store

from airflow_delta.engine.commit.filesystem import FileSystemCommitter
from airflow_delta.engine.errors import (
    CommitOutcomeUnknownError,
    NothingWrittenError,
    StorageError,
)
from airflow_delta.engine.storage import exclusive_put
from airflow_delta.engine.storage.base import Capabilities
from airflow_delta.engine.storage.object_store import ObjectStorage
from tests.answering_store import AnsweringStore, answering_store

CAPABLE = Capabilities(put_if_absent=True, start_after=True, remote=True)
MOMENT = timedelta(milliseconds=1)
NO_BUCKET = b"<Error><Code>NoSuchBucket</Code></Error>"


@pytest.fixture
def server() -> Iterator[AnsweringStore]:
    """A store in which nothing is."""
    with answering_store() as store:
        store.status, store.body = 404, b"<Error><Code>Scripted</Code></Error>"
        yield store


def storage_at(server: AnsweringStore, *, unproven: str | None = None) -> ObjectStorage:
    store = S3Store(
        "bucket",
        config={
            "endpoint": server.url,
            "access_key_id": "key",
            "secret_access_key": "secret",
            "region": "us-east-1",
        },
        client_options={"allow_http": True},
        retry_config={"max_retries": 1, "backoff": {"init_backoff": MOMENT, "max_backoff": MOMENT}},
    )
    return ObjectStorage("s3://bucket/t", "s3://bucket/t", store, CAPABLE, unproven=unproven)


def commit(storage: ObjectStorage) -> str | None:
    return FileSystemCommitter(storage, table=storage.root).commit(0, b"{}", txn_id="mine")


@pytest.mark.parametrize("status", [400, 401, 403, 405])
@pytest.mark.parametrize("operation", ["create", "replace"])
def test_a_refused_write_wrote_nothing(server: AnsweringStore, operation: str, status: int) -> None:
    server.to_puts = [status]
    with pytest.raises(
        NothingWrittenError,
        match=rf"{operation} 'x' was refused, and nothing was written: .*{status}",
    ) as caught:
        getattr(storage_at(server), operation)("x", b"1")
    assert (caught.value.path, caught.value.operation) == ("x", operation)


def test_a_write_to_a_bucket_that_is_not_there_wrote_nothing(server: AnsweringStore) -> None:
    server.to_puts, server.body = [404], NO_BUCKET
    with pytest.raises(NothingWrittenError, match="the bucket or container doesn't exist"):
        storage_at(server).create("x", b"1")


@pytest.mark.parametrize("statuses", [[500], [503, 403], [500, 401], [408], [429]], ids=str)
def test_any_other_failure_leaves_it_open(server: AnsweringStore, statuses: list[int]) -> None:
    """Before the refusal, the store may have executed the request and lost the answer."""
    server.to_puts = statuses
    with pytest.raises(StorageError, match="create 'x' failed") as caught:
        storage_at(server).create("x", b"1")
    assert not isinstance(caught.value, NothingWrittenError)


@pytest.mark.parametrize(
    ("path", "expected"), [("_delta_log/0.json", NothingWrittenError), ("a b", StorageError)]
)
def test_a_write_without_credentials_was_not_sent(
    server: AnsweringStore, path: str, expected: type[StorageError]
) -> None:
    """A request for credentials failed, which only some URLs prove."""
    server.to_puts = [500]
    store = S3Store(
        "bucket",
        config={
            "endpoint": server.url,
            "metadata_endpoint": server.url,
            "region": "us-east-1",
        },
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    with pytest.raises(StorageError, match="latest/api/token") as caught:
        ObjectStorage("s3://bucket/t", "s3://bucket/t", store, CAPABLE).create(path, b"1")
    assert type(caught.value) is expected


def test_of_a_read_there_is_nothing_to_say_about_writing(server: AnsweringStore) -> None:
    server.status = 403
    with pytest.raises(StorageError, match=r"read 'x' failed: .*403") as caught:
        storage_at(server).read("x")
    assert not isinstance(caught.value, NothingWrittenError)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_commit_is_not_sent_again(server: AnsweringStore, status: int) -> None:
    server.to_puts = [status]
    with pytest.raises(NothingWrittenError, match="nothing was written"):
        commit(storage_at(server))
    assert server.puts == 1


def test_a_commit_that_is_refused_at_last_may_have_been_made_before(server: AnsweringStore) -> None:
    """The first put and its repetition by the client fail, and then the credentials expire."""
    server.to_puts = [500, 500, 403]
    with pytest.raises(CommitOutcomeUnknownError, match="before trying again"):
        commit(storage_at(server))
    assert server.puts == 3


@pytest.mark.parametrize("statuses", [[403], [500]], ids=str)
def test_a_commit_before_which_the_store_cannot_be_tried_is_not_sent(
    server: AnsweringStore, statuses: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exclusive_put, "_TRIED", {})
    server.to_puts = statuses
    with pytest.raises(NothingWrittenError, match=r"whether old \(b\) honours conditional writes"):
        commit(storage_at(server, unproven="old (b)"))
    assert not exclusive_put._TRIED
