"""What object stores cost and how they fail; the contract itself is in tests/contracts."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from obstore.exceptions import AlreadyExistsError, GenericError
from obstore.store import MemoryStore

from airflow_delta.engine.errors import (
    BucketNotFoundError,
    InvalidArgumentError,
    ObjectExistsError,
    StorageError,
    UnsafeStorageError,
)
from airflow_delta.engine.storage.base import Capabilities
from airflow_delta.engine.storage.location import open_storage
from airflow_delta.engine.storage.object_store import ObjectStorage
from tests.gcs_server import GcsServer
from tests.object_stores import new_location, new_place

CAPABLE = Capabilities(put_if_absent=True, start_after=True, remote=True)


class Broken:
    """An obstore store one of whose operations is replaced."""

    def __init__(self, operation: str, replacement: Callable[..., Any]) -> None:
        self.inner = MemoryStore()
        setattr(self, operation, replacement)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise error

    return fail


@pytest.fixture
def gcs() -> Any:
    server = GcsServer()
    server.add_bucket("bucket")
    yield server
    server.stop()


def in_gcs(server: GcsServer) -> ObjectStorage:
    options = {"google_base_url": server.url, "google_bearer_token": "token"}
    storage = open_storage("gs://bucket/t", options)
    assert isinstance(storage, ObjectStorage)
    return storage


def listings(server: GcsServer) -> list[str]:
    return [request for request in server.requests if "list-type=2" in request]


def test_listing_jumps_over_large_sub_directories(gcs: GcsServer) -> None:
    storage = in_gcs(gcs)
    direct = ["00000.json", "00001.json", "_last_checkpoint", "_zzz"]
    for name in direct:
        storage.replace(f"log/{name}", b"")
    bucket = gcs._state.buckets["bucket"]
    for number in range(3000):
        bucket[f"t/log/_commits/{number:05}"] = bucket["t/log/_zzz"]
        bucket[f"t/log/_sidecars/{number:05}"] = bucket["t/log/_zzz"]
    gcs.requests.clear()
    assert [info.name for info in storage.list("log")] == direct
    # Flat, these would be seven pages.
    assert len(listings(gcs)) == 3


def test_listing_goes_on_within_a_small_sub_directory(gcs: GcsServer) -> None:
    storage = in_gcs(gcs)
    storage.replace("log/a", b"")
    bucket = gcs._state.buckets["bucket"]
    bucket.update({f"t/log/b/{number:05}": bucket["t/log/a"] for number in range(998)})
    bucket.update({f"t/log/c{number}": bucket["t/log/a"] for number in range(5)})
    assert [info.name for info in storage.list("log")] == ["a", *(f"c{n}" for n in range(5))]
    assert [info.name for info in storage.list("log", start_after="b")] == [
        f"c{n}" for n in range(5)
    ]


def test_more_than_a_page_is_listed_in_order(gcs: GcsServer) -> None:
    storage = in_gcs(gcs)
    storage.replace("log/00000", b"")
    bucket = gcs._state.buckets["bucket"]
    names = [f"{number:05}" for number in range(2500)]
    bucket.update({f"t/log/{name}": bucket["t/log/00000"] for name in names})
    assert [info.name for info in storage.list("log")] == names
    assert {info.path for info in storage.walk("")} == {f"log/{name}" for name in names}


def test_a_late_start_costs_no_pages_of_earlier_names(gcs: GcsServer) -> None:
    storage = in_gcs(gcs)
    storage.replace("log/00000", b"")
    bucket = gcs._state.buckets["bucket"]
    bucket.update({f"t/log/{number:05}": bucket["t/log/00000"] for number in range(5000)})
    gcs.requests.clear()
    assert len(list(storage.list("log", start_after="04990"))) == 9
    assert len(listings(gcs)) == 1
    # A caller that stops early costs no further pages either.
    assert next(storage.list("log")).name == "00000"
    assert len(listings(gcs)) == 2


def test_deletes_more_than_a_batch(tmp_path: Path) -> None:
    # S3 takes 1000 keys in one request.
    storage = open_storage(*new_place("s3", tmp_path))
    storage.create("d/first", b"x")
    storage.create("d/last", b"x")
    storage.delete(["d/first", *(f"d/missing-{n}" for n in range(1001)), "d/last"])
    assert list(storage.walk("")) == []


def test_opening_a_file_of_known_size_costs_one_request(gcs: GcsServer) -> None:
    storage = in_gcs(gcs)
    storage.create("x", b"content")
    gcs.requests.clear()
    with storage.open("x", size=7) as file:
        assert file.read() == b"content"
    assert [request.split()[0] for request in gcs.requests] == ["GET"]


def test_a_put_that_is_sent_again_meets_itself() -> None:
    # The client sends a PUT again whose answer was lost. All that a storage can tell is that the
    # object is there; whose it is, is for the caller to find out.
    store = MemoryStore()

    def put_twice(*args: Any, **kwargs: Any) -> Any:
        store.put(*args, **kwargs)
        return store.put(*args, **kwargs)

    twice = Broken("put", put_twice)
    twice.inner = store
    storage = ObjectStorage("test://t", "test://t", twice, CAPABLE)
    with pytest.raises(ObjectExistsError, match="'x'"):
        storage.create("x", b"mine")
    assert storage.read("x") == b"mine"


def test_a_collision_without_a_winner_is_no_existing_object() -> None:
    colliding = Broken("put", raising(AlreadyExistsError("409 ConditionalRequestConflict")))
    with pytest.raises(StorageError, match="unknown") as error:
        ObjectStorage("test://t", "test://t", colliding, CAPABLE).create("x", b"")
    assert type(error.value) is StorageError


@pytest.mark.parametrize("kind", ["s3", "gcs", "azure"])
def test_a_refusal_because_of_the_object_needs_no_second_look(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = new_location(kind, tmp_path)("t")
    storage.create("x", b"1")

    def fail(self: ObjectStorage, path: str) -> None:
        raise AssertionError("looked again")

    monkeypatch.setattr(ObjectStorage, "head", fail)
    with pytest.raises(ObjectExistsError, match="'x'"):
        storage.create("x", b"2")


def test_a_timeout_of_create_stays_a_timeout() -> None:
    slow = Broken("put", raising(GenericError("operation timed out")))
    with pytest.raises(StorageError, match="create 'x' failed: operation timed out") as error:
        ObjectStorage("test://t", "test://t", slow, CAPABLE).create("x", b"")
    assert type(error.value) is StorageError


def test_failures_within_a_range_are_not_taken_for_its_end() -> None:
    failing = Broken("get", raising(GenericError("connection reset")))
    failing.inner.put("x", b"0123456789")
    with pytest.raises(StorageError, match="connection reset"):
        ObjectStorage("test://t", "test://t", failing, CAPABLE).read("x", start=3, length=4)


def test_messages_keep_signed_urls_and_debug_dumps_to_themselves() -> None:
    secret = "GET https://a.blob.core.windows.net/c/x?sig=SECRET failed\n\nDebug source:\nSECRET"
    failing = Broken("get", raising(GenericError(secret)))
    with pytest.raises(StorageError, match="failed") as error:
        ObjectStorage("test://t", "test://t", failing, CAPABLE).read("x")
    assert "SECRET" not in str(error.value)
    # Tracebacks show the cause and, unless suppressed, the context.
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__


def test_failed_deletions_are_told() -> None:
    failing = Broken("delete", raising(GenericError("access denied")))
    for batch in (1, 100):
        storage = ObjectStorage("test://t", "test://t", failing, CAPABLE, delete_batch=batch)
        with pytest.raises(StorageError, match="delete 'x' failed: access denied"):
            storage.delete(["x", "y"])


@pytest.mark.parametrize("kind", ["s3", "gcs", "azure"])
def test_a_missing_bucket_is_no_missing_object(kind: str, tmp_path: Path) -> None:
    uri, options = new_place(kind, tmp_path)
    storage = open_storage(f"{uri}-which-is-not-there/t", options)
    for operation in (
        lambda: storage.read("x"),
        lambda: storage.replace("x", b""),
        lambda: list(storage.list("d")),
    ):
        with pytest.raises(BucketNotFoundError, match="the bucket or container doesn't exist"):
            operation()


def test_conditional_writes_that_are_switched_off_are_refused(tmp_path: Path) -> None:
    uri, options = new_place("s3", tmp_path)
    storage = open_storage(f"{uri}/t", {**options, "aws_conditional_put": "disabled"})
    assert not storage.capabilities.put_if_absent
    with pytest.raises(UnsafeStorageError, match="without conditional writes"):
        storage.create("x", b"")


@pytest.mark.parametrize("path", ["", "d//x", "d/./x", "d/"])
def test_paths_that_would_change_are_refused(path: str) -> None:
    storage = ObjectStorage("test://t", "test://t", MemoryStore(), CAPABLE)
    with pytest.raises(InvalidArgumentError, match="can't keep"):
        storage.create(path, b"")


def test_what_no_object_can_be_called_is_not_there_to_be_deleted() -> None:
    """A log may name it: a lite vacuum of a table in Azure would else fail, now and for ever."""
    storage = ObjectStorage("test://t", "test://t", MemoryStore(), CAPABLE, unfit="\\")
    storage.create("a/b", b"")
    storage.create("c", b"")
    assert [*storage.walk("a\\b/_delta_log")] == []
    storage.delete(["a\\b", "c", "..\\a"])
    assert [info.path for info in storage.walk("")] == ["a/b"]
    with pytest.raises(InvalidArgumentError, match=r"without '\.\.'"):
        storage.delete(["../a\\b"])


def test_shows_no_credentials() -> None:
    storage = open_storage("s3://bucket/t", {"key": "AKIA", "secret": "SECRET", "token": "TOKEN"})
    assert not [word for word in ("AKIA", "SECRET", "TOKEN") if word in f"{storage!r}{storage}"]
    assert "s3://bucket/t" in repr(storage)


def test_survives_a_pickle(gcs: GcsServer) -> None:
    storage = in_gcs(gcs)
    storage.create("x", b"1")
    assert pickle.loads(pickle.dumps(storage)).read("x") == b"1"
