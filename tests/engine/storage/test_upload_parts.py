"""How large files are published: in parts, of which few are under way and none are left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
from obstore.exceptions import GenericError
from obstore.store import MemoryStore

from airflow_delta.engine.errors import (
    NothingWrittenError,
    ObjectExistsError,
    StorageError,
    UnsafeStorageError,
)
from airflow_delta.engine.storage import object_store, upload_parts
from airflow_delta.engine.storage.base import Capabilities
from airflow_delta.engine.storage.location import open_storage
from airflow_delta.engine.storage.object_store import ObjectStorage
from tests.gcs_server import GcsServer
from tests.object_stores import new_place

PART = 5 * 1024 * 1024
LARGE = bytes(2 * PART + 1)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "_LARGE", PART)
    monkeypatch.setattr(upload_parts, "_PART", PART)


Publication = Callable[[Callable[[], None]], None]


def publishing(monkeypatch: pytest.MonkeyPatch, publication: Publication) -> None:
    """Replace how an upload is published; ``publication`` is given the way it really is."""
    inner: Callable[..., AbstractContextManager[Callable[[], None]]] = upload_parts.upload_in_parts

    @contextmanager
    def outer(*args: Any) -> Iterator[Callable[[], None]]:
        with inner(*args) as publish:
            yield lambda: publication(publish)

    monkeypatch.setattr(object_store, "upload_in_parts", outer)


def write(storage: ObjectStorage, *, overwrite: bool = False, content: bytes = LARGE) -> None:
    with storage.writer("d/x", overwrite=overwrite) as file:
        file.write(content)


def in_s3(tmp_path: Path) -> tuple[ObjectStorage, Callable[[], list[str]]]:
    """A storage, and the uploads that are under way in it."""
    uri, options = new_place("s3", tmp_path)
    client = boto3.client(
        "s3",
        endpoint_url=options["aws_endpoint_url"],
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    )
    storage = open_storage(f"{uri}/t", options)
    assert isinstance(storage, ObjectStorage)

    def uploads() -> list[str]:
        answer = client.list_multipart_uploads(Bucket=uri.removeprefix("s3://"))
        return [upload["Key"] for upload in answer.get("Uploads", [])]

    return storage, uploads


@pytest.fixture
def gcs() -> Iterator[GcsServer]:
    server = GcsServer()
    server.add_bucket("bucket")
    # Parts that are under way when an upload is aborted find nobody to answer to.
    server._server.handle_error = lambda *_: None  # type: ignore[method-assign]
    yield server
    server.stop()


def in_gcs(server: GcsServer) -> tuple[ObjectStorage, Callable[[], list[str]]]:
    options = {"google_base_url": server.url, "google_bearer_token": "token"}
    storage = open_storage("gs://bucket/t", options)
    assert isinstance(storage, ObjectStorage)
    return storage, lambda: list(server._state.uploads)


@pytest.fixture(params=["s3", "gcs"])
def place(request: pytest.FixtureRequest) -> tuple[ObjectStorage, Callable[[], list[str]]]:
    if request.param == "s3":
        return in_s3(request.getfixturevalue("tmp_path"))
    return in_gcs(request.getfixturevalue("gcs"))


class Counting(BaseHTTPRequestHandler):
    """A store that takes parts, counts them and keeps nothing."""

    protocol_version = "HTTP/1.1"
    lock = threading.Lock()
    full = threading.Barrier(4)
    under_way = most = parts = largest = 0

    def log_message(self, *args: Any) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self.answer(404)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "uploads" in self.path:
            self.answer(200, b"<R><UploadId>u</UploadId></R>")
        else:
            self.answer(200, b"<R><ETag>e</ETag></R>")

    def do_PUT(self) -> None:
        size = left = int(self.headers["Content-Length"])
        with self.lock:
            Counting.parts += 1
            first = Counting.parts <= 4
            Counting.under_way += size
            Counting.most = max(Counting.most, Counting.under_way)
            Counting.largest = max(Counting.largest, size)
        while left:
            left -= len(self.rfile.read(min(left, 65536)))
        if first:
            self.full.wait(timeout=30)  # until as many have come as ever do at a time
        with self.lock:
            Counting.under_way -= size
        self.answer(200)

    def answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("ETag", '"e"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.mark.parametrize("overwrite", [True, False])
def test_few_parts_are_under_way_at_a_time(
    monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    for name in ("under_way", "most", "parts", "largest"):
        monkeypatch.setattr(Counting, name, 0)
    monkeypatch.setattr(Counting, "full", threading.Barrier(4))
    monkeypatch.setattr(object_store, "honours_conditional_put", lambda *args, **kwargs: True)
    part = 100_000
    monkeypatch.setattr(upload_parts, "_PART", part)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Counting)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    options = {"key": "k", "secret": "s", "region": "us-east-1"}
    storage = open_storage(
        "s3://b/t", {**options, "endpoint": f"http://127.0.0.1:{server.server_port}"}
    )
    assert isinstance(storage, ObjectStorage)
    write(storage, overwrite=overwrite, content=bytes(60 * part))
    server.shutdown()
    server.server_close()
    assert Counting.parts == 60
    assert Counting.largest == part
    assert 4 * part <= Counting.most <= 5 * part


def test_parts_of_huge_files_are_larger_as_stores_take_ten_thousand(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sizes: list[int] = []

    def open_writer(store: Any, key: str, *, buffer_size: int, max_concurrency: int) -> Any:
        sizes.append(buffer_size)
        raise GenericError("not tried")

    monkeypatch.setattr(upload_parts, "open_writer", open_writer)
    for size in (PART + 1, 10_000 * PART, 10_000 * PART + 1):
        file = tmp_path / str(size)
        with file.open("wb") as sparse:
            sparse.truncate(size)
        with pytest.raises(GenericError), upload_parts.upload_in_parts(None, "x", file):
            pass
    assert sizes == [PART, PART, PART + 1]


@pytest.mark.parametrize("size", [PART, PART + 1, 2 * PART, 2 * PART + 1])
def test_sizes_about_those_of_whole_parts(gcs: GcsServer, size: int) -> None:
    storage, uploads = in_gcs(gcs)
    content = b"".join(number.to_bytes(8, "big") for number in range(size // 8 + 1))[:size]
    write(storage, content=content)
    assert storage.read("d/x") == content
    parts = sum("partNumber" in request for request in gcs.requests)
    assert parts == (0 if size == PART else -(-size // PART))
    assert uploads() == []


def test_nothing_is_uploaded_where_there_is_an_object(gcs: GcsServer) -> None:
    storage, _ = in_gcs(gcs)
    storage.create("d/x", b"old")
    gcs.requests.clear()
    with pytest.raises(ObjectExistsError, match="'d/x'"):
        write(storage)
    assert [request.split()[0] for request in gcs.requests] == ["HEAD"]


def test_an_object_that_appears_during_the_upload_is_not_overwritten(
    place: tuple[ObjectStorage, Callable[[], list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, uploads = place
    looks: list[bool] = []
    is_there = ObjectStorage._is_there
    under_way: list[list[str]] = []

    def look(self: ObjectStorage, path: str) -> bool:
        if looks:
            under_way.append(uploads())
            storage.replace(path, b"somebody was faster")
        looks.append(is_there(self, path))
        return looks[-1]

    monkeypatch.setattr(ObjectStorage, "_is_there", look)
    with pytest.raises(ObjectExistsError, match="'d/x'") as error:
        write(storage)
    assert looks == [False, True]
    assert (error.value.path, error.value.operation) == ("d/x", "create")
    assert storage.read("d/x") == b"somebody was faster"
    assert len(under_way[0]) == 1
    assert uploads() == []


@pytest.mark.parametrize("overwrite", [True, False])
def test_an_upload_that_is_not_published_is_aborted(
    place: tuple[ObjectStorage, Callable[[], list[str]]],
    monkeypatch: pytest.MonkeyPatch,
    overwrite: bool,
) -> None:
    storage, uploads = place

    def fail(publish: Callable[[], None]) -> None:
        raise KeyboardInterrupt

    publishing(monkeypatch, fail)
    with pytest.raises(KeyboardInterrupt):
        write(storage, overwrite=overwrite)
    assert list(storage.walk("")) == []
    assert uploads() == []


def test_a_publication_of_which_the_answer_is_lost_meets_itself(
    place: tuple[ObjectStorage, Callable[[], list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `create`: whose the object is, is for the caller to find out."""
    storage, _ = place

    def lose(publish: Callable[[], None]) -> None:
        publish()
        raise GenericError("connection reset")

    publishing(monkeypatch, lose)
    with pytest.raises(ObjectExistsError, match="'d/x'"):
        write(storage)
    assert storage.read("d/x") == LARGE


@pytest.mark.parametrize("overwrite", [True, False])
@pytest.mark.parametrize(
    "error", [GenericError("connection reset"), FileNotFoundError("NoSuchUpload")]
)
def test_a_publication_that_fails_says_why_and_not_that_nothing_was_written(
    place: tuple[ObjectStorage, Callable[[], list[str]]],
    monkeypatch: pytest.MonkeyPatch,
    overwrite: bool,
    error: Exception,
) -> None:
    storage, _ = place

    def fail(publish: Callable[[], None]) -> None:
        raise error

    publishing(monkeypatch, fail)
    with pytest.raises(StorageError, match=rf"'d/x' failed: {error}") as caught:
        write(storage, overwrite=overwrite)
    assert not isinstance(caught.value, (NothingWrittenError, ObjectExistsError))


def test_an_unsafe_store_is_refused_whatever_the_size() -> None:
    incapable = Capabilities(put_if_absent=False, start_after=True, remote=True)
    store = MemoryStore()
    with pytest.raises(UnsafeStorageError, match="without conditional writes"):
        write(ObjectStorage("test://t", "test://t", store, incapable))
    assert list(store.list()) == []
    write(ObjectStorage("test://t", "test://t", store, incapable, single_writer=True))
    assert bytes(store.get("d/x").bytes()) == LARGE
