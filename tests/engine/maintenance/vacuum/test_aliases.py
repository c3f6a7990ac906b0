"""Files that the log calls by other names than the store stay, whatever the names differ by."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.maintenance.vacuum.aliases import fold_names, may_be_aliases
from airflow_delta.engine.maintenance.vacuum.plan import plan_vacuum
from airflow_delta.engine.maintenance.vacuum.references import References, collect_references
from airflow_delta.engine.storage.local import LocalStorage
from tests.log_builder import PROTOCOL, add, metadata, remove, write_commit
from tests.vacuum_world import DAY_MS, NOW_MS

OLD_MS = NOW_MS - 30 * DAY_MS


def put(root: Path, *paths: str) -> None:
    for path in paths:
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x")
        os.utime(file, ns=(OLD_MS * 1_000_000, OLD_MS * 1_000_000))


def planned(root: Path, **options: Any) -> list[str]:
    plan = plan_vacuum(LocalStorage(str(root)), CommitOwners(), now_ms=NOW_MS, **options)
    return sorted(plan.files["path"].to_pylist())


def table(root: Path, *actions: Any) -> None:
    write_commit(root, 0, PROTOCOL, metadata(), *actions, modified_ms=OLD_MS)


@pytest.mark.parametrize(
    ("there", "logged"),
    [
        ("part=A/f2", "part=a/f2"),
        ("part=x/F2", "part=x/f2"),
        ("part=é/f2", unicodedata.normalize("NFD", "part=é/f2")),
        ("part=x/é", unicodedata.normalize("NFD", "part=x/É")),
        ("part=x/ß", "part=x/SS"),
        ("part=a b/f2", "part=a+b/f2"),
    ],
)
def test_a_live_file_that_is_spelled_otherwise_stays(
    tmp_path: Path, there: str, logged: str
) -> None:
    """A file system without case, or a writer with an encoding of its own, has just one of the names."""
    table(tmp_path, add(logged), add("f1"))
    put(tmp_path, "f1", there, "orphan")
    assert planned(tmp_path) == ["orphan"]


def test_a_live_file_behind_a_link_stays(tmp_path: Path) -> None:
    table(tmp_path, add("alias/a"), add(f"{tmp_path}/alias/b"), add("c"))
    put(tmp_path, "part=x/a", "part=x/b", "part=x/d", "c")
    (tmp_path / "alias").symlink_to(tmp_path / "part=x", target_is_directory=True)
    assert planned(tmp_path) == ["part=x/d"]


def test_a_live_file_with_a_colon_stays(tmp_path: Path) -> None:
    table(tmp_path, add("a:1.parquet"))
    put(tmp_path, "a:1.parquet", "x:2.parquet")
    assert planned(tmp_path) == ["x:2.parquet"]


def test_files_of_one_name_protect_no_other_as_long_as_they_are_there(tmp_path: Path) -> None:
    """As of a converted table, where each partition has a file of the same name."""
    live = [
        "part=x/000",
        "part=a%20b/000",
        "part=c%2520d/000",
        "./part=y/000",
        f"{tmp_path}/part=e%20f/000",
    ]
    table(tmp_path, *map(add, live))
    found = ["part=x/000", "part=a b/000", "part=c%20d/000", "part=y/000", "part=e f/000"]
    put(tmp_path, *found, "part=z/000")
    assert planned(tmp_path) == ["part=z/000"]


def test_a_lite_vacuum_compares_whole_paths(tmp_path: Path) -> None:
    table(tmp_path, add("part=A/000"), add("part=b/000"), add("part=c/000"))
    removed = [remove(f"part={name}/000", deletionTimestamp=OLD_MS) for name in "Ab"]
    write_commit(tmp_path, 1, *removed, add("part=a/000"), modified_ms=OLD_MS + 1)
    assert planned(tmp_path, mode="lite") == ["part=b/000"]


def test_an_inventory_may_lack_what_is_live(tmp_path: Path) -> None:
    table(tmp_path, add("part=a/000"), add("part=c/000"))
    rows = {
        "path": ["part=A/000", "part=b/000"],
        "length": [1, 1],
        "isDir": [False, False],
        "modificationTime": [OLD_MS, OLD_MS],
    }
    assert planned(tmp_path, inventory=pa.table(rows)) == ["part=b/000"]


def texts(*values: str) -> pa.ChunkedArray:
    return pa.chunked_array([[value] for value in values], pa.string())


def test_names_are_folded_text_by_text() -> None:
    paths = texts("a/B.c", "D", "x/É", "x/E\u0301", "\u212a", "")
    assert fold_names(paths).to_pylist() == ["b.c", "d", "é", "é", "k", ""]
    assert fold_names(pa.chunked_array([], pa.string())).to_pylist() == []


def test_nothing_needed_protects_nothing() -> None:
    nothing: References = collect_references([], table="/t")
    for listed in (texts("a"), None):
        assert may_be_aliases(texts("a"), nothing, listed).to_pylist() == [False]
