"""The storage contract (`airflow_delta.engine.storage.base`), over every implementation.

Those at the end of `OPENERS` can't create exclusively, and keep the rest of the contract for a user who
says that there is one writer.
"""

from __future__ import annotations

import errno
import io
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine.errors import (
    InvalidArgumentError,
    NotRegularFileError,
    ObjectExistsError,
    ObjectNotFoundError,
)
from airflow_delta.engine.storage import object_store, upload_parts
from airflow_delta.engine.storage.base import FileInfo, Level, Storage
from airflow_delta.engine.storage.location import open_storage
from tests.memory_server import MemoryServerStorage, memory_server
from tests.object_stores import KINDS, new_location, new_place

_NUMBERS = count()

# Names that URI-encoding, globbing, shells or path handling may mangle; every store must keep them.
ODD_NAMES = [
    "a b",
    "a%20b",
    "a%2520b",
    "a+b",
    "a#b?c",
    "a&b=c",
    "p=2024-01-01 00%3A00",
    "x:y",
    "[x]*{y}",
    "quote'\"",
    "~tilde",
    "trailing.",
    "é",
    "e\u0301",
    "日本",
    "😀",
    "\uffee",
    "_under",
    ".hidden",
]


Opener = Callable[[str], Storage]

# The smallest part that S3 takes.
_PART = 5 * 1024 * 1024


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let 12 MB be large: of three parts."""
    monkeypatch.setattr(object_store, "_LARGE", _PART)
    monkeypatch.setattr(upload_parts, "_PART", _PART)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with memory_server() as address:
        yield address


def by_server(request: pytest.FixtureRequest) -> Opener:
    address, base = request.getfixturevalue("server"), f"place-{next(_NUMBERS)}"
    return lambda path: MemoryServerStorage(address, f"{base}/{path}")


def by_kind(request: pytest.FixtureRequest) -> Opener:
    return new_location(request.param, request.getfixturevalue("tmp_path"))


def s3_without_conditions(request: pytest.FixtureRequest) -> Opener:
    uri, options = new_place("s3", request.getfixturevalue("tmp_path"))
    return single_writer(uri, {**options, "aws_conditional_put": "disabled"})


def directory_without_links(request: pytest.FixtureRequest) -> Opener:
    def no_link(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    request.getfixturevalue("monkeypatch").setattr(os, "link", no_link)
    return single_writer(str(request.getfixturevalue("tmp_path")), {})


def by_fsspec(request: pytest.FixtureRequest) -> Opener:
    return single_writer(f"local://{request.getfixturevalue('tmp_path')}", {})


def single_writer(uri: str, options: Mapping[str, str]) -> Opener:
    options = {**options, "single_writer": "true"}
    return lambda path: open_storage(f"{uri}/{path}" if path else uri, options)


EXCLUSIVE = {**dict.fromkeys(KINDS, by_kind), "memory server": by_server}
OPENERS = {
    **EXCLUSIVE,
    "s3 without conditions": s3_without_conditions,
    "directory without links": directory_without_links,
    "fsspec": by_fsspec,
}


@pytest.fixture(params=OPENERS)
def opener(request: pytest.FixtureRequest) -> Opener:
    """A function from a path below one fresh, empty place to a storage rooted there."""
    return OPENERS[request.param](request)


@pytest.fixture
def storage(opener: Opener) -> Storage:
    """A storage over a fresh, empty table location."""
    return opener("tables/t")


def names(storage: Storage, directory: str, start_after: str = "") -> list[str]:
    """The names that ``list`` gives."""
    return [info.name for info in storage.list(directory, start_after=start_after)]


def everything(storage: Storage) -> set[str]:
    """The paths of all objects that aren't hidden."""
    return {info.path for info in storage.walk("") if not info.name.startswith(".")}


# Places


def test_a_place_has_one_name(opener: Opener) -> None:
    one, again = opener("tables/t"), opener("tables/t/")
    assert one.canonical_location == again.canonical_location
    others = [opener(path).canonical_location for path in ("tables", "tables/t/u", "tables/tt", "")]
    assert len({one.canonical_location, *others}) == 5
    one.create("x", b"1")
    assert again.read("x") == b"1"


# Reading


def test_reads_all_of_an_object(storage: Storage) -> None:
    storage.create("d/x", b"0123456789")
    assert storage.read("d/x") == b"0123456789"


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [
        (0, 4, b"0123"),
        (3, 4, b"3456"),
        (3, None, b"3456789"),
        (8, 100, b"89"),
        (10, None, b""),
        (12, 5, b""),
        (4, 0, b""),
    ],
)
def test_reads_a_range_cut_off_at_the_end(
    storage: Storage, start: int, length: int | None, expected: bytes
) -> None:
    storage.create("x", b"0123456789")
    assert storage.read("x", start=start, length=length) == expected


def test_reads_an_empty_object(storage: Storage) -> None:
    storage.create("empty", b"")
    assert storage.read("empty") == b""
    assert storage.read("empty", start=0, length=10) == b""
    assert storage.head("empty").size == 0
    assert storage.open("empty").read() == b""


def test_reading_a_missing_object_says_which(storage: Storage) -> None:
    storage.create("d/there", b"x")
    with pytest.raises(ObjectNotFoundError, match="missing") as error:
        storage.read("d/missing")
    assert error.value.path == "d/missing"
    assert error.value.operation == "read"
    with pytest.raises(ObjectNotFoundError, match="missing"):
        storage.read("d/missing", start=5, length=2)


def test_a_directory_is_no_object(storage: Storage) -> None:
    storage.create("d/there", b"x")
    with pytest.raises(ObjectNotFoundError, match="'d'"):
        storage.read("d")
    with pytest.raises(ObjectNotFoundError, match="'d'"):
        storage.head("d")
    assert storage.read_many(["d", "d/there/below"]) == [None, None]


def test_reads_many_in_the_order_asked_with_none_for_the_missing(storage: Storage) -> None:
    for number in range(20):
        storage.create(f"d/{number}", f"content {number}".encode())
    wanted = ["d/7", "d/none", "d/0", "d/19", "d/7"]
    assert storage.read_many(wanted) == [
        b"content 7",
        None,
        b"content 0",
        b"content 19",
        b"content 7",
    ]
    assert storage.read_many([]) == []


# Opening


@pytest.mark.parametrize("size_known", [True, False])
def test_an_open_file_seeks_like_any_other(storage: Storage, size_known: bool) -> None:
    data = bytes(range(256)) * 40
    storage.create("x", data)
    model = io.BytesIO(data)
    with storage.open("x", size=len(data) if size_known else None) as file:
        assert file.readable()
        assert file.seekable()
        for offset, whence, count in [
            (0, 0, 10),
            (100, 0, 300),
            (-50, 2, 10),
            (5, 1, 5),
            (-8, 2, 100),
            (20_000, 0, 5),
            (3, 0, -1),
        ]:
            assert file.seek(offset, whence) == model.seek(offset, whence)
            assert bytes(file.read(count)) == model.read(count)
            assert file.tell() == model.tell()
    assert file.closed


@pytest.mark.parametrize("size_known", [True, False])
def test_parquet_reads_from_an_open_file(storage: Storage, size_known: bool) -> None:
    table = pa.table({"n": list(range(5000)), "text": [f"value {n}" for n in range(5000)]})
    with storage.writer("t.parquet", overwrite=False) as file:
        pq.write_table(table, file, row_group_size=1000)
    size = storage.head("t.parquet").size if size_known else None
    with storage.open("t.parquet", size=size) as file, pq.ParquetFile(file) as parquet:
        assert parquet.metadata.num_row_groups == 5
        assert parquet.read_row_group(3, columns=["n"]) == table.select(["n"]).slice(3000, 1000)
        assert parquet.read() == table


def test_opening_a_missing_object_fails_by_the_first_read(storage: Storage) -> None:
    def open_and_read(size: int | None) -> None:
        with storage.open("missing", size=size) as file:
            file.read(1)

    with pytest.raises(ObjectNotFoundError, match="missing"):
        open_and_read(None)
    with pytest.raises(ObjectNotFoundError, match="missing"):
        open_and_read(10)


# Listing


def test_lists_the_files_of_one_directory_in_order(storage: Storage) -> None:
    for path in [
        "log/10",
        "log/9",
        "log/sub/8",
        "log/sub.json",
        "log/sub-1",
        "log/_x/0",
        "log2/1",
        "lo",
        "log.json",
    ]:
        storage.create(path, b"x")
    assert list(storage.list("log")) == list(storage.list("log/"))
    assert [info.path for info in storage.list("log")] == [
        "log/10",
        "log/9",
        "log/sub-1",
        "log/sub.json",
    ]
    assert names(storage, "") == ["lo", "log.json"]


def test_lists_only_names_after_the_start(storage: Storage) -> None:
    for name in ["00", "01.checkpoint", "01.json", "02.json", "_last"]:
        storage.create(f"log/{name}", b"x")
    storage.create("log/01/deep", b"x")
    storage.create("log/_sidecars/deep", b"x")
    assert names(storage, "log", "01") == ["01.checkpoint", "01.json", "02.json", "_last"]
    assert names(storage, "log", "01.json") == ["02.json", "_last"]
    assert names(storage, "log", "02") == ["02.json", "_last"]
    assert names(storage, "log", "_last") == []


def test_a_missing_directory_lists_nothing(storage: Storage) -> None:
    assert list(storage.list("nowhere")) == []
    assert list(storage.walk("nowhere")) == []
    storage.create("file", b"x")
    assert list(storage.list("file")) == []
    assert list(storage.list("file/below")) == []


def test_listed_size_and_time_are_those_of_head(storage: Storage) -> None:
    before_ms = time.time_ns() // 1_000_000
    storage.create("d/x", b"12345")
    (listed,) = storage.list("d")
    head = storage.head("d/x")
    assert head == FileInfo("d/x", 5, head.modified_ms)
    # HTTP tells times of whole seconds, a listing may know more.
    assert listed.modified_ms // 1000 == head.modified_ms // 1000
    assert (listed.path, listed.size) == ("d/x", 5)
    assert before_ms - 2_000 <= head.modified_ms <= time.time_ns() // 1_000_000 + 2_000


def test_a_created_object_is_listed_at_once(storage: Storage) -> None:
    for number in range(10):
        storage.create(f"d/{number}", b"x")
        assert names(storage, "d") == [str(each) for each in range(number + 1)]


def test_walks_all_depths(storage: Storage) -> None:
    paths = {"top", "d/x", "d/e/y", "d/e/f/z", "d2/x", "d/_delta_log/0.json"}
    for path in paths:
        storage.create(path, path.encode())
    assert everything(storage) == paths
    below = {info.path: info.size for info in storage.walk("d")}
    assert below == {path: len(path) for path in paths if path.startswith("d/")}


def test_a_level_tells_of_folders_without_what_they_hold(storage: Storage) -> None:
    for path in ("top", "d/x", "d/w %", "d/e/y", "d/e/f/z", "d 2%/x", "d/_delta_log/0.json"):
        storage.create(path, path.encode())
    levels = {
        "": (["top"], ["d", "d 2%"]),
        "d": (["d/w %", "d/x"], ["d/_delta_log", "d/e"]),
        "d/": (["d/w %", "d/x"], ["d/_delta_log", "d/e"]),
        "d/e/f": (["d/e/f/z"], []),
        "top": ([], []),
        "missing": ([], []),
    }
    for directory, (files, folders) in levels.items():
        found = storage.level(directory)
        assert sorted(found.folders) == folders
        assert sorted(info.path for info in found.files) == files
        assert sorted(found.files, key=lambda info: info.path) == list(storage.list(directory))


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_name_survives_every_operation(storage: Storage, name: str) -> None:
    path = f"dir {name}/{name}"
    storage.create(path, b"content")
    assert storage.read(path) == b"content"
    assert storage.head(path).path == path
    assert [info.path for info in storage.list(f"dir {name}")] == [path]
    assert [info.path for info in storage.walk("")] == [path]
    with pytest.raises(ObjectExistsError, match="create"):
        storage.create(path, b"other")
    storage.replace(path, b"replaced")
    assert storage.read_many([path]) == [b"replaced"]
    storage.delete([path])
    assert everything(storage) == set()


def test_a_backslash_is_kept_or_refused(storage: Storage) -> None:
    refused = False
    try:
        storage.create("d/back\\slash", b"x")
    except InvalidArgumentError:
        refused = True
    assert everything(storage) == (set() if refused else {"d/back\\slash"})


def test_names_ascend_by_their_utf8_bytes(storage: Storage) -> None:
    for name in ODD_NAMES:
        storage.create(f"d/{name}", b"x")
    ordered = sorted(ODD_NAMES, key=lambda name: name.encode("utf-8"))
    assert names(storage, "d") == ordered
    middle = ordered[len(ordered) // 2]
    assert names(storage, "d", middle) == ordered[len(ordered) // 2 + 1 :]


# Writing


def test_create_never_overwrites(storage: Storage) -> None:
    storage.create("d/x", b"first")
    with pytest.raises(ObjectExistsError, match="'d/x'") as error:
        storage.create("d/x", b"second")
    assert error.value.path == "d/x"
    assert error.value.operation == "create"
    assert storage.read("d/x") == b"first"
    assert names(storage, "d") == ["x"]


@pytest.mark.parametrize("opener", EXCLUSIVE, indirect=True)
def test_of_concurrent_creates_exactly_one_wins(storage: Storage) -> None:
    threads = 8
    start = threading.Barrier(threads)
    outcomes: dict[int, object] = {}

    def attempt(number: int) -> None:
        start.wait()
        try:
            storage.create("log/7", f"writer {number}".encode())
            outcomes[number] = None
        except Exception as error:
            outcomes[number] = error

    workers = [threading.Thread(target=attempt, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    winners = [number for number, outcome in outcomes.items() if outcome is None]
    losers = [outcome for outcome in outcomes.values() if outcome is not None]
    assert len(winners) == 1
    assert [type(loser) for loser in losers] == [ObjectExistsError] * (threads - 1)
    assert storage.read("log/7") == f"writer {winners[0]}".encode()
    assert [info.path for info in storage.walk("log")] == ["log/7"]


def test_replace_writes_new_objects_and_over_old_ones(storage: Storage) -> None:
    storage.replace("d/x", b"first, and longer")
    assert storage.read("d/x") == b"first, and longer"
    storage.replace("d/x", b"second")
    assert storage.read("d/x") == b"second"
    assert [info.path for info in storage.walk("")] == ["d/x"]


@pytest.mark.parametrize("overwrite", [True, False])
@pytest.mark.parametrize("size", [_PART, 11_000_000])
def test_writer_streams_an_object_of_many_parts(
    storage: Storage, overwrite: bool, size: int
) -> None:
    # The number of each piece is in it, so that one out of its place would be seen.
    content = b"".join(number.to_bytes(8, "big") for number in range(size // 8 + 1))[:size]
    with storage.writer("big", overwrite=overwrite) as file:
        for start in range(0, size, 1_000_000):
            file.write(content[start : start + 1_000_000])
        assert everything(storage) == set()
    assert everything(storage) == {"big"}
    assert storage.head("big").size == size
    assert storage.read("big") == content
    assert storage.read("big", start=_PART - 3, length=6) == content[_PART - 3 : _PART + 3]


@pytest.mark.parametrize("overwrite", [True, False])
def test_writer_shows_nothing_before_it_is_done(storage: Storage, overwrite: bool) -> None:
    with storage.writer("d/x", overwrite=overwrite) as file:
        file.write(b"half")
        file.flush()
        assert everything(storage) == set()
        file.write(b" and half")
    assert storage.read("d/x") == b"half and half"
    assert [info.path for info in storage.walk("")] == ["d/x"]


@pytest.mark.parametrize("overwrite", [True, False])
@pytest.mark.parametrize("size", [10, 12_000_000])
def test_an_abandoned_writer_leaves_nothing(storage: Storage, overwrite: bool, size: int) -> None:
    def fail() -> None:
        with storage.writer("d/x", overwrite=overwrite) as file:
            file.write(bytes(size))
            raise RuntimeError("changed my mind")

    with pytest.raises(RuntimeError, match="changed my mind"):
        fail()
    assert list(storage.walk("")) == []


def test_an_abandoned_writer_leaves_the_old_object(storage: Storage) -> None:
    storage.create("x", b"old")

    def fail() -> None:
        with storage.writer("x", overwrite=True) as file:
            file.write(bytes(12_000_000))
            raise RuntimeError("changed my mind")

    with pytest.raises(RuntimeError, match="changed my mind"):
        fail()
    assert storage.read("x") == b"old"


@pytest.mark.parametrize("size", [10, 12_000_000])
def test_writer_refuses_to_overwrite_on_exit(storage: Storage, size: int) -> None:
    def write() -> None:
        with storage.writer("x", overwrite=False) as file:
            file.write(bytes(size))
            storage.create("x", b"somebody was faster")

    with pytest.raises(ObjectExistsError, match="'x'"):
        write()
    assert storage.read("x") == b"somebody was faster"
    assert [info.path for info in storage.walk("")] == ["x"]


@pytest.mark.parametrize("size", [10, 12_000_000])
def test_writer_overwrites_where_it_may(storage: Storage, size: int) -> None:
    storage.create("x", b"old")
    with storage.writer("x", overwrite=True) as file:
        file.write(b"n" * size)
    assert storage.read("x") == b"n" * size


def test_writer_bears_a_caller_that_closes_the_file(storage: Storage) -> None:
    with storage.writer("x", overwrite=False) as file:
        file.write(b"content")
        file.close()
    assert storage.read("x") == b"content"


# Deleting


def test_deletes_what_is_there_and_bears_what_is_not(storage: Storage) -> None:
    for path in ["d/a", "d/b", "d/c"]:
        storage.create(path, b"x")
    storage.delete(["d/a", "d/missing", "nowhere/missing", "d/c"])
    storage.delete(iter(["d/a"]))
    storage.delete([])
    assert everything(storage) == {"d/b"}


def test_deletes_no_directory(storage: Storage) -> None:
    storage.create("d/x", b"x")
    storage.delete(["d"])
    assert storage.read("d/x") == b"x"


# The root


def test_root_has_no_trailing_slash(opener: Opener) -> None:
    assert opener("tables/t").root.endswith("tables/t")
    assert opener("tables/t/").root == opener("tables/t").root


def test_a_root_of_odd_characters_keeps_to_itself(opener: Opener) -> None:
    odd, decoded = opener("tables/a%20b c=é+#?"), opener("tables/a b c=é+#?")
    odd.create("d/x", b"odd")
    assert [info.path for info in odd.list("d")] == ["d/x"]
    assert odd.read("d/x") == b"odd"
    assert everything(decoded) == set()
    assert everything(opener("tables")) == {"a%20b c=é+#?/d/x"}


def test_neighbours_of_the_root_are_not_seen(opener: Opener) -> None:
    mine, neighbour, parent = opener("tables/t"), opener("tables/t2"), opener("tables")
    neighbour.create("d/x", b"theirs")
    mine.create("d/y", b"mine")
    assert everything(mine) == {"d/y"}
    assert names(mine, "d") == ["y"]
    assert everything(parent) == {"t/d/y", "t2/d/x"}
    with pytest.raises(ObjectNotFoundError, match="d/x"):
        mine.read("d/x")


@pytest.mark.parametrize("path", ["../t2/x", "d/../../t2/x", "..", "/x", "d/\0x"])
def test_no_operation_leaves_the_root(opener: Opener, path: str) -> None:
    storage, neighbour = opener("tables/t"), opener("tables/t2")
    neighbour.create("x", b"theirs")

    def stream() -> None:
        with storage.writer(path, overwrite=True) as file:
            file.write(b"mine")

    operations: list[Callable[[], object]] = [
        lambda: storage.read(path),
        lambda: storage.read_many([path]),
        lambda: storage.open(path),
        lambda: list(storage.list(path)),
        lambda: list(storage.walk(path)),
        lambda: storage.head(path),
        lambda: storage.create(path, b"mine"),
        lambda: storage.replace(path, b"mine"),
        stream,
        lambda: storage.delete([path]),
    ]
    for operation in operations:
        with pytest.raises(InvalidArgumentError, match="below the root"):
            operation()
    assert neighbour.read("x") == b"theirs"
    assert everything(opener("")) == {"tables/t2/x"}


@pytest.mark.parametrize("opener", ["local", "directory without links"], indirect=True)
def test_only_regular_files_of_a_file_system_are_objects(opener: Opener, tmp_path: Path) -> None:
    storage, neighbour = opener("tables/t"), opener("tables/t2")
    neighbour.create("d/x", b"theirs")
    storage.create("e/x", b"mine")
    root = Path(storage.root)
    (root / "d").symlink_to(neighbour.root + "/d")
    (root / "e" / "y").symlink_to(neighbour.root + "/d/x")
    os.mkfifo(root / "e" / "z")
    operations: list[Callable[[str], object]] = [
        storage.read,
        lambda path: storage.read_many([path]),
        lambda path: storage.open(path).read(),
        storage.head,
    ]
    for operation in operations:
        for path in ("d/x", "e/y", "e/z"):
            with pytest.raises(NotRegularFileError, match=r"'(d|e/y|e/z)' is a"):
                operation(path)
    operations = [
        lambda path: storage.replace(path, b"mine"),
        lambda path: storage.delete([path]),
        lambda path: list(storage.list(path.rpartition("/")[0])),
        lambda path: list(storage.walk(path.rpartition("/")[0])),
        lambda path: storage.level(path.rpartition("/")[0]),
    ]
    for operation in operations:
        with pytest.raises(NotRegularFileError, match="'d' is a symbolic link"):
            operation("d/x")
    assert names(storage, "e") == ["x", "y", "z"]
    assert everything(storage) == {"e/x"}
    assert storage.level("") == Level([], ["e"])
    assert neighbour.read("d/x") == b"theirs"
