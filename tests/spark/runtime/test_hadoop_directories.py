from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta.engine.errors import StorageError
from airflow_delta.spark.runtime import hadoop_directories
from airflow_delta.spark.runtime.hadoop_directories import HadoopDirectories

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_directories_are_renamed_and_deleted(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a {b}").mkdir()
    (tmp_path / "a {b}" / "f").write_text("x")
    directories = HadoopDirectories(spark, f"file:{tmp_path}")
    directories.rename(f"file:{tmp_path}/a {{b}}", f"file:{tmp_path}/c%20")
    assert (tmp_path / "c%20" / "f").read_text() == "x"
    assert directories.exists(f"file:{tmp_path}/c%20")
    directories.delete(f"file:{tmp_path}/c%20")
    directories.delete(f"file:{tmp_path}/c%20")
    assert list(tmp_path.iterdir()) == []


class Meanwhile:
    """Hadoop's file system, in which something happens behind the last look and before it renames."""

    def __init__(self, file_system: Any, happens: Callable[[], object]) -> None:
        self._file_system = file_system
        self._happens = happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file_system, name)

    def rename(self, *paths: Any) -> Any:
        self._happens()
        self._happens = lambda: None
        return self._file_system.rename(*paths)


def directory(path: Path, content: str) -> None:
    path.mkdir()
    (path / "f").write_text(content)


@pytest.fixture(params=["by the operating system", "by Hadoop"])
def directories(
    spark: SparkSession,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> HadoopDirectories:
    """Of local paths, renamed in either way."""
    if request.param == "by Hadoop":
        monkeypatch.setattr(hadoop_directories, "_LOCAL", "no such scheme:")
    return HadoopDirectories(spark, f"file:{tmp_path}")


def test_nothing_is_renamed_onto_something(directories: HadoopDirectories, tmp_path: Path) -> None:
    for name in ("a", "b"):
        directory(tmp_path / name, name)
    (tmp_path / "file").write_text("x")
    for name in ("b", "file"):
        with pytest.raises(StorageError, match=r"rename .* failed: .*try again"):
            directories.rename(f"file:{tmp_path}/a", f"file:{tmp_path}/{name}")
    assert [(tmp_path / name / "f").read_text() for name in ("a", "b")] == ["a", "b"]
    assert (tmp_path / "file").read_text() == "x"
    assert len(list(tmp_path.rglob("*"))) == 5


def test_nothing_is_renamed_into_what_comes_meanwhile(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hadoop itself would."""
    monkeypatch.setattr(hadoop_directories, "_LOCAL", "no such scheme:")
    directories = HadoopDirectories(spark, f"file:{tmp_path}")
    directory(tmp_path / "a", "a")
    slow = Meanwhile(directories._file_system, lambda: directory(tmp_path / "b", "b"))
    monkeypatch.setattr(directories, "_file_system", slow)
    with pytest.raises(StorageError, match="/b isn't free"):
        directories.rename(f"file:{tmp_path}/a", f"file:{tmp_path}/b")
    assert [(tmp_path / name / "f").read_text() for name in ("a", "b")] == ["a", "b"]
    assert len(list(tmp_path.rglob("[!.]*"))) == 4


def test_what_is_not_there_is_told(directories: HadoopDirectories, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"rename .*/a' failed: .*try again"):
        directories.rename(f"file:{tmp_path}/a", f"file:{tmp_path}/b")
    directory(tmp_path / "d", "d")
    there = [directories.is_file(f"file:{tmp_path}/{name}") for name in ("a", "d", "d/f")]
    assert there == [False, False, True]
