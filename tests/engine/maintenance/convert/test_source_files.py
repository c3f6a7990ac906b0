"""Which files become the table, and what is refused instead of being left out."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import (
    DataFileError,
    InvalidArgumentError,
    MissingFilesError,
    NotRegularFileError,
)
from airflow_delta.engine.maintenance.convert import plan
from airflow_delta.engine.maintenance.convert.source_files import list_source_files
from airflow_delta.engine.storage.file_access import FileAccess
from tests.engine.maintenance.convert.parquet_folders import adds_of, write_parquet


def test_hidden_names_are_left_out_apart_from_partitions(tmp_path: Path) -> None:
    for name in (
        "0.parquet",
        "_1.parquet",
        ".2.parquet",
        "_hidden/3.parquet",
        ".hidden/4.parquet",
        "a/_hidden/b/5.parquet",
        "a/6",
        "a/_x=1.parquet",
    ):
        write_parquet(tmp_path / name, {"id": [1]})
    DeltaTable.convert(tmp_path)
    assert set(adds_of(tmp_path)) == {"0.parquet", "a/6"}


def test_a_partition_column_may_begin_like_a_hidden_name(tmp_path: Path) -> None:
    write_parquet(tmp_path / "_p=1" / "0.parquet", {"id": [1]})
    write_parquet(tmp_path / "_p=2" / "_1.parquet", {"id": [1]})
    DeltaTable.convert(tmp_path, {"_p": "integer"})
    assert [add["partitionValues"] for add in adds_of(tmp_path).values()] == [{"_p": "1"}]


def test_without_files_there_is_nothing_to_convert(tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").touch()
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(InvalidArgumentError, match="there is no Parquet file to convert"):
            DeltaTable.convert(folder)
    with pytest.raises(InvalidArgumentError, match="there is no Parquet file to convert"):
        DeltaTable.convert(tmp_path, files=[])


@pytest.mark.parametrize("content", [b"", b"id,name\n1,a\n", b"PAR1" + b"\0" * 20 + b"PAR1"])
def test_a_file_that_is_not_parquet_is_named(tmp_path: Path, content: bytes) -> None:
    write_parquet(tmp_path / "0.parquet", {"id": [1]})
    (tmp_path / "notes.csv").write_bytes(content)
    with pytest.raises(DataFileError, match=r"'notes\.csv' can't be read as Parquet") as failed:
        DeltaTable.convert(tmp_path)
    assert failed.value.path == "notes.csv"
    assert not (tmp_path / "_delta_log").exists()


@pytest.mark.parametrize("num_rows", [10, 100_000])
def test_a_file_that_changes_after_the_listing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_rows: int
) -> None:
    write_parquet(tmp_path / "0.parquet", {"id": [*range(num_rows)]})

    def list_then_change(access: FileAccess) -> pa.Table:
        listed = list_source_files(access)
        write_parquet(tmp_path / "0.parquet", {"id": [*range(3 * num_rows)]})
        return listed

    monkeypatch.setattr(plan, "list_source_files", list_then_change)
    with pytest.raises(DataFileError, match="was changed during the conversion") as failed:
        DeltaTable.convert(tmp_path)
    assert failed.value.path == "0.parquet"
    assert not (tmp_path / "_delta_log").exists()


def test_a_link_is_refused_since_a_listing_would_leave_its_rows_out(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "t", tmp_path / "elsewhere"
    write_parquet(root / "0.parquet", {"id": [1]})
    write_parquet(elsewhere / "1.parquet", {"id": [2]})
    for link, target in (("day=1", elsewhere), ("1.parquet", elsewhere / "1.parquet")):
        (root / link).symlink_to(target)
        with pytest.raises(NotRegularFileError, match="is a symbolic link") as failed:
            DeltaTable.convert(root)
        assert failed.value.path == link
        with pytest.raises(NotRegularFileError):
            DeltaTable.convert(root, files=["day=1/1.parquet" if link == "day=1" else link])
        (root / link).rename(root / f"_{link.replace('=', '')}")
    assert DeltaTable.convert(root).to_dict()["files"] == 1


def test_what_is_below_hidden_directories_does_not_matter(tmp_path: Path) -> None:
    root = tmp_path / "t"
    write_parquet(root / "0.parquet", {"id": [1]})
    (root / ".venv" / "bin").mkdir(parents=True)
    (root / ".venv" / "bin" / "python").symlink_to("/usr/bin/python3")
    for other in ("_old/_delta_log", "a/.old/b/_delta_log", "_old/_spark_metadata"):
        (root / other).mkdir(parents=True)
        (root / other / f"{0:020}.json").write_text("{}")
    assert DeltaTable.convert(root).to_dict()["files"] == 1


@pytest.mark.parametrize("folder", ["inner", "_day=1", "a/.b=c/d"])
def test_another_table_is_found_in_each_directory_that_is_not_hidden(
    tmp_path: Path, folder: str
) -> None:
    write_parquet(tmp_path / "0.parquet", {"id": [1]})
    log = tmp_path / folder / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("{}")
    with pytest.raises(InvalidArgumentError, match="the log of another Delta table"):
        DeltaTable.convert(tmp_path)


def test_a_link_to_the_directory_itself_is_the_users(tmp_path: Path) -> None:
    write_parquet(tmp_path / "t" / "0.parquet", {"id": [1]})
    (tmp_path / "link").symlink_to(tmp_path / "t")
    assert DeltaTable.convert(tmp_path / "link").version == 0


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("../outside.parquet", "without '..'"),
        ("a/../../outside.parquet", "without '..'"),
        ("/etc/passwd", "a relative path"),
        ("a\0b", "a relative path"),
        ("half\ud800", "in UTF-8"),
        ("", "the path of a file"),
        ("a/", "the path of a file"),
        ("a//b.parquet", "without empty segments"),
        ("./0.parquet", "without empty segments"),
        ("_delta_log/0.parquet", "in the log"),
    ],
)
def test_a_list_has_paths_below_the_directory_only(tmp_path: Path, path: str, problem: str) -> None:
    root = tmp_path / "t"
    write_parquet(tmp_path / "outside.parquet", {"id": [1]})
    write_parquet(root / "a" / "0.parquet", {"id": [1]})
    with pytest.raises(InvalidArgumentError, match=problem) as failed:
        DeltaTable.convert(root, files=[path])
    assert failed.value.path == path
    assert not (root / "_delta_log").exists()


def test_a_list_names_each_file_once_and_files_that_exist(tmp_path: Path) -> None:
    write_parquet(tmp_path / "0.parquet", {"id": [1]})
    with pytest.raises(InvalidArgumentError, match="listed twice"):
        DeltaTable.convert(tmp_path, files=["0.parquet", "0.parquet"])
    with pytest.raises(MissingFilesError, match=r"the file '1\.parquet' doesn't exist"):
        DeltaTable.convert(tmp_path, files=["0.parquet", "1.parquet"])
    for wrong in ("0.parquet", [1]):
        with pytest.raises(InvalidArgumentError, match="files"):
            DeltaTable.convert(tmp_path, files=wrong)  # type: ignore[arg-type]


def test_files_of_another_owner_are_not_taken_for_rows(tmp_path: Path) -> None:
    for log in ("inner/_delta_log/00000000000000000000.json", "_spark_metadata/0"):
        root = tmp_path / log[:2]
        write_parquet(root / "0.parquet", {"id": [1]})
        (root / log).parent.mkdir(parents=True)
        (root / log).write_text("{}")
        with pytest.raises(InvalidArgumentError, match=r"files=\[…\]") as failed:
            DeltaTable.convert(root)
        assert failed.value.path == log
        assert DeltaTable.convert(root, files=["0.parquet"]).version == 0
