from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine.storage.local import LocalStorage
from airflow_delta.spark.reader.data_files import (
    committer_options,
    list_data_files,
    write_data_files,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("compiled")

TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
LEGACY = "spark.sql.parquet.writeLegacyFormat"
ROWS = "SELECT timestamp'2024-01-01' AS ts, array(1) AS a, cast(1 AS decimal(5,1)) AS d"


def test_files_are_as_the_protocol_wants_them(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set(LEGACY, "true")
    try:
        write_data_files(spark.sql(ROWS), f"file:{tmp_path}/new")
        assert spark.conf.get(LEGACY) == "true"
    finally:
        spark.conf.unset(LEGACY)
    (file,) = list_data_files(LocalStorage(str(tmp_path)), "new")
    assert file.num_rows == 1
    columns = [file.footer.schema.column(index) for index in range(3)]
    assert [column.physical_type for column in columns] == ["INT64", "INT32", "INT32"]
    assert columns[1].path == "a.list.element"
    assert {path.suffix for path in (tmp_path / "new").iterdir()} == {".parquet", ".crc"}


def test_files_that_a_committer_has_left_are_no_data_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    names = ("_temporary", "__magic", ".p")
    columns = ", ".join(f"1 AS `{name}`" for name in names)
    path = f"file:{tmp_path}/new"
    write_data_files(spark.sql(f"SELECT {columns}, 2 AS id"), path, partition_by=names)
    (file,) = list_data_files(LocalStorage(str(tmp_path)), "new")
    assert file.info.path.startswith("new/_temporary=1/__magic=1/.p=1/")
    for left in ("_temporary/0/_temporary/task", "__magic_job-1/__base", ".spark-staging-1"):
        (tmp_path / "new" / left / "_temporary=1").mkdir(parents=True)
        (tmp_path / "new" / left / "_temporary=1" / "part-0.parquet").touch()
    assert list_data_files(LocalStorage(str(tmp_path)), "new") == [file]
    assert [found.info.name for found in list_data_files(LocalStorage(f"{tmp_path}/new"), "")] == [
        file.info.name
    ]


@pytest.mark.parametrize(
    ("path", "algorithm"),
    [("file:/t", "1"), ("hdfs://n:8020/t", "1"), ("s3a://b/t", "2"), ("abfss://c@a/t", "2")],
)
def test_tasks_move_their_files_themselves_only_in_object_stores(path: str, algorithm: str) -> None:
    options = committer_options(path)
    assert options["mapreduce.fileoutputcommitter.algorithm.version"] == algorithm


def test_a_failed_write_puts_the_session_back(spark: SparkSession, tmp_path: Path) -> None:
    bad = spark.range(1).select(F.raise_error(F.lit("bad row")).alias("x").cast("int"))
    with pytest.raises(PySparkException, match="bad row"):
        write_data_files(bad, f"file:{tmp_path}/new")
    assert spark.conf.get(TIMESTAMPS) == "INT96"


def test_writers_at_a_time_do_not_undo_each_others_settings(
    spark: SparkSession, tmp_path: Path
) -> None:
    def write(number: int) -> str:
        write_data_files(spark.sql(ROWS), f"file:{tmp_path}/{number}")
        (file,) = list_data_files(LocalStorage(str(tmp_path)), str(number))
        physical_type: str = file.footer.schema.column(0).physical_type
        return physical_type

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(write, range(8))) == {"INT64"}
    assert spark.conf.get(TIMESTAMPS) == "INT96"
