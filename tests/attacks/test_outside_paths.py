"""Paths of a log that lead out of the table: to hosts of the log's choosing, and to files of the worker.

A server stands between the worker and the network (`Watched`): any connection to a host that isn't the
table's shows in it. An audit hook sees whether somebody opens a file that is none of the table's.
"""

from __future__ import annotations

import json
import pickle
import socketserver
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.deletion_vectors import z85
from airflow_delta.engine.deletion_vectors.columns import read_deletion_vector_column
from airflow_delta.engine.errors import (
    CorruptLogError,
    DeletionVectorError,
    DeltaError,
    InvalidArgumentError,
    NotRegularFileError,
    OutsidePathError,
)
from airflow_delta.engine.storage.file_access import FileAccess
from airflow_delta.engine.storage.location import open_storage
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.log_builder import SCHEMA, add, metadata, remove, write_commit

EVIL_PATHS = [
    "abfss://c@acct.dfs.evil.example/x.parquet",
    "abfss://c@acct.blob.evil.example/x.parquet",
    "abfss://c@other.dfs.core.windows.net/x.parquet",
    "abfss://other@acct.dfs.core.windows.net/x.parquet",
    "az://other/x.parquet",
    "s3://evil.example/x.parquet",
    "s3://evil.example%23/x.parquet",
    "s3://evil.example#/x.parquet",
    "s3://user:pw@evil.example/x.parquet",
    "s3a://bucket.evil/x.parquet",
    "gs://evil/x.parquet",
]
VECTOR = {"offset": 1, "sizeInBytes": 34, "cardinality": 1}
ENCODED = z85.encode(uuid.UUID(int=7).bytes)
CREDENTIALS = {
    "abfss://c@acct.dfs.core.windows.net/t": {"sas_token": "sv=1&sig=SECRET"},
    "s3://bucket/t": {"key": "KEY", "secret": "SECRET", "region": "us-east-1"},
    "gs://bucket/t": {"bearer_token": "SECRET"},
}


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.server.seen.append(self.rfile.readline())  # type: ignore[attr-defined]
        self.wfile.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")


class Watched(socketserver.ThreadingTCPServer):
    """The way to the network; refuses everybody, and keeps the first line of all requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[bytes] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    with Watched() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://{server.address}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        yield server
        server.shutdown()


def check_version(table: DeltaTable) -> None:
    table.check_version(table.snapshot(0))


def restore(table: DeltaTable) -> None:
    table.restore(0)


def drop_type_widening(table: DeltaTable) -> None:
    table.drop_feature("typeWidening", dry_run=True)


def emptied(root: Path, *files: dict[str, Any]) -> Path:
    """A table whose version 0 has some files, and version 1 none."""
    features = ["deletionVectors"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features}
    first = [{"protocol": {**protocol, "writerFeatures": features}}, metadata()]
    write_commit(root, 0, *first, *files)
    removes = [
        remove(file["add"]["path"], deletionVector=file["add"].get("deletionVector"))
        for file in files
    ]
    write_commit(root, 1, *removes)
    return root


@pytest.mark.parametrize("operation", [check_version, restore], ids=lambda f: f.__name__)
@pytest.mark.parametrize("path", [*EVIL_PATHS, "ftp://{server}/x", "http://{server}/x"])
def test_no_host_of_the_logs_choosing_is_asked(
    tmp_path: Path,
    network: Watched,
    monkeypatch: pytest.MonkeyPatch,
    operation: Callable[[DeltaTable], None],
    path: str,
) -> None:
    """The credentials of the environment, and of the options, are for the user's stores."""
    monkeypatch.setenv("AZURE_STORAGE_TOKEN", "SECRET")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "acct")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "KEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
    path = path.format(server=network.address)
    table = DeltaTable(str(emptied(tmp_path, add(path))))
    with pytest.raises(OutsidePathError) as refused:
        operation(table)
    assert network.seen == []
    assert refused.value.table == str(tmp_path)
    assert "pw" not in str(refused.value)


@pytest.mark.parametrize("operation", [check_version, restore], ids=lambda f: f.__name__)
def test_no_host_is_asked_for_a_deletion_vector(
    tmp_path: Path, network: Watched, operation: Callable[[DeltaTable], None]
) -> None:
    vector = {**VECTOR, "storageType": "p", "pathOrInlineDv": EVIL_PATHS[0]}
    own = add("own.parquet", stats='{"numRecords":9}', deletionVector=vector)
    table = DeltaTable(str(emptied(tmp_path, own)), {"sas_token": "sig=SECRET"})
    with pytest.raises(OutsidePathError, match=r"evil\.example"):
        operation(table)
    with pytest.raises(OutsidePathError, match=r"evil\.example"):
        read_deletion_vector_column(
            table.snapshot(0).files()["deletionVector"],
            table.storage,
            table=table.uri,
            open_uri=table.file_access.locate,
        )
    assert network.seen == []


def test_a_check_asks_no_host_and_names_the_path(tmp_path: Path, network: Watched) -> None:
    vector = {**VECTOR, "storageType": "p", "pathOrInlineDv": "file:///proc/self/environ"}
    write_commit(
        tmp_path,
        0,
        *emptied_head(),
        add(EVIL_PATHS[0]),
        add("../up.parquet"),
        add("data:text/plain,x"),
        add("own.parquet", stats='{"numRecords":9}', deletionVector=vector),
    )
    report = DeltaTable(str(tmp_path)).check()
    (found,) = [finding for finding in report.findings if finding.code == "path-refused"]
    for name in (EVIL_PATHS[0], "../up.parquet", "data:", "/proc/self/environ"):
        assert name in found.message
    assert found.severity == "error"
    assert network.seen == []


def test_dropping_type_widening_opens_no_file_outside(tmp_path: Path, network: Watched) -> None:
    features = ["typeWidening"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features}
    changes = [{"toType": "long", "fromType": "integer", "tableVersion": 1}]
    fields = [{**SCHEMA["fields"][0], "metadata": {"delta.typeChanges": changes}}]  # type: ignore[index, dict-item]
    write_commit(
        tmp_path,
        0,
        {"protocol": {**protocol, "writerFeatures": features}},
        metadata(schema={"type": "struct", "fields": fields}),
        add(EVIL_PATHS[0]),
    )
    with pytest.raises(OutsidePathError, match=r"evil\.example"):
        drop_type_widening(DeltaTable(str(tmp_path)))
    assert network.seen == []


@pytest.mark.parametrize("root", CREDENTIALS)
@pytest.mark.parametrize("path", EVIL_PATHS)
def test_no_table_opens_another_store(root: str, path: str) -> None:
    """Nor another bucket, container or account; and what isn't opened gets no credential."""
    options = CREDENTIALS[root]
    access = FileAccess(open_storage(root, options), options)
    for location in (path, path.replace("x.parquet", "t/x.parquet")):
        with pytest.raises((OutsidePathError, CorruptLogError)):
            access.locate(location)


@pytest.mark.parametrize("root", CREDENTIALS)
@pytest.mark.parametrize("path", ["/etc/passwd", "/proc/self/environ"])
def test_a_remote_table_names_no_local_file(root: str, path: str) -> None:
    options = CREDENTIALS[root]
    with pytest.raises(OutsidePathError, match="lies outside of the table"):
        FileAccess(open_storage(root, options), options).locate(path)


@pytest.mark.parametrize(
    "path",
    [
        "../victim/x.parquet",
        "%2e%2e/victim/x.parquet",
        "..%2Fvictim%2Fx.parquet",
        "k=1/%2E%2e/../victim/x.parquet",
        "{parent}/victim/x.parquet",
        "file:{parent}/victim/x.parquet",
        "file://{parent}/table/../victim/x.parquet",
    ],
)
@pytest.mark.parametrize("operation", [check_version, restore], ids=lambda f: f.__name__)
def test_a_local_table_stays_below_its_root(
    tmp_path: Path, path: str, operation: Callable[[DeltaTable], None]
) -> None:
    root, victim = tmp_path / "table", tmp_path / "victim"
    victim.mkdir()
    pq.write_table(pa.table({"id": [1]}), victim / "x.parquet")
    emptied(root, add(path.format(parent=tmp_path)))
    with pytest.raises(OutsidePathError) as refused:
        operation(DeltaTable(str(root)))
    assert refused.value.table == str(root)
    assert "victim" in str(refused.value)


@pytest.mark.parametrize("path", ["link/x.parquet", "x.parquet", "link/below/x.parquet"])
def test_no_file_is_opened_through_a_link(tmp_path: Path, path: str) -> None:
    root, victim = tmp_path / "table", tmp_path / "victim"
    for directory in (root, victim / "below"):
        directory.mkdir(parents=True)
    (root / "link").symlink_to(victim)
    (root / "x.parquet").symlink_to(victim / "x.parquet")
    with pytest.raises(NotRegularFileError, match=f"a link leads from there to '{victim}"):
        FileAccess(open_storage(str(root))).locate(f"{root}/{path}")
    # The table itself may be called by a link.
    (tmp_path / "alias").symlink_to(root)
    (root / "own.parquet").touch()
    access = FileAccess(open_storage(str(tmp_path / "alias")))
    for spelled in ("alias", "table"):
        storage, name = access.locate(f"{tmp_path}/{spelled}/own.parquet")
        assert (storage, name) == (access.storage, "own.parquet")


_OPENED: list[str] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str):
        _OPENED.append(arguments[0])


sys.addaudithook(_audit)


@pytest.mark.parametrize("kind", ["u", "p"])
@pytest.mark.parametrize(
    "place", ["/proc/self/environ", "{parent}/victim.bin", "../victim.bin", "a/../../victim.bin"]
)
def test_no_deletion_vector_is_read_outside(tmp_path: Path, kind: str, place: str) -> None:
    (tmp_path / "victim.bin").write_bytes(b"SECRET")
    prefix = place.format(parent=tmp_path)
    vector = {
        **VECTOR,
        "storageType": kind,
        "pathOrInlineDv": f"{prefix}{ENCODED}" if kind == "u" else prefix,
    }
    file = add("own.parquet", stats='{"numRecords":9}', deletionVector=vector)
    table = DeltaTable(str(emptied(tmp_path / "table", file)))
    column = table.snapshot(0).files()["deletionVector"]
    del _OPENED[:]
    with pytest.raises((OutsidePathError, DeletionVectorError)):
        read_deletion_vector_column(
            column, table.storage, table=table.uri, open_uri=table.file_access.locate
        )
    for operation in (check_version, restore):
        with pytest.raises((OutsidePathError, DeletionVectorError)):
            operation(table)
    assert not [name for name in _OPENED if "victim" in name or "environ" in name]


@pytest.mark.parametrize(
    "path",
    ["data:text/plain,x", "data:,", "x:y", "javascript:alert(1)", "a%00b", "file:x.parquet"],
)
@pytest.mark.parametrize("operation", [check_version, restore], ids=lambda f: f.__name__)
def test_paths_that_name_no_file_give_typed_errors(
    tmp_path: Path, path: str, operation: Callable[[DeltaTable], None]
) -> None:
    with pytest.raises((OutsidePathError, CorruptLogError)) as refused:
        operation(DeltaTable(str(emptied(tmp_path, add(path)))))
    assert refused.value.table == str(tmp_path)


@pytest.mark.parametrize("prefix", ["/etc", "../up", "a/../../up", "a\0b", "/", "."])
@pytest.mark.parametrize("mode", ["lite", "full"])
def test_a_vacuum_goes_on_past_vectors_that_are_nowhere(prefix: str, mode: Any) -> None:
    """Neither deletes what such a descriptor names, nor fails for ever over it."""
    clock, name = iter(range(1, 1_000_000)), f"memory://{uuid.uuid4()}"
    lake = MemoryStorage(name, clock=lambda: next(clock))
    table = MemoryStorage(f"{name}/t", clock=lambda: next(clock))
    vector_name = f"deletion_vector_{uuid.UUID(int=7)}.bin"
    outside = [f"up/{vector_name}", f"etc/{vector_name}", "victim"]
    for path in outside:
        lake.create(path, b"1")
    for path in ("gone.parquet", "live.parquet", "live2.parquet"):
        table.create(path, b"1")
    vector = {**VECTOR, "storageType": "u", "pathOrInlineDv": f"{prefix}{ENCODED}"}
    stats = '{"numRecords":9}'
    live = add("live2.parquet", stats=stats, deletionVector=vector)
    write_to(table, 0, *emptied_head(), add("live.parquet"), live)
    write_to(table, 1, add("gone.parquet", stats=stats, deletionVector=vector))
    write_to(table, 2, remove("gone.parquet", deletionVector=vector))
    opened = DeltaTable(f"{name}/t")
    result = opened.vacuum(retention_hours=0, enforce_retention=False, mode=mode)
    assert result.plan.files["path"].to_pylist() == ["gone.parquet"]
    assert {info.path for info in table.walk("")} >= {"live.parquet", "live2.parquet"}
    assert {info.path for info in lake.walk("")} >= set(outside)


@pytest.mark.parametrize("mode", ["lite", "full"])
@pytest.mark.parametrize(
    "path", ["../victim", "%2e%2e/victim", "memory://{name}/victim", "a%00b", "data:,x", "/victim"]
)
def test_a_vacuum_deletes_nothing_outside(mode: Any, path: str) -> None:
    clock, name = iter(range(1, 1_000_000)), str(uuid.uuid4())
    lake = MemoryStorage(f"memory://{name}", clock=lambda: next(clock))
    table = MemoryStorage(f"memory://{name}/t", clock=lambda: next(clock))
    lake.create("victim", b"1")
    table.create("gone", b"1")
    named = path.format(name=name)
    write_to(table, 0, *emptied_head(), add("gone"), add(named))
    write_to(table, 1, remove("gone"), remove(named))
    opened = DeltaTable(f"memory://{name}/t")
    result = opened.vacuum(retention_hours=0, enforce_retention=False, mode=mode)
    assert result.plan.files["path"].to_pylist() == ["gone"]
    assert [info.path for info in lake.walk("") if info.path == "victim"] == ["victim"]


@pytest.mark.parametrize(
    ("allowed", "path", "is_allowed"),
    [
        ("s3://shared-lake", "s3://shared-lake/x", True),
        ("s3a://shared-lake/", "s3://shared-lake/a/x", True),
        ("s3://shared-lake", "s3a://shared-lake/x", True),
        ("s3://shared-lake", "s3://shared-lake-evil/x", False),
        ("s3://shared-lake/a", "s3://shared-lake/ab/x", False),
        ("s3://shared-lake/a", "s3://shared-lake/a/../b/x", False),
        ("s3://shared-lake/a", "s3://shared-lake/b/x", False),
        ("s3://shared-lake", "gs://shared-lake/x", False),
        ("gs://shared", "gcs://shared/x", True),
        ("abfss://c@acc.dfs.core.windows.net/a", "abfs://c@acc.blob.core.windows.net/a/x", True),
        ("abfss://c@acc.dfs.core.windows.net/a", "abfss://c@acc.dfs.evil.example/a/x", False),
        ("abfss://c@acc.dfs.core.windows.net/a", "abfss://c@acc2.dfs.core.windows.net/a/x", False),
        ("abfss://c@acc.dfs.core.windows.net/a", "abfss://d@acc.dfs.core.windows.net/a/x", False),
        # The service takes a backslash for a slash.
        (
            "abfss://c@acc.dfs.core.windows.net/a",
            "abfss://c@acc.dfs.core.windows.net/a/..\\b/x",
            False,
        ),
        (
            "abfss://c@acc.dfs.core.windows.net/a",
            "abfss://c@acc.dfs.core.windows.net/a/k\\..\\../b/x",
            False,
        ),
        ("/data/shared", "/data/shared/x", True),
        ("file:///data/shared/", "/data/shared/x", True),
        ("/data/shared", "/data/shared2/x", False),
        ("/data/shared", "/data/shared/../x", False),
        ("/data/shared", "file://host/data/shared/x", False),
    ],
)
@pytest.mark.parametrize("root", ["/lake/t", "s3://bucket/t"])
def test_what_is_below_an_allowed_prefix(
    root: str, allowed: str, path: str, is_allowed: bool
) -> None:
    access = FileAccess(open_storage(root), allowed_outside=(allowed,))
    if not is_allowed:
        with pytest.raises(OutsidePathError):
            access.locate(path)
        return
    storage, name = access.locate(path)
    # By the user's name for the store, never the log's.
    assert allowed.removeprefix("file://").startswith(storage.root)
    assert name.endswith("x")


@pytest.mark.parametrize(
    "wrong",
    ["s3://shared", ["shared"], ["s3://a/../b"], ["hdfs://h/x"], [1], ["ftp://u:pw@h/"], ["/a\0"]],
)
def test_prefixes_that_allow_nothing(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="allowed_outside") as refused:
        DeltaTable(str(tmp_path), allowed_outside=wrong)
    assert "pw" not in str(refused.value)


@pytest.mark.parametrize(
    "uri",
    [
        "s3://evil.example#/k",
        "s3://evil.example?x/k",
        "s3://user:pw@host/k",
        "s3://user@host/k",
        "gs://evil:80/k",
        "gs://user:pw@b/k",
        "abfss://c@acct.dfs.core.windows.net:443/k",
        "abfss://c:pw@acct@acct.dfs.core.windows.net/k",
        "abfss://c@evil.example#.dfs.core.windows.net/k",
        "abfss://c@evil.example/acct.dfs.core.windows.net/k",
    ],
)
def test_names_that_no_bucket_has(uri: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        DeltaTable(uri).storage  # noqa: B018
    assert "pw" not in str(refused.value)


def test_a_shallow_clone_is_read_where_it_is_allowed(tmp_path: Path) -> None:
    """Honest use: files of another table, which the user knows."""
    source = tmp_path / "source"
    source.mkdir()
    pq.write_table(pa.table({"id": [1]}), source / "x.parquet")
    emptied(tmp_path / "clone", add(f"file://{source}/x.parquet"))
    with pytest.raises(OutsidePathError) as refused:
        DeltaTable(str(tmp_path / "clone")).restore(0)
    assert f"allowed_outside=['{source}/']" in str(refused.value)
    allowed = DeltaTable(str(tmp_path / "clone"), allowed_outside=[f"{source}/"])
    assert allowed.check_version(allowed.snapshot(0)).num_files == 1
    assert allowed.restore(0).version == 2


def emptied_head() -> list[dict[str, Any]]:
    features = ["deletionVectors"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features}
    return [{"protocol": {**protocol, "writerFeatures": features}}, metadata()]


def write_to(storage: MemoryStorage, version: int, *actions: dict[str, Any]) -> None:
    text = "".join(json.dumps(action) + "\n" for action in actions)
    storage.create(f"_delta_log/{version:020}.json", text.encode())


def test_errors_of_refused_paths_travel_between_processes() -> None:
    error = OutsidePathError("m", table="t", path="p")
    found = pickle.loads(pickle.dumps(error))
    assert isinstance(found, DeltaError)
    assert (str(found), found.path) == ("t: m", "p")
