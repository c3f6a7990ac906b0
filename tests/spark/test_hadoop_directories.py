from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_delta.engine.errors import StorageError
from airflow_delta.spark.hadoop_directories import HadoopDirectories

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


def test_nothing_is_renamed_onto_something(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    directories = HadoopDirectories(spark, f"file:{tmp_path}")
    with pytest.raises(StorageError, match="can't be renamed to"):
        directories.rename(f"file:{tmp_path}/a", f"file:{tmp_path}/b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
