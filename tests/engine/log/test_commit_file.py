from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from airflow_delta.engine.errors import CorruptLogError, ObjectNotFoundError
from airflow_delta.engine.log.commit_file import read_commit_info, read_commit_infos
from airflow_delta.engine.log.files import commit_path, unbackfilled_commit_path
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.engine.log.logs import UUID, Counting, make_log

INFO = {"timestamp": 1, "operation": "WRITE", "operationParameters": {"mode": "\u00e9"}}


def line(**actions: Any) -> bytes:
    return json.dumps(actions).encode()


def holding(*lines: bytes, end: bytes = b"\n") -> MemoryStorage:
    storage = make_log([])
    storage.replace(commit_path(0), b"\n".join(lines) + end)
    return storage


def read_one(storage: MemoryStorage) -> Mapping[str, Any] | None:
    return read_commit_info(storage, 0)


def read_batch(storage: MemoryStorage) -> Mapping[str, Any] | None:
    return read_commit_infos(storage, [0])[0]


def read_small(storage: MemoryStorage) -> Mapping[str, Any] | None:
    return read_commit_infos(storage, [0], sizes={0: 1})[0]


# All ways of reading agree on every commit.
@pytest.fixture(params=[read_one, read_batch, read_small])
def read(request: pytest.FixtureRequest) -> Callable[[MemoryStorage], Mapping[str, Any] | None]:
    return request.param


ADD = line(add={"path": "a", "stats": json.dumps({"maxValues": {"x": '"commitInfo"'}})})
LONG_ADD = line(add={"path": "a" * 5000})


@pytest.mark.parametrize(
    "lines",
    [
        [line(commitInfo=INFO)],
        [line(commitInfo=INFO), ADD],
        [ADD, line(commitInfo=INFO)],
        [LONG_ADD, LONG_ADD, line(commitInfo=INFO)],
        [line(fromTheFuture={"a": 1}), b"", line(commitInfo=INFO), ADD],
        [line(commitInfo=None), line(commitInfo=INFO)],
        [b'{ "commitInfo" : ' + json.dumps(INFO).encode() + b" }\r"],
        [b"\xef\xbb\xbf" + line(commitInfo=INFO)],
        [line(commitInfo=INFO), b"{broken"],
    ],
)
@pytest.mark.parametrize("end", [b"\n", b""])
def test_it_is_found_wherever_it_stands(read, lines, end):
    assert read(holding(*lines, end=end)) == INFO


def test_a_long_one_is_read_whole(read):
    info = {"operation": "MERGE", "operationParameters": {"predicate": "x" * 100_000}}
    assert read(holding(line(commitInfo=info), ADD)) == info
    assert read(holding(line(commitInfo=info), end=b"")) == info


@pytest.mark.parametrize("length", range(4094, 4099))
def test_the_end_of_the_head_is_no_special_place(read, length):
    empty = len(line(commitInfo={"operation": ""}))
    info = {"operation": "x" * (length - empty)}
    assert read(holding(line(commitInfo=info), end=b"")) == info
    assert read(holding(line(commitInfo=info), ADD)) == info


@pytest.mark.parametrize("lines", [[ADD], [LONG_ADD], [b""], [line(commitInfo=None)]])
def test_there_may_be_none(read, lines):
    assert read(holding(*lines)) is None


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "zero bytes"),
        ([b'{"commitInfo":{"operation":'], "line 1 .*is not valid JSON"),
        ([b'{"commitInfo":{"operation":"\xff"}}'], "line 1 .*is not valid JSON"),
        ([ADD, line(commitInfo="WRITE")], "line 2 .* has str as commitInfo"),
    ],
)
def test_a_broken_one_is_an_error(read, lines, message):
    with pytest.raises(CorruptLogError, match=message) as caught:
        read(holding(*lines, end=b""))
    assert (caught.value.version, caught.value.path) == (0, commit_path(0))


@pytest.mark.parametrize("start", [b"", b'{"add":'])
def test_a_hole_is_not_read_to_its_end(start: bytes):
    log = holding(start + bytes(10_000_000))
    storage = Counting(log)
    with pytest.raises(CorruptLogError, match=r"line 1 of .* NUL"):
        read_commit_info(storage, 0)
    assert len(storage.calls) == 1


def test_only_the_head_of_a_big_commit_is_read():
    storage = Counting(holding(line(commitInfo=INFO), *[LONG_ADD] * 100))
    lengths: list[int | None] = []
    inner = storage._storage.read

    def read(path: str, *, start: int = 0, length: int | None = None) -> bytes:
        lengths.append(length)
        return inner(path, start=start, length=length)

    storage.read = read  # type: ignore[method-assign]
    assert read_commit_info(storage, 0) == INFO
    assert len(lengths) == 1
    assert lengths[0] is not None


def test_it_is_found_in_the_head_wherever_it_stands_there():
    protocol = line(protocol={"minReaderVersion": 1})
    storage = Counting(holding(protocol, line(commitInfo=INFO), *[LONG_ADD] * 100))
    assert read_commit_info(storage, 0) == INFO
    assert len(storage.calls) == 1


@pytest.mark.parametrize("remote", [False, True])
def test_of_many_commits_the_big_ones_are_read_by_their_heads(remote: bool):
    """Even a hundred commits of a gigabyte each must fit into memory."""
    big = b"\n".join([line(commitInfo=INFO), *[LONG_ADD] * 20])
    log = make_log([])
    for version in range(100):
        log.replace(commit_path(version), line(commitInfo=INFO) if version % 2 else big)
    storage = Counting(log)
    storage.capabilities = replace(storage.capabilities, remote=remote)
    sizes = {version: 100 if version % 2 else len(big) for version in range(100)}
    infos = read_commit_infos(storage, range(100), sizes=sizes)
    assert infos == dict.fromkeys(range(100), INFO)
    assert list(infos) == list(range(100))
    whole = [path for name, paths in storage.calls if name == "read_many" for path in paths]
    assert sorted(whole) == [commit_path(version) for version in range(1, 100, 2)]
    heads = [path for name, path in storage.calls if name == "read"]
    assert sorted(heads) == [commit_path(version) for version in range(0, 100, 2)]


def test_a_commit_that_is_gone():
    storage = holding(line(commitInfo=INFO))
    with pytest.raises(ObjectNotFoundError, match="00000000000000000007"):
        read_commit_info(storage, 7)
    assert read_commit_infos(storage, [7, 0, 8]) == {0: INFO}
    assert read_commit_infos(storage, [7, 0, 8], sizes={7: 1, 0: 1}) == {0: INFO}


def test_many_commits_come_in_the_order_asked_for():
    storage = make_log([])
    for version in range(150):
        storage.replace(commit_path(version), line(commitInfo={"version": version}))
    wanted = list(range(149, -1, -1))
    infos = read_commit_infos(storage, wanted)
    assert list(infos) == wanted
    assert all(info == {"version": version} for version, info in infos.items())


def test_unbackfilled_commits_are_read_where_they_are():
    storage = holding(line(commitInfo={"operation": "backfilled"}))
    path = unbackfilled_commit_path(1, UUID)
    storage.replace(path, line(commitInfo=INFO))
    assert read_commit_info(storage, 1, path=path) == INFO
    assert read_commit_infos(storage, [1, 0], paths={1: path}) == {
        1: INFO,
        0: {"operation": "backfilled"},
    }
