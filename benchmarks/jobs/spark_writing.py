"""Jobs that write rows with Spark, and with Delta Spark in a session with the same settings.

The rows are those of `data_tables.large`, read from Parquet files. Each run makes a new table, writes a
twentieth of the rows to another one to warm up, and then writes all rows once while the clock runs, with
the commit. The answer is a hash of the table's rows, without columns whose values each engine makes up.

Delta Spark writes a checkpoint every ten commits. Our writer leaves that to others, so in the job with many
commits our side writes checkpoints of the same versions.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from benchmarks import data_tables
from benchmarks.job import Job, Outcome, Side

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["JOBS"]

_ROWS = 20_000_000
_MEMORY = "4g"
_WARM_UP = 20
"""The rows of a warm-up are this part of all rows."""

_REGION = "region-07"
_BATCH = 100
_ROWS_FOR_AN_APPEND = 20_000
"""So many rows of the job's size make one small append."""

_CHECKPOINT_INTERVAL = 10

_Given: TypeAlias = "tuple[SparkSession, str]"
_Columns: TypeAlias = "Mapping[str, str]"


@dataclass(frozen=True, slots=True)
class _Table:
    """A table to write to.

    Attributes:
        partition_by: its partition columns.
        properties: its properties.
        more: further columns of the table, with their types.
        metadata: the metadata of these, such as generation expressions.
        computed: further columns of the rows, in SQL.
        insert: whether Delta Spark needs SQL, which alone fills defaults in.
    """

    partition_by: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    more: _Columns = field(default_factory=dict)
    metadata: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    computed: _Columns = field(default_factory=dict)
    insert: bool = False

    def create(self, uri: str, rows: DataFrame) -> None:
        """Create it."""
        from airflow_delta.engine import DeltaTable
        from airflow_delta.engine.model.schema import PrimitiveType, StructField, StructType
        from airflow_delta.spark.writer.rows_schema import new_table_schema

        more = [
            StructField(name, PrimitiveType(type_), metadata=dict(self.metadata.get(name, {})))
            for name, type_ in self.more.items()
        ]
        schema = StructType((*new_table_schema(rows).fields, *more))
        DeltaTable.create(
            uri, schema, partition_by=list(self.partition_by), properties=dict(self.properties)
        )

    def rows(self, source: DataFrame) -> DataFrame:
        """The rows to be written."""
        return source.selectExpr("*", *(f"{sql} AS {name}" for name, sql in self.computed.items()))


_IDENTITY = {
    "delta.identity.start": 1,
    "delta.identity.step": 1,
    "delta.identity.allowExplicitInsert": False,
}

_TABLES: Mapping[str, tuple[str, _Table]] = {
    "write": ("append rows", _Table()),
    "write-rules": (
        "append rows to a table with four CHECK constraints and a generated column",
        _Table(
            properties={
                "delta.constraints.positive": "number >= 0",
                "delta.constraints.few": "number < 1000000",
                "delta.constraints.priced": "price IS NOT NULL AND price >= 0",
                "delta.constraints.named": "length(name) > 3",
            },
            more={"at_day": "date"},
            metadata={"at_day": {"delta.generationExpression": "CAST(at AS DATE)"}},
        ),
    ),
    "write-partitioned": (
        "append rows in 50 partitions",
        _Table(partition_by=["part"], computed={"part": "number % 50"}),
    ),
    "write-mapped": (
        "append rows to a table with column mapping by id",
        _Table(properties={"delta.columnMapping.mode": "id"}),
    ),
    "write-identity": (
        "append rows to a table with an identity column and a default",
        _Table(
            properties={"delta.feature.allowColumnDefaults": "supported"},
            more={"key": "long", "origin": "string"},
            metadata={"key": _IDENTITY, "origin": {"CURRENT_DEFAULT": "'web'"}},
            insert=True,
        ),
    ),
}
_MADE_UP = ("key",)


def _source(spark: SparkSession, uri: str) -> DataFrame:
    return spark.read.parquet(f"{uri}/*.parquet")


def _append(given: _Given, table: _Table, *, peers: bool) -> Outcome:
    spark, uri = given
    rows = table.rows(_source(spark, uri))
    peers_write = _insert if table.insert else _peers_write
    write: Callable[[DataFrame, str], object] = peers_write if peers else _our_write
    with _folder(uri) as folder:
        for name, part in (("warm-up", rows.where(f"id % {_WARM_UP} = 0")), ("table", rows)):
            target = f"{folder}/{name}"
            table.create(target, rows)
            begin = time.perf_counter()
            write(part, target)
            seconds = time.perf_counter() - begin
        return _outcome(spark, target, seconds)


def _overwrite(given: _Given, *, peers: bool) -> Outcome:
    """Replace the rows of one partition of twenty."""
    spark, uri = given
    source = spark.read.option("basePath", uri).parquet(f"{uri}/region={_REGION}")
    rows = source.selectExpr("* EXCEPT (ratio, region)", "-ratio AS ratio", "region")
    where = f"region = '{_REGION}'"
    with _folder(uri) as folder:
        for name in ("warm-up", "table"):
            target = f"{folder}/{name}"
            # No engine changes a data file.
            shutil.copytree(uri, target, copy_function=os.link)
            begin = time.perf_counter()
            if peers:
                _peers_write(rows, target, mode="overwrite", replaceWhere=where)
            else:
                _our_write(rows, target, mode="overwrite", replace_where=where)
            seconds = time.perf_counter() - begin
        return _outcome(spark, target, seconds)


def _stream(given: _Given, *, peers: bool) -> Outcome:
    """Many small appends, each with the transaction identifier of a stream."""
    spark, uri = given
    source = _source(spark, uri)
    appends = max(_CHECKPOINT_INTERVAL, source.count() // _ROWS_FOR_AN_APPEND)
    batch = spark.createDataFrame(source.limit(_BATCH).toArrow(), source.schema).coalesce(1)
    with _folder(uri) as folder:
        for name, count in (("warm-up", _CHECKPOINT_INTERVAL), ("table", appends)):
            target = f"{folder}/{name}"
            _Table().create(target, batch)
            begin = time.perf_counter()
            for number in range(count):
                if peers:
                    _peers_write(batch, target, txnAppId="stream", txnVersion=number)
                else:
                    _our_append(batch, target, number)
            seconds = time.perf_counter() - begin
        return _outcome(spark, target, seconds)


def _our_append(batch: DataFrame, target: str, number: int) -> None:
    version = _our_write(batch, target, txn=("stream", number))
    if version % _CHECKPOINT_INTERVAL == 0:
        from airflow_delta.engine import DeltaTable

        DeltaTable(target).checkpoint(version)


def _our_write(rows: DataFrame, target: str, **how: Any) -> int:
    from airflow_delta.spark import write

    return write(rows, target, **how).version


def _peers_write(rows: DataFrame, target: str, *, mode: str = "append", **options: object) -> None:
    rows.write.format("delta").mode(mode).options(**options).save(target)


def _insert(rows: DataFrame, target: str) -> None:
    rows.createOrReplaceTempView("new_rows")
    columns = ", ".join(rows.columns)
    rows.sparkSession.sql(
        f"INSERT INTO delta.`{target}` ({columns}) SELECT {columns} FROM new_rows"
    ).collect()


@contextmanager
def _folder(uri: str) -> Iterator[str]:
    """A folder for the tables of a run, in the file system of the source."""
    with tempfile.TemporaryDirectory(dir=Path(uri).parent) as folder:
        yield folder


def _outcome(spark: SparkSession, target: str, seconds: float) -> Outcome:
    from pyspark.sql import functions as F  # noqa: N812

    from airflow_delta.engine import DeltaTable
    from airflow_delta.spark import read_snapshot

    rows = read_snapshot(spark, target).drop(*_MADE_UP)
    hashed = F.xxhash64(*[rows[f"`{name}`"] for name in sorted(rows.columns)])
    (row,) = rows.agg(F.sum(hashed.cast("decimal(20,0)"))).collect()
    snapshot = DeltaTable(target).snapshot()
    figures = {"files": float(snapshot.num_files), "MB": snapshot.size_in_bytes / 1e6}
    return Outcome(int(row[0] or 0), figures, seconds=seconds)


def _plain(uri: str) -> _Given:
    from benchmarks.spark_sessions import plain_session

    return plain_session(memory=_MEMORY), uri


def _delta(uri: str) -> _Given:
    from benchmarks.spark_sessions import delta_session

    return delta_session(memory=_MEMORY), uri


_MODULES = ("pyspark.sql", "airflow_delta.spark.ingest.write", "airflow_delta.spark.reader.read")


def _job(
    name: str,
    title: str,
    work: Callable[..., Outcome],
    table: Callable[[Path, int], Path] = data_tables.large,
) -> Job:
    return Job(
        name,
        title,
        table,
        Side("ours", partial(work, peers=False), _plain, _MODULES),
        (Side("Delta Spark", partial(work, peers=True), _delta, _MODULES),),
        only_by_name=True,
        actions=_ROWS,
    )


JOBS = (
    *(_job(name, title, partial(_append, table=table)) for name, (title, table) in _TABLES.items()),
    _job(
        "overwrite-where",
        "overwrite one partition of 20 by a condition",
        _overwrite,
        partial(data_tables.large, partitioned=True),
    ),
    _job("write-small", f"append {_BATCH} rows, a thousand times", _stream),
)
