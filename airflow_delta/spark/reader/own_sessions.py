"""Read data files under other settings than those of the user's session.

Some settings of a session change values as Spark reads them. Rows that are only read are the user's matter.
But rows that are written anew must stay as they are, or the table would keep the changed values. Rows that
are checked against a new rule must be those that other engines will find there. Spark has no options for
some of these settings, so such files are read in a session of our own: a scan follows the settings of the
session in which it was made, also in a plan of another session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from airflow_delta.spark.reader.columns import FIELD_IDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["exact_session", "in_session", "own_session", "planned_quickly"]

_READ_SETTINGS = {
    "spark.sql.caseSensitive": "false",
    "spark.sql.parquet.fieldId.read.ignoreMissing": "false",
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
}
"""Spark's defaults. Other values would change rows as they are read."""

_PLANNING_SETTINGS = {"spark.sql.constraintPropagation.enabled": "false"}
"""The settings under which Spark's optimizer doesn't infer filters from what it knows of columns.

For hundreds of columns that takes far longer than all the rest: more than a minute for a merge of 400
columns. The rows are the same without these filters.
"""

_MANY_COLUMNS = 50


def own_session(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """A new session with the settings of another, in which rows are read as they are stored.

    The settings of the other stay as they are.

    Args:
        spark: the other session.
        settings: further settings that differ.
    """
    return _copied_session(spark, {**_READ_SETTINGS, **settings})


def _copied_session(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    # `newSession` has the settings of the context, and to copy those of the session one by one takes longer
    # than planning a scan.
    session = type(spark)(spark.sparkContext, spark._jsparkSession.cloneSession())  # noqa: SLF001
    for name, value in settings.items():
        session.conf.set(name, value)
    return session


def exact_session(spark: SparkSession, *, mode: str) -> SparkSession:
    """A new session for reading the files of a table (`own_session`).

    Args:
        spark: the session whose other settings it has.
        mode: the table's column mapping mode.
    """
    return own_session(spark, {FIELD_IDS: str(mode == "id").lower()})


def in_session(rows: DataFrame, spark: SparkSession) -> DataFrame:
    """The same rows as a DataFrame of another session, where they can be joined and evaluated.

    Args:
        rows: the rows.
        spark: the session.
    """
    if rows.sparkSession is spark:
        return rows
    jvm: Any = spark._jvm  # noqa: SLF001
    plan = rows._jdf.queryExecution().analyzed()  # noqa: SLF001
    frame = jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan)  # noqa: SLF001
    return DataFrame(frame, spark)


def planned_quickly(rows: DataFrame) -> DataFrame:
    """The same rows, so that Spark doesn't take minutes to plan them if they have hundreds of columns.

    Args:
        rows: the rows. If they have few columns, they are returned as they are; otherwise as a DataFrame of
            another session, with all settings of theirs but `_PLANNING_SETTINGS`.
    """
    if len(rows.columns) <= _MANY_COLUMNS:
        return rows
    return in_session(rows, _copied_session(rows.sparkSession, _PLANNING_SETTINGS))
