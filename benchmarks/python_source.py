"""A Spark data source in Python, with which `read_snapshot` is compared.

With Spark's Python data source API, Python workers read the rows. This source does the minimum: the engine
lists the files, Arrow reads them whole, and each batch goes to the JVM unchanged. It supports only plain
tables, without deletion vectors, partitions or column mapping.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["python_source_rows"]


def python_source_rows(spark: SparkSession, uri: str) -> DataFrame:
    """The rows of the newest version of a plain table, read by Python workers."""
    from airflow_delta.spark import read_snapshot

    spark.dataSource.register(_Format)
    schema = read_snapshot(spark, uri).schema
    return spark.read.format(_Format.name()).schema(schema).load(uri)


class _Format(DataSource):
    @classmethod
    def name(cls) -> str:
        return "arrow_in_python"

    def reader(self, schema: StructType) -> _Reader:  # noqa: ARG002
        return _Reader(self.options["path"])


class _Reader(DataSourceReader):
    def __init__(self, uri: str) -> None:
        self._uri = uri

    def partitions(self) -> Sequence[InputPartition]:
        from airflow_delta.engine import DeltaTable

        return [InputPartition(path) for path in DeltaTable(self._uri).snapshot().file_uris()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        with pq.ParquetFile(partition.value.removeprefix("file://")) as file:
            yield from file.iter_batches()
