"""Whatever a store or the network before it does to a commit, it is there once or not at all.

`test_filesystem` steps through the committer's own decisions; here each kind
of store has its word: what it does with a second put, and what a dying or delayed writer leaves in it.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from airflow_delta.engine.commit.filesystem import FileSystemCommitter
from airflow_delta.engine.errors import NothingWrittenError
from airflow_delta.engine.log.files import commit_path
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.location import open_storage
from tests.faulty_storage import Crash, Fault, FaultyStorage, How
from tests.memory_server import MemoryServerStorage, memory_server
from tests.object_stores import KINDS, new_location, new_place
from tests.tampering_proxy import Proxy, Tamper, tampering_proxy

VERSION = 3
PATH = commit_path(VERSION)
ENDPOINTS = {
    "s3": "aws_endpoint_url",
    "gcs": "google_base_url",
    "azure": "azure_storage_endpoint",
}


@pytest.fixture(params=[*KINDS, "memory server"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    """A fresh table location in each kind of store."""
    if request.param == "memory server":
        with memory_server() as address:
            yield MemoryServerStorage(address, "t")
    else:
        yield new_location(request.param, tmp_path)("t")


def commit_of(writer: str) -> bytes:
    return json.dumps({"commitInfo": {"txnId": writer}}).encode() + b"\n"


def commit(storage: Storage, writer: str) -> str | None:
    """Try to make the version; the commit file, if it is the writer's then."""
    committer = FileSystemCommitter(storage, table=storage.root)
    return committer.commit(VERSION, commit_of(writer), txn_id=writer)


def versions(storage: Storage) -> list[str]:
    """The commits that readers see."""
    return [info.path for info in storage.list("_delta_log") if info.path.endswith(".json")]


def check_is_of(storage: Storage, writer: str) -> None:
    assert versions(storage) == [PATH]
    assert storage.read(PATH) == commit_of(writer)
    # The next writer learns that the version is taken, and the first writer that it has made it.
    assert not commit(storage, "next")
    assert commit(storage, writer)
    assert storage.read(PATH) == commit_of(writer)


@pytest.mark.parametrize("how", [None, How.FAIL, How.LOSE_ANSWER, How.REPEAT], ids=str)
def test_a_put_that_goes_wrong_once_is_ours_in_the_end(store: Storage, how: How | None) -> None:
    assert commit(FaultyStorage(store, Fault("create", 1, how)), "mine")
    check_is_of(store, "mine")


@pytest.mark.parametrize("how", [None, How.FAIL, How.LOSE_ANSWER, How.REPEAT], ids=str)
def test_a_writer_who_slept_finds_the_version_taken(store: Storage, how: How | None) -> None:
    """It wakes up between its decision to put and the put."""
    theirs = Fault("create", 1, how, meanwhile=lambda: commit(store, "theirs"))
    assert not commit(FaultyStorage(store, theirs), "mine")
    check_is_of(store, "theirs")


@pytest.mark.parametrize("how", [How.CRASH_BEFORE, How.CRASH_WITHIN], ids=str)
def test_a_writer_who_died_before_left_nothing_that_counts(store: Storage, how: How) -> None:
    with pytest.raises(Crash):
        commit(FaultyStorage(store, Fault("create", 1, how)), "dead")
    assert versions(store) == []
    assert commit(store, "next of kin")
    check_is_of(store, "next of kin")


def test_a_writer_who_died_before_he_knew_has_committed(store: Storage) -> None:
    with pytest.raises(Crash):
        commit(FaultyStorage(store, Fault("create", 1, How.CRASH_AFTER)), "dead")
    check_is_of(store, "dead")


def test_of_writers_at_once_one_wins(store: Storage) -> None:
    writers = [f"w{number}" for number in range(6)]
    start = threading.Barrier(len(writers))
    won: list[str] = []

    def write(writer: str) -> None:
        start.wait(timeout=30)
        if commit(store, writer):
            won.append(writer)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    check_is_of(store, won[0])


# Faults of the network, which the store's own client meets and may repeat requests for.


class Behind:
    """A store, and the same one behind a proxy."""

    def __init__(self, kind: str, tmp_path: Path) -> None:
        uri, self._options = new_place(kind, tmp_path)
        self._uri, self._endpoint = f"{uri}/t", ENDPOINTS[kind]
        self.store = self._open(self._options[self._endpoint])

    def proxy(self, *faults: Tamper) -> AbstractContextManager[Proxy]:
        return tampering_proxy(self._options[self._endpoint], *faults)

    def through(self, proxy: Proxy) -> Storage:
        return self._open(proxy.url)

    def _open(self, endpoint: str) -> Storage:
        return open_storage(self._uri, {**self._options, self._endpoint: endpoint})


@pytest.fixture(params=ENDPOINTS)
def behind(request: pytest.FixtureRequest, tmp_path: Path) -> Behind:
    return Behind(request.param, tmp_path)


@pytest.mark.parametrize(
    "fault",
    [Tamper.LOSE_REQUEST, Tamper.LOSE_ANSWER, Tamper.SEND_TWICE, Tamper.ANSWER_500],
    ids=str,
)
def test_a_connection_that_breaks_once_costs_no_commit(behind: Behind, fault: Tamper) -> None:
    with behind.proxy(fault) as proxy:
        assert commit(behind.through(proxy), "mine")
        assert proxy.met == [fault]
    check_is_of(behind.store, "mine")


@pytest.mark.parametrize("fault", [Tamper.LOSE_ANSWER, Tamper.ANSWER_500], ids=str)
def test_a_lost_refusal_is_still_one(behind: Behind, fault: Tamper) -> None:
    """Another writer has won, and the store's word of it gets lost."""
    commit(behind.store, "theirs")
    with behind.proxy(fault) as proxy:
        assert not commit(behind.through(proxy), "mine")
        assert proxy.met == [fault]
    check_is_of(behind.store, "theirs")


def test_a_put_that_arrives_late_overwrites_nothing(behind: Behind) -> None:
    """The first request hangs somewhere, its repetition makes the version, and others come after it."""
    with behind.proxy(Tamper.DELAY) as proxy:
        assert commit(behind.through(proxy), "mine")
        assert {status // 100 for status in proxy.deliver()} == {4}
    check_is_of(behind.store, "mine")


def test_a_put_of_a_writer_who_lost_arrives_late(behind: Behind) -> None:
    """Another writer makes the version while the request hangs; then comes the request."""
    with behind.proxy(Tamper.DELAY) as proxy:
        proxy.meanwhile = lambda: commit(behind.store, "theirs")
        assert not commit(behind.through(proxy), "mine")
        assert {status // 100 for status in proxy.deliver()} == {4}
    check_is_of(behind.store, "theirs")


# Refusals for good: reported at once, and with certainty.


@pytest.mark.parametrize("kind", ENDPOINTS)
def test_where_there_is_no_bucket_nothing_was_written(kind: str, tmp_path: Path) -> None:
    uri, options = new_place(kind, tmp_path)
    with pytest.raises(NothingWrittenError, match="nothing was written"):
        commit(open_storage(f"{uri}-which-is-not-there/t", options), "mine")


def test_a_wrong_key_has_written_nothing(tmp_path: Path) -> None:
    uri, options = new_place("azure", tmp_path)
    key = options["azure_storage_account_key"]
    storage = open_storage(f"{uri}/t", {**options, "azure_storage_account_key": f"AAAA{key[4:]}"})
    with pytest.raises(NothingWrittenError, match=r"was refused, and nothing was written: .*403"):
        commit(storage, "mine")
    assert versions(open_storage(f"{uri}/t", options)) == []


def test_who_may_only_read_has_written_nothing(tmp_path: Path) -> None:
    uri, options = new_place("s3", tmp_path)
    writer = open_storage(f"{uri}/t", options)
    # Makes sure that the store was tried before, as by any writer who lost the right later.
    writer.create("x", b"")
    with (
        no_rights(options["aws_endpoint_url"]),
        pytest.raises(NothingWrittenError, match=r"was refused, and nothing was written: .*403"),
    ):
        commit(writer, "mine")
    assert versions(writer) == []


@contextmanager
def no_rights(endpoint: str) -> Iterator[None]:
    """Let moto check the permissions of callers; no caller has any."""

    def ask_after(calls: str) -> None:
        urllib.request.urlopen(
            urllib.request.Request(
                f"{endpoint}/moto-api/reset-auth",
                data=calls.encode(),
                headers={"Content-Type": "text/plain"},
                method="POST",
            )
        ).close()

    ask_after("0")
    try:
        yield
    finally:
        ask_after("inf")
