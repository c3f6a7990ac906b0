"""Spark reads and copies nothing that lies outside of a table, unless the user allows it."""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from airflow_delta.copies.request import CopyRequest
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.deletion_vectors import z85
from airflow_delta.engine.errors import (
    DeltaError,
    InvalidTableError,
    NotRegularFileError,
    OutsidePathError,
)
from airflow_delta.engine.storage.file_access import FileAccess
from airflow_delta.engine.storage.memory import MemoryStorage
from airflow_delta.spark import read_changes, read_snapshot
from airflow_delta.spark.copy.clone_files import FileCopy
from airflow_delta.spark.copy.copied_content import Content
from airflow_delta.spark.copy.copies import copy_snapshot
from airflow_delta.spark.copy.file_copying import copy_file
from airflow_delta.spark.profile.profiling import profile_snapshot
from airflow_delta.spark.rewrite.rewrite import rewrite_data
from tests.log_builder import add, metadata, remove, write_commit
from tests.spark.conftest import rows_of

PATHS = [
    "../victim/x.parquet",
    "%2e%2e/victim/x.parquet",
    "{parent}/victim/x.parquet",
    "file:{parent}/victim/x.parquet",
    "link/x.parquet",
]
ENVIRONMENT = "file:///proc/self/environ"


def protocol() -> dict[str, Any]:
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    readers = ["deletionVectors"]
    writers = [*readers, "changeDataFeed"]
    return {"protocol": {**versions, "readerFeatures": readers, "writerFeatures": writers}}


def schema(name: str = "id") -> dict[str, Any]:
    field = {"name": name, "type": "long", "nullable": True, "metadata": {}}
    return {"type": "struct", "fields": [field]}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A directory with a file of somebody else's, and a table with a file of its own."""
    for name, value in (("victim/x.parquet", 99), ("t/own.parquet", 1)):
        (tmp_path / name).parent.mkdir()
        pq.write_table(pa.table({"id": pa.array([value], pa.int64())}), tmp_path / name)
    (tmp_path / "t" / "link").symlink_to(tmp_path / "victim")
    return tmp_path


def written(lake: Path, *actions: dict[str, Any], **configuration: str) -> str:
    size = (lake / "t" / "own.parquet").stat().st_size
    own = add("own.parquet", size=size, stats='{"numRecords":1}')
    head = [protocol(), metadata(schema=schema(), configuration=configuration)]
    write_commit(lake / "t", 0, *head, own, *actions)
    return str(lake / "t")


def victim(lake: Path, path: str) -> dict[str, Any]:
    size = (lake / "victim" / "x.parquet").stat().st_size
    return add(path.format(parent=lake), size=size, stats='{"numRecords":1}')


def read(spark: SparkSession, table: str, allowed: list[str]) -> None:
    read_snapshot(spark, table, allowed_outside=allowed).collect()


def changes(spark: SparkSession, table: str, allowed: list[str]) -> None:
    read_changes(spark, table, 0, allowed_outside=allowed).collect()


def profile(spark: SparkSession, table: str, allowed: list[str]) -> None:
    profile_snapshot(spark, table, allowed_outside=allowed)


def clone(spark: SparkSession, table: str, allowed: list[str]) -> None:
    request = CopyRequest(table, 0, f"{table}-clone", "delta")
    copy_snapshot(spark, request, allowed_outside=allowed)


def directory(spark: SparkSession, table: str, allowed: list[str]) -> None:
    request = CopyRequest(table, 0, f"{table}-copy", "parquet")
    copy_snapshot(spark, request, allowed_outside=allowed)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "work", [read, changes, profile, clone, directory], ids=lambda f: f.__name__
)
def test_nothing_outside_is_read(
    spark: SparkSession, lake: Path, path: str, work: Callable[..., None]
) -> None:
    table = written(lake, victim(lake, path), **{"delta.enableChangeDataFeed": "true"})
    with pytest.raises((OutsidePathError, NotRegularFileError)) as refused:
        work(spark, table, [])
    assert "victim" in str(refused.value)
    assert isinstance(refused.value, NotRegularFileError) == path.startswith("link/")
    assert not list(lake.glob("t-*/**/*.parquet"))


@pytest.mark.parametrize(
    "work", [read, changes, profile, clone, directory], ids=lambda f: f.__name__
)
def test_what_is_allowed_is_read(
    spark: SparkSession, lake: Path, work: Callable[..., None]
) -> None:
    table = written(lake, victim(lake, PATHS[2]), **{"delta.enableChangeDataFeed": "true"})
    work(spark, table, [f"{lake}/victim"])
    if work is clone:
        rows = rows_of(read_snapshot(spark, f"{table}-clone"))
        assert sorted(row["id"] for row in rows) == [1, 99]


def test_nothing_outside_is_rewritten(spark: SparkSession, lake: Path) -> None:
    vector = inline()
    own = victim(lake, PATHS[0])
    own["add"]["deletionVector"] = vector
    table = written(lake, own)
    with pytest.raises(OutsidePathError):
        rewrite_data(spark, table, "deletionVectors")
    assert DeltaTable(table).latest_version() == 0


def inline() -> dict[str, Any]:
    return {
        "storageType": "i",
        "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        "sizeInBytes": 40,
        "cardinality": 6,
    }


@pytest.mark.parametrize("kind", ["p", "u", "p allowed", "p inside"])
def test_a_file_of_the_worker_is_not_copied_as_a_deletion_vector(
    spark: SparkSession, lake: Path, kind: str
) -> None:
    """Neither from outside, nor one that is no file of deletion vectors."""
    encoded = z85.encode(uuid.UUID(int=7).bytes)
    places = {"p": ENVIRONMENT, "u": f"/proc/self{encoded}", "p allowed": ENVIRONMENT}
    (lake / "t" / "secret").write_bytes(b"\x01PASSWORD=1\0")
    place = places.get(kind, f"file:{lake}/t/secret")
    vector = {
        "storageType": kind[0],
        "pathOrInlineDv": place,
        "offset": 1,
        "sizeInBytes": 34,
        "cardinality": 1,
    }
    file = add("own.parquet", size=(lake / "t" / "own.parquet").stat().st_size)
    file["add"] |= {"stats": '{"numRecords":1}', "deletionVector": vector}
    head = [protocol(), metadata(schema=schema())]
    write_commit(lake / "t", 0, *head, file)
    with pytest.raises(DeltaError) as refused:
        clone(spark, str(lake / "t"), ["/proc/self"] if "allowed" in kind else [])
    assert type(refused.value).__name__ in (
        "OutsidePathError",
        "DeletionVectorError",
        "InvalidTableError",
    )
    assert "no complete deletion vector file" in str(refused.value) or kind in ("p", "u")
    assert not list(lake.glob("t-clone/**/*.bin"))
    assert "PASSWORD" not in str(refused.value)


def test_a_remote_table_has_no_local_file_copied(lake: Path) -> None:
    """Even where its location is allowed: it is the file of another machine each time."""
    source = FileAccess(MemoryStorage(f"memory://{uuid.uuid4()}"), {}, (str(lake),))
    copy = FileCopy(f"{lake}/victim/x.parquet", inside=False, target="x")
    with pytest.raises(OutsidePathError, match="a local file of the machine that would copy it"):
        copy_file(copy, source, MemoryStorage(f"memory://{uuid.uuid4()}"))


def frames(*vectors: bytes) -> bytes:
    framed = (
        struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
        for data in vectors
    )
    return b"\x01" + b"".join(framed)


@pytest.mark.parametrize(
    ("content", "data", "is_copied"),
    [
        ("parquet", b"PAR1" + bytes(100) + b"PAR1", True),
        ("parquet", b"PARE" + bytes(100) + b"PARE", True),
        ("parquet", b"PAR1" + bytes(100), False),
        ("parquet", bytes(100) + b"PAR1", False),
        ("parquet", b"PAR1PAR1", False),
        ("parquet", b"PAR1", False),
        ("parquet", b"", False),
        ("parquet", b"PASSWORD=1\0HOME=/root\0", False),
        ("deletion vectors", frames(b"x"), True),
        ("deletion vectors", frames(b"x" * 70_000, b"yz"), True),
        ("deletion vectors", frames(b"x")[:-1], False),
        ("deletion vectors", frames(b"x") + b"\0", False),
        ("deletion vectors", frames(b"x") + bytes(8), False),
        ("deletion vectors", b"\x02" + frames(b"x")[1:], False),
        ("deletion vectors", b"", False),
        ("deletion vectors", b"\x01PASSWORD=1\0HOME=/root\0", False),
        ("other", b"a,b\n", True),
    ],
)
@pytest.mark.parametrize("chunk", [1, 3, 1 << 20])
def test_only_what_it_is_to_be_is_copied(
    content: Content, data: bytes, is_copied: bool, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_delta.spark.copy.file_copying._CHUNK_BYTES", chunk)
    name = uuid.uuid4()
    source, target = MemoryStorage(f"memory://{name}/s"), MemoryStorage(f"memory://{name}/t")
    source.create("file", data)
    copy = FileCopy("file", inside=True, target="copy", content=content)
    if is_copied:
        copy_file(copy, FileAccess(source), target)
        assert target.read("copy") == data
        return
    with pytest.raises(InvalidTableError, match="isn't copied"):
        copy_file(copy, FileAccess(source), target)
    assert list(target.walk("")) == []


def test_removed_files_outside_are_not_asked_for(spark: SparkSession, lake: Path) -> None:
    """A change feed asks the store for the size of a file where its remove doesn't tell it."""
    table = written(lake, victim(lake, PATHS[0]), **{"delta.enableChangeDataFeed": "true"})
    write_commit(lake / "t", 1, remove(PATHS[0]))
    with pytest.raises(OutsidePathError):
        read_changes(spark, table, 1).collect()
