"""Paths of thousands of segments, thousands of files of one name: work grows with them, not with pairs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.maintenance.table_files.listing import find_directory_markers
from airflow_delta.engine.maintenance.table_files.path_endings import (
    LONGEST_PATH,
    iter_known_endings,
    longest_length,
)
from airflow_delta.engine.maintenance.vacuum.aliases import may_be_aliases
from airflow_delta.engine.maintenance.vacuum.references import References
from airflow_delta.engine.maintenance.vacuum.scope import (
    are_in_other_tables,
    find_roots_of_other_tables,
)
from tests.attacks.limited import run_limited
from tests.log_builder import add, remove, write_table

DEEP = "/".join(["a"] * 40_000)

EVERY_OPERATION = """
import sys
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import DeltaError
table = DeltaTable(sys.argv[1])
print(table.vacuum(dry_run=True).plan.total.num_files)
print(table.vacuum(dry_run=True, mode="lite").plan.total.num_files)
print(table.check(depth="files").ok)
print(table.snapshot().files().num_rows)
"""


def _texts(texts: list[str]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(texts, pa.string())])


def _table(root: Path, path: str) -> Path:
    write_table(root, [], [add(path), add(f"{path}2")], [remove(f"{path}2", size=1)])
    for folder in ("k", "l"):
        (root / folder).mkdir()
        (root / folder / "x.parquet").touch()
        os.utime(root / folder / "x.parquet", (1, 1))
    for file in (root / "_delta_log").iterdir():
        os.utime(file, (1, 1))
    return root


@pytest.mark.parametrize("scheme", ["", "s3://bucket/", "file:///", "/"])
def test_a_path_of_many_segments_costs_what_it_is_long(tmp_path: Path, scheme: str) -> None:
    root = _table(tmp_path / "t", f"{scheme}{DEEP}/x.parquet")
    # What has the name of a file that is nowhere to be seen stays, unless the log says where that is.
    deleted, named, *rest = run_limited(EVERY_OPERATION, str(root)).split()
    assert (deleted, named) == ("0", "0")
    assert rest == ["False", "1"]


def test_a_lite_vacuum_passes_over_what_no_file_can_be_called(tmp_path: Path) -> None:
    names = ["a" * 200, f"{DEEP}/x", "b" * 5000]
    root = tmp_path / "t"
    write_table(root, [], [*map(add, [*names, "gone"])], [remove(name) for name in names])
    for file in (root / "_delta_log").iterdir():
        os.utime(file, (1, 1))
    table = DeltaTable(str(root))
    assert table.vacuum(mode="lite").plan.files["path"].to_pylist() == ["a" * 200]


def test_files_of_one_name_arent_compared_with_each_other() -> None:
    near = [f"k={number}/x.parquet" for number in range(3_000)]
    far = [f"s3://b{number}/other/x.parquet" for number in range(3_000)]
    far.append(f"s3://b/t/{near[7]}")
    needed = References(_texts([]).cast(pa.large_string()), _texts(far).cast(pa.large_string()))
    steps = _steps(lambda: needed.protect(_texts(near)).to_pylist())
    assert steps < 40 * len(far)
    assert [n for n, stays in enumerate(needed.protect(_texts(near)).to_pylist()) if stays] == [7]
    steps = _steps(lambda: may_be_aliases(_texts(near[:9]), needed, _texts(near)))
    assert steps < 150 * len(far)


def test_files_of_many_tables_arent_compared_with_each(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    starts_with = pc.starts_with

    def _counting(paths: pa.ChunkedArray, root: str) -> pa.ChunkedArray:
        compared.append(len(paths))
        return starts_with(paths, root)

    monkeypatch.setattr(pc, "starts_with", _counting)
    tables = [f"t{number}/u/_delta_log/0.json" for number in range(3_000)]
    paths = _texts([*tables, *(f"t{number}/u/x" for number in range(3_000)), "t1/v", "w"])
    roots = find_roots_of_other_tables(paths)
    assert _steps(lambda: are_in_other_tables(paths, roots)) + sum(compared) < 40 * len(paths)
    assert are_in_other_tables(paths, roots).to_pylist() == [*[True] * 6_000, False, False]


def test_only_the_directories_that_are_asked_for_are_kept() -> None:
    path = f"{'/'.join(['d'] * 500)}/x"
    assert find_directory_markers(_texts(["d/d", "e"]), _texts([path])).to_pylist() == ["d/d"]


def test_endings_are_no_longer_than_a_file_can_have() -> None:
    wanted = {"x", "a/x", f"{DEEP}/x"}
    assert longest_length(wanted) == 3
    assert list(iter_known_endings(f"/b/{DEEP}/x", wanted, longest=3)) == ["x", "a/x"]
    assert list(iter_known_endings("x", {"x"}, longest=LONGEST_PATH)) == []
    assert longest_length([]) == 0


def _steps(work: Callable[[], object]) -> int:
    """How many lines of Python a piece of work takes."""
    count = 0

    def _trace(_frame: object, event: str, _argument: object) -> object:
        nonlocal count
        count += event == "line"
        return _trace

    before = sys.gettrace()
    sys.settrace(_trace)  # type: ignore[arg-type]
    try:
        work()
    finally:
        sys.settrace(before)
    return count
