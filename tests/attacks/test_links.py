"""A link in a table's directory leads a worker nowhere: nothing behind it is read, written or deleted.

Each test has a directory beside the table, whose files are the canaries.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import DeltaWarning, NotRegularFileError, StorageError
from airflow_delta.engine.maintenance.backfill.backfilled import open_backfilled
from airflow_delta.engine.maintenance.metadata_cleanup.execution import execute_metadata_cleanup
from airflow_delta.engine.maintenance.metadata_cleanup.plan import plan_metadata_cleanup
from airflow_delta.engine.maintenance.vacuum.execution import execute_vacuum
from airflow_delta.engine.maintenance.vacuum.plan import plan_vacuum
from airflow_delta.engine.storage.location import open_storage
from tests.log_builder import PROTOCOL, add, commit_path, metadata, remove, write_commit
from tests.vacuum_world import DAY_MS, NOW_MS

OLD_MS = NOW_MS - 400 * DAY_MS
UUID = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A table of four old versions, with a checkpoint of the third, whose log may be cleaned up."""
    root = tmp_path / "t"
    settings = metadata(configuration={"delta.enableChangeDataFeed": "false"})
    write_commit(root, 0, PROTOCOL, settings, add("a"), modified_ms=OLD_MS)
    for version in (1, 2, 3):
        moment = OLD_MS + version * DAY_MS
        write_commit(root, version, add(f"b{version}"), modified_ms=moment)
    DeltaTable(str(root)).checkpoint(3)
    return root


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory with files of all names that a cleanup knows, all of them old."""
    outside = tmp_path / "outside"
    outside.mkdir()
    names = [
        f"{0:020}.json.{UUID}",
        f"{0:020}.{UUID}.json",
        f"{UUID}.parquet",
        f".{0:020}.json.{UUID}.tmp",
        f".{UUID}.parquet.crc",
        "precious",
    ]
    for name in names:
        (outside / name).write_text("theirs")
        os.utime(outside / name, ns=(OLD_MS * 1_000_000, OLD_MS * 1_000_000))
    return outside


def contents(place: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in place.rglob("*") if file.is_file()}


def clean_up(root: Path) -> int:
    storage = DeltaTable(str(root)).storage
    plan = plan_metadata_cleanup(storage, open_backfilled(storage), now_ms=NOW_MS)
    return execute_metadata_cleanup(storage, plan).num_deleted


def vacuum(root: Path, mode: Any) -> None:
    storage = DeltaTable(str(root)).storage
    execute_vacuum(storage, plan_vacuum(storage, CommitOwners(), mode=mode, now_ms=NOW_MS))


@pytest.mark.parametrize("folder", [".tmp", "_sidecars", "_commits"])
def test_metadata_cleanup_takes_nothing_behind_a_linked_directory(
    root: Path, outside: Path, folder: str
) -> None:
    (root / "_delta_log" / folder).symlink_to(outside)
    before = contents(outside)
    with pytest.raises(NotRegularFileError, match=f"'_delta_log/{folder}' is a symbolic link"):
        clean_up(root)
    assert contents(outside) == before
    (root / "_delta_log" / folder).unlink()
    assert clean_up(root) > 0


def test_metadata_cleanup_takes_linked_files_and_not_what_they_lead_to(
    root: Path, outside: Path
) -> None:
    commit = commit_path(root, 0)
    commit.rename(outside / "commit")
    commit.symlink_to(outside / "commit")
    os.utime(commit, ns=(OLD_MS * 1_000_000, OLD_MS * 1_000_000), follow_symlinks=False)
    before = contents(outside)
    assert clean_up(root) > 0
    assert not commit.is_symlink()
    assert contents(outside) == before


@pytest.mark.parametrize("mode", ["lite", "full"])
@pytest.mark.parametrize("path", ["link/precious", "p=1/link/deeper/precious"])
def test_a_vacuum_takes_nothing_behind_a_linked_directory(
    root: Path, outside: Path, mode: str, path: str
) -> None:
    (outside / "deeper").mkdir()
    (outside / "precious").rename(outside / path.removeprefix("p=1/").removeprefix("link/"))
    link = root / path[: path.index("link") + 4]
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(outside)
    write_commit(root, 4, remove(path, deletionTimestamp=OLD_MS), modified_ms=OLD_MS + 5 * DAY_MS)
    before = contents(outside)
    vacuum(root, mode)
    assert contents(outside) == before
    assert link.is_symlink()


def test_a_vacuum_by_a_plan_takes_nothing_behind_a_link_that_came_since(
    root: Path, outside: Path
) -> None:
    removed = remove("p/precious", deletionTimestamp=OLD_MS)
    write_commit(root, 4, removed, modified_ms=OLD_MS + 5 * DAY_MS)
    storage = DeltaTable(str(root)).storage
    plan = plan_vacuum(storage, CommitOwners(), mode="lite", now_ms=NOW_MS)
    assert plan.files["path"].to_pylist() == ["p/precious"]
    (root / "p").symlink_to(outside)
    before = contents(outside)
    with pytest.raises(NotRegularFileError, match="'p' is a symbolic link"):
        execute_vacuum(storage, plan)
    assert contents(outside) == before


def test_a_vacuum_leaves_a_live_file_that_goes_by_a_link(root: Path) -> None:
    """Other engines follow it: neither the link goes, nor the file."""
    real = root / "p=1" / "live"
    real.parent.mkdir()
    for path in (real, root / "orphan"):
        path.write_text("x")
        os.utime(path, ns=(OLD_MS * 1_000_000, OLD_MS * 1_000_000))
    (root / "alias").symlink_to(real.parent)
    os.utime(root / "alias", ns=(OLD_MS * 1_000_000, OLD_MS * 1_000_000), follow_symlinks=False)
    write_commit(root, 4, add("alias/live"), modified_ms=OLD_MS + 5 * DAY_MS)
    vacuum(root, "full")
    assert real.exists()
    assert (root / "alias").is_symlink()
    assert not (root / "orphan").exists()


@pytest.mark.parametrize("version", [0, 4])
def test_a_linked_commit_is_not_read_and_not_overlooked(
    root: Path, outside: Path, version: int
) -> None:
    """Without its newest commit a table would silently be that of the version before."""
    (outside / "commit").write_text(json.dumps(add("theirs")) + "\n")
    commit_path(root, version).unlink(missing_ok=True)
    commit_path(root, version).symlink_to(outside / "commit")
    table = DeltaTable(str(root))
    with pytest.raises(StorageError, match="is a symbolic link, and links aren't followed"):
        table.snapshot() if version else table.snapshot(0)


def snapshot(table: DeltaTable) -> object:
    return table.snapshot().num_files


def commit(table: DeltaTable) -> object:
    return table.transaction("WRITE").commit()


@pytest.mark.parametrize("use", [snapshot, commit, DeltaTable.checkpoint, DeltaTable.vacuum])
def test_a_linked_log_is_none(root: Path, outside: Path, use: Callable[[DeltaTable], Any]) -> None:
    (root / "_delta_log").rename(outside / "log")
    (root / "_delta_log").symlink_to(outside / "log")
    before = contents(outside)
    with pytest.raises(NotRegularFileError, match="'_delta_log' is a symbolic link"):
        use(DeltaTable(str(root)))
    assert contents(outside) == before


def test_no_table_is_created_through_a_linked_log(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "_delta_log").symlink_to(outside)
    schema = DeltaTable(str(tmp_path / "t"))
    write_commit(tmp_path / "t", 0, PROTOCOL, metadata())
    before = contents(outside)
    with pytest.raises(NotRegularFileError, match="'_delta_log' is a symbolic link"):
        DeltaTable.create(str(tmp_path / "new"), schema.snapshot().schema)
    assert contents(outside) == before


def test_a_linked_hint_is_replaced_and_what_it_leads_to_stays(root: Path, outside: Path) -> None:
    hint = root / "_delta_log" / "_last_checkpoint"
    hint.rename(outside / "hint")
    hint.symlink_to(outside / "hint")
    before = contents(outside)
    with pytest.warns(DeltaWarning, match="_last_checkpoint is ignored, because it is no regular"):
        assert DeltaTable(str(root)).snapshot().num_files == 4
    write_commit(root, 4, add("c"), modified_ms=OLD_MS + 5 * DAY_MS)
    with pytest.warns(DeltaWarning, match="_last_checkpoint is ignored"):
        DeltaTable(str(root)).checkpoint()
    assert not hint.is_symlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert DeltaTable(str(root)).snapshot().num_files == 5
    assert contents(outside) == before


def test_the_tables_own_directory_may_be_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    table = DeltaTable(str(tmp_path / "link"))
    assert table.snapshot().num_files == 4
    table.checkpoint()
    vacuum(tmp_path / "link", "full")
    assert clean_up(tmp_path / "link") > 0
    assert DeltaTable(str(root)).snapshot().num_files == 4


def test_a_local_table_that_is_opened_through_fsspec_follows_no_link_either(
    root: Path, outside: Path
) -> None:
    (root / "folder").symlink_to(outside)
    (root / "file").symlink_to(outside / "precious")
    os.mkfifo(root / "fifo")
    before = contents(outside)
    storage = open_storage(f"local://{root}", {"single_writer": "true"})
    for path in ("folder/precious", "file", "fifo"):
        for look in (storage.read, storage.open, storage.head):
            with pytest.raises(NotRegularFileError, match=r"followed|regular"):
                look(path)
    with pytest.raises(NotRegularFileError):
        storage.delete(["folder/precious"])
    with pytest.raises(NotRegularFileError):
        storage.replace("folder/precious", b"ours")
    with pytest.raises(NotRegularFileError):
        list(storage.list("folder"))
    assert contents(outside) == before
