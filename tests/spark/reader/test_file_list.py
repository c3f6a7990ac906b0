from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.engine.errors import InvalidTableError, UnsupportedFeatureError
from airflow_delta.job_files import FOLDER_VARIABLE
from airflow_delta.spark.reader.file_list import scan_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = T.StructType().add("n", "long")


def scan(spark: SparkSession, uris: list[str], size: int = 500) -> DataFrame:
    sizes = [size] * len(uris)
    return scan_files(
        spark, uris, sizes=sizes, modified_ms=[0] * len(uris), schema=SCHEMA, table="t"
    )


def test_nothing_but_the_files_named_is_read(spark: SparkSession, tmp_path: Path) -> None:
    uris = []
    for number in range(40):
        file = tmp_path / f"k={number % 2}" / f"f{number}.parquet"
        file.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"n": [number]}), file)
        uris.append(f"file:{file}")
    size = file.stat().st_size
    frame = scan(spark, uris[::3], size)
    assert frame.columns == ["n"]
    assert sorted(row.n for row in frame.collect()) == list(range(0, 40, 3))


def test_the_list_of_a_job_is_in_the_folder_of_its_submission(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that it is deleted with it, whatever becomes of the driver."""
    file, folder = tmp_path / "f.parquet", tmp_path / "job"
    pq.write_table(pa.table({"n": [1]}), file)
    uri, size = f"file:{file}", file.stat().st_size
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    with pytest.raises(FileNotFoundError, match=str(folder)):
        scan(spark, [uri], size)
    folder.mkdir()
    assert scan(spark, [uri], size).collect() == [(1,)]
    assert list(folder.iterdir()) == []


def test_names_and_columns_of_any_kind(spark: SparkSession, tmp_path: Path) -> None:
    """Lists in Arrow, cut anyhow, and names that JSON, Spark's listing or a partition could mistake."""
    names = ["a=b", "_k=1", "é😀", "%22quoted%22", "back%5Cslash", "%7Bx%7D"]
    for number, name in enumerate(names):
        pq.write_table(pa.table({"n": [number]}), tmp_path / f"{unquote(name)}.parquet")
    uris = pa.array(["skipped", *[f"file:{tmp_path}/{name}.parquet" for name in names]])
    sizes = [(tmp_path / f"{unquote(name)}.parquet").stat().st_size for name in names]
    frame = scan_files(
        spark,
        pa.chunked_array([uris[1:3], uris[3:]]),
        sizes=pa.array(sizes, pa.int32()),
        modified_ms=[2**40] * len(names),
        schema=SCHEMA,
        table="t",
    )
    metadata = frame.metadataColumn("_metadata")
    rows = frame.select("n", metadata["file_path"], metadata["file_size"]).collect()
    assert sorted(tuple(row) for row in rows) == [
        (number, uris[number + 1].as_py(), sizes[number]) for number in range(len(names))
    ]


@pytest.mark.parametrize("name", ["_f.parquet", ".f.parquet", ".k=1"])
def test_names_that_spark_skips(spark: SparkSession, name: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=f"file:/t/{name} can't be read with Spark"):
        scan(spark, ["file:/t/f.parquet", f"file:/t/{name}"])


def test_files_without_bytes(spark: SparkSession) -> None:
    with pytest.raises(InvalidTableError, match="has the size 0 in the log"):
        scan(spark, ["file:/t/f.parquet"], 0)


def test_a_session_whose_sources_do_not_tell_the_places_of_rows(spark: SparkSession) -> None:
    setting = "spark.sql.sources.useV1SourceList"
    spark.conf.set(setting, "csv, orc")
    try:
        with pytest.raises(
            UnsupportedFeatureError, match=r"is 'csv, orc': .*without parquet in it"
        ):
            scan(spark, ["file:/t/f.parquet"])
    finally:
        spark.conf.unset(setting)


def test_a_session_that_compacts_every_file_list(spark: SparkSession) -> None:
    setting = "spark.sql.streaming.fileSink.log.compactInterval"
    try:
        for interval in ("1", "2", "10"):
            spark.conf.set(setting, interval)
            assert scan(spark, ["file:/t/f.parquet"]).columns
    finally:
        spark.conf.unset(setting)


def test_a_session_that_ignores_file_lists(spark: SparkSession) -> None:
    setting = "spark.sql.streaming.fileStreamSink.ignoreMetadata"
    spark.conf.set(setting, "true")
    try:
        with pytest.raises(UnsupportedFeatureError, match="none of the 1 files of the table"):
            scan(spark, ["file:/t/f.parquet"])
    finally:
        spark.conf.unset(setting)


def test_a_file_in_two_spellings(spark: SparkSession) -> None:
    with pytest.raises(InvalidTableError, match="found 1 files, but the log names 2"):
        scan(spark, ["file:/t/f.parquet", "file:/t/./f.parquet"])
