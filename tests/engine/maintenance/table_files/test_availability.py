"""Before anybody reads an earlier version, it is known whether its files exist."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from deltalake import DeltaTable as Peer
from deltalake import write_deltalake

from airflow_delta.engine import DeltaTable, RemoveFile
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.commit.sql.owner import SqlCommitOwner
from airflow_delta.engine.deletion_vectors.read import get_relative_path
from airflow_delta.engine.errors import MissingFilesError
from airflow_delta.engine.maintenance.table_files import missing_files
from airflow_delta.engine.maintenance.table_files.availability import (
    PastFiles,
    check_version_files,
    open_newest_known,
)
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.model.paths import encode_path
from airflow_delta.engine.snapshot.opening import open_newest
from airflow_delta.engine.storage.file_access import FileAccess
from tests.engine.transaction.prepare.attempts import protocol
from tests.faulty_storage import FaultyStorage
from tests.log_builder import add, metadata, remove, touch_files, write_commit, write_table

NAMES = ["a", "part=x/b c", "part=a%20b/c", "part=é/d", "g#h?i"]
COUNTED = {"stats": '{"numRecords":9}'}
DAY_MS = 24 * 60 * 60 * 1000


def ago(days: float) -> int:
    return int(time.time() * 1000 - days * DAY_MS)


def check(root: Path, version: int, *allowed: Path) -> PastFiles:
    table = DeltaTable(str(root), allowed_outside=map(str, allowed))
    return table.check_version(table.snapshot(version))


def vector(value: str, kind: str = "u", offset: int = 1) -> dict[str, Any]:
    return {
        "storageType": kind,
        "pathOrInlineDv": value,
        "offset": offset,
        "sizeInBytes": 40,
        "cardinality": 6,
    }


FIRST, SECOND = "ab^-aqEH.-t@S}K{vb[*k^", "xb^-aqEH.-t@S}K{vb[*k^"


def file_of(value: str) -> str:
    return get_relative_path(DeletionVectorDescriptor("u", value, 1, 40, 6))


@pytest.mark.parametrize("listed_from", [1, 10_000])
@pytest.mark.parametrize("gone", NAMES)
def test_a_data_file_that_is_gone_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str, listed_from: int
) -> None:
    monkeypatch.setattr(missing_files, "_LISTED_FROM", listed_from)
    write_table(
        tmp_path,
        [add(encode_path(name)) for name in NAMES],
        [remove(encode_path(name)) for name in NAMES],
    )
    touch_files(tmp_path, *NAMES)
    assert check(tmp_path, 0) == PastFiles(len(NAMES), len(NAMES))
    (tmp_path / gone).unlink()
    with pytest.raises(MissingFilesError, match="version 0 can't be read any more") as refused:
        check(tmp_path, 0)
    error = refused.value
    assert (error.version, error.path, error.paths, error.num_missing) == (0, gone, (gone,), 1)
    assert "read version 1 or a later one" in str(error)


def test_what_the_newest_version_has_is_not_looked_for(tmp_path: Path) -> None:
    write_table(tmp_path, [add("stays"), add("part=a%20b/goes")], [remove("part=a%20b/goes")])
    touch_files(tmp_path, "part=a b/goes")
    assert check(tmp_path, 0) == PastFiles(1, 1)
    assert check(tmp_path, 1) == PastFiles(0, 0)
    table = DeltaTable(str(tmp_path))
    storage = FaultyStorage(table.storage)
    newest = table.snapshot()
    newest.state.storage = storage
    check_version_files(table.snapshot(0), newest, FileAccess(storage))
    assert (storage.count("head"), storage.count("walk")) == (1, 0)


def test_the_retention_protects_what_was_removed_lately(tmp_path: Path) -> None:
    names = ["new", "old", "timeless"]
    times = [{"deletionTimestamp": ago(6)}, {"deletionTimestamp": ago(8)}, {}]
    write_table(
        tmp_path,
        [add(name) for name in names],
        [remove(name, **time) for name, time in zip(names, times, strict=True)],
    )
    touch_files(tmp_path, *names)
    assert check(tmp_path, 0) == PastFiles(3, 2)


def test_the_retention_is_the_tables(tmp_path: Path) -> None:
    configuration = {"delta.deletedFileRetentionDuration": "interval 9 days"}
    write_table(
        tmp_path,
        [add("a"), add("b")],
        [remove("a", deletionTimestamp=ago(8)), remove("b", deletionTimestamp=ago(10))],
        configuration=configuration,
    )
    touch_files(tmp_path, "a", "b")
    assert check(tmp_path, 0) == PastFiles(2, 1)


def deleted_twice(root: Path, kind: str = "u", stored: tuple[str, str] = (FIRST, SECOND)) -> None:
    """Version 0 has one deletion vector, version 1 another one of the same data file."""
    first, second = (vector(value, kind) for value in stored)
    write_commit(
        root,
        0,
        protocol("deletionVectors"),
        metadata(),
        add("a", **COUNTED, deletionVector=first),
    )
    gone = remove("a", deletionVector=first, deletionTimestamp=ago(1))
    write_commit(root, 1, gone, add("a", **COUNTED, deletionVector=second))


def test_a_deletion_vector_that_is_gone_is_named_and_its_data_file_is_not_looked_for(
    tmp_path: Path,
) -> None:
    deleted_twice(tmp_path)
    with pytest.raises(MissingFilesError) as refused:
        check(tmp_path, 0)
    assert refused.value.paths == (file_of(FIRST),)
    touch_files(tmp_path, file_of(FIRST))
    assert check(tmp_path, 0) == PastFiles(1, 0)


def test_a_deletion_vector_elsewhere_is_looked_for_there(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "table", tmp_path / "else where"
    uris = [f"file://{quote(str(elsewhere))}/{name}.bin" for name in ("v", "w")]
    deleted_twice(root, "p", (uris[0], uris[1]))
    with pytest.raises(MissingFilesError) as refused:
        check(root, 0, elsewhere)
    assert refused.value.paths == (f"{elsewhere}/v.bin",)
    touch_files(elsewhere, "v.bin")
    assert check(root, 0, elsewhere) == PastFiles(1, 0)


def test_deletion_vectors_in_one_file_count_as_one_file(tmp_path: Path) -> None:
    first, second = vector(FIRST), vector(FIRST, offset=50)
    adds = [add(name, **COUNTED, deletionVector=dv) for name, dv in (("a", first), ("b", second))]
    write_commit(tmp_path, 0, protocol("deletionVectors"), metadata(), *adds)
    write_commit(tmp_path, 1, remove("a", deletionVector=first))
    touch_files(tmp_path, "a")
    assert check(tmp_path, 0) == PastFiles(1, 1), "b still has the file of both vectors"
    write_commit(tmp_path, 2, remove("b", deletionVector=second, deletionTimestamp=ago(1)))
    touch_files(tmp_path, "b", file_of(FIRST))
    assert check(tmp_path, 0) == PastFiles(3, 1)


def test_inline_deletion_vectors_have_no_file(tmp_path: Path) -> None:
    inline = {**vector("^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", "i")}
    del inline["offset"]
    action = add("a", **COUNTED, deletionVector=inline)
    write_commit(tmp_path, 0, protocol("deletionVectors"), metadata(), action)
    gone = remove("a", deletionVector=inline)
    write_commit(tmp_path, 1, gone, add("a", **COUNTED, deletionVector=vector(SECOND)))
    assert check(tmp_path, 0) == PastFiles(0, 0)


def test_files_elsewhere_are_looked_for_there(tmp_path: Path) -> None:
    """As of a shallow clone; a file of the table may be named by its absolute location, too."""
    root, elsewhere = tmp_path / "table", tmp_path / "else where"
    paths = [f"file://{quote(str(root))}/a%20b", quote(f"{elsewhere}/c d"), f"file:{tmp_path}/e"]
    write_table(root, [add(path) for path in paths], [remove(path) for path in paths])
    with pytest.raises(MissingFilesError) as refused:
        check(root, 0, tmp_path)
    assert {*refused.value.paths} == {"a b", f"{elsewhere}/c d", f"{tmp_path}/e"}
    touch_files(root, "a b")
    touch_files(elsewhere, "c d")
    touch_files(tmp_path, "e")
    assert check(root, 0, tmp_path) == PastFiles(3, 3)


def test_many_missing_files_are_not_counted_to_the_end(tmp_path: Path) -> None:
    names = [f"f{number}" for number in range(missing_files.MAX_MISSING + 20)]
    write_table(tmp_path, map(add, names), map(remove, names))
    with pytest.raises(MissingFilesError, match="100 or more of the files") as refused:
        check(tmp_path, 0)
    assert refused.value.num_missing == len(refused.value.paths) == missing_files.MAX_MISSING


def test_our_own_vacuum(sales_copy: Path) -> None:
    """Version 3 deletes rows, and rewrites a file of another engine's."""
    assert check(sales_copy, 2) == PastFiles(1, 0)
    table = DeltaTable(str(sales_copy))
    plan = table.vacuum(retention_hours=0, enforce_retention=False).plan
    with pytest.raises(MissingFilesError, match="read version 3 or a later one") as refused:
        check(sales_copy, 2)
    assert [*refused.value.paths] == plan.files["path"].to_pylist()
    assert check(sales_copy, 3) == PastFiles(0, 0)


def test_the_vacuum_of_another_engine(tmp_path: Path) -> None:
    import pyarrow as pa

    rows = pa.table({"id": [1, 2, 3], "part": ["a b", "ü", None]})
    for number in range(3):
        mode: Any = "append" if number < 2 else "overwrite"
        write_deltalake(tmp_path, rows, mode=mode, partition_by=["part"])
    assert check(tmp_path, 1) == PastFiles(6, 0)
    before = data_files(tmp_path)
    Peer(tmp_path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    lost = before - data_files(tmp_path)
    named = {}
    for version in (0, 1):
        with pytest.raises(MissingFilesError) as refused:
            check(tmp_path, version)
        named[version] = {*refused.value.paths}
    assert named[1] == lost
    assert len(named[0]) == 3
    assert named[0] < lost


def data_files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*.parquet")}


def test_the_newest_version_is_the_commit_owners_if_it_answers(tmp_path: Path) -> None:
    root, owner = tmp_path / "table", SqlCommitOwner(f"sqlite:///{tmp_path}/owner.db")
    write_table(root, [add("a")], [add("b")])
    touch_files(root, "a", "b")
    table = DeltaTable(str(root), commit_owners={"sql": owner})
    table.convert_to_managed("sql", {"backfill": "on-request"})
    delete = table.transaction("DELETE")
    delete.remove_file(RemoveFile("a", data_change=True, deletion_timestamp=ago(1)))
    assert delete.commit().version == 3
    assert table.check_version(table.snapshot(1)) == PastFiles(1, 0)
    (root / "a").unlink()
    with pytest.raises(MissingFilesError, match="version 1 can't be read any more"):
        table.check_version(table.snapshot(1))
    # Without the owner: a version in the log is readable without it, and nobody is warned.
    logged = open_newest(table.storage)
    assert logged.version == 2
    assert check_version_files(
        logged, open_newest_known(table.storage, CommitOwners()), table.file_access
    ) == PastFiles(0, 0)
    assert open_newest_known(table.storage, CommitOwners()).version == 2
