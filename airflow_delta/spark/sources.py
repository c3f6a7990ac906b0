"""Make the DataFrame of a source of rows; see `airflow_delta.row_sources.source`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.row_sources.source import FileSource, FunctionSource, PinnedTable, QuerySource
from airflow_delta.spark.reader.read import read_snapshot
from airflow_delta.spark.runtime.java_errors import storage_errors
from airflow_delta.spark.runtime.locations import hadoop_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta.row_sources.source import RowSource

__all__ = ["load_rows"]


def load_rows(
    spark: SparkSession, source: RowSource, *, storage_options: Mapping[str, str]
) -> DataFrame:
    """Make the DataFrame of a source.

    Args:
        spark: the session, which gets a temporary view for each table of the source.
        source: the source.
        storage_options: credentials and settings with which the engine reads the logs of its tables.

    Raises:
        InvalidArgumentError: the query isn't valid, or isn't a query; there is no such function, or it
            returns no DataFrame; or the format, a reader option or the schema isn't valid.
        StorageError: Spark can't read the files.
        DeltaError: a table can't be read; see `read_snapshot`.
        PySparkException: Spark's other errors.
    """
    match source:
        case FileSource():
            return _files(spark, source)
        case QuerySource():
            _create_views(spark, source.tables, storage_options)
            return _query(spark, source.query)
        case FunctionSource():
            _create_views(spark, source.tables, storage_options)
            return _call(spark, source)


def _files(spark: SparkSession, source: FileSource) -> DataFrame:
    reader = spark.read.format(source.format).options(**source.options)
    try:
        if source.schema is not None:
            reader = reader.schema(source.schema)
        with storage_errors(source.uri, "read"):
            return reader.load(_spark_path(source.uri))
    except AnalysisException as error:
        what = f"the files {source.uri} in the format {source.format}"
        raise _invalid(what, str(error)) from error
    except Py4JJavaError as error:
        reason = str(error.java_exception.getMessage())
        if "DATA_SOURCE_NOT_FOUND" not in reason:
            raise
        raise _invalid(f"the format {source.format}", reason) from error


def _spark_path(uri: str) -> str:
    """A path for Spark's readers; their wildcards stay."""
    return uri if uri.startswith("file:") else hadoop_path(uri)


def _create_views(
    spark: SparkSession, tables: Mapping[str, PinnedTable], storage_options: Mapping[str, str]
) -> None:
    for name, table in tables.items():
        rows = read_snapshot(
            spark,
            table.table_uri,
            table.version,
            storage_options=storage_options,
            allowed_outside=table.allowed_outside,
        )
        rows.createOrReplaceTempView(name)


def _query(spark: SparkSession, query: str) -> DataFrame:
    try:
        # PySpark has no other access to Spark's parser. `sql` alone would execute a command.
        spark._jsparkSession.sessionState().sqlParser().parseQuery(query)  # noqa: SLF001
        return spark.sql(query)
    except AnalysisException as error:
        raise _invalid(f"the query {query!r}", str(error)) from error


def _call(spark: SparkSession, source: FunctionSource) -> DataFrame:
    if source.python_path is not None and source.python_path not in sys.path:
        # At the end, so that its modules don't hide others.
        sys.path.append(source.python_path)
    try:
        module = importlib.import_module(source.module)
    except ModuleNotFoundError as error:
        if not f"{source.module}.".startswith(f"{error.name}."):
            raise
        raise InvalidArgumentError(
            f"the function {source.function!r}: the driver finds no module {error.name!r}; install it, or "
            "add it to spark.submit.pyFiles"
        ) from error
    function = getattr(module, source.name, None)
    if not callable(function):
        raise InvalidArgumentError(
            f"the function {source.function!r}: the module has no function {source.name!r}"
        )
    rows = function(spark, **source.arguments)
    if not isinstance(rows, DataFrame):
        raise InvalidArgumentError(
            f"the function {source.function!r} returned a {type(rows).__name__}: expected a DataFrame "
            "of Spark"
        )
    return rows


def _invalid(what: str, reason: str) -> InvalidArgumentError:
    # The first line is the reason, the others are the query plan.
    line = reason.strip().partition("\n")[0]
    return InvalidArgumentError(f"{what}: {line}")
