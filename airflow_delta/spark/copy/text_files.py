"""Write rows as CSV or JSON without losing information.

Different values have different texts, whatever the settings of the session; docs/how-to/copy-a-version.md
("CSV and JSON") lists them. With the schema and `READ_OPTIONS` Spark reads equal rows back, except that its
CSV reader drops the character U+0000.

Files are in UTF-8. Each CSV file has a header, and a quote in a value is doubled (RFC 4180). A value may
contain line breaks. A JSON file has an object in each line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it
from pyspark.sql.types import DecimalType

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.spark.reader.columns import quoted
from airflow_delta.spark.reader.data_files import committer_options

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["READ_OPTIONS", "write_text_files"]

_COMMON = {
    "encoding": "UTF-8",
    "compression": "none",
    "lineSep": "\n",
    "timeZone": "UTC",
    "dateFormat": "yyyy-MM-dd",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_QUOTES = {"header": "true", "quote": '"', "escape": '"'}
_WRITE_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "csv": {
        **_COMMON,
        **_QUOTES,
        "nullValue": "",
        "emptyValue": '""',
        # By default Spark strips blanks from both ends.
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
    },
    "json": {**_COMMON, "ignoreNullFields": "false"},
}

READ_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "csv": {
        **_COMMON,
        **_QUOTES,
        "multiLine": "true",
        # Spark's reader first replaces a missing text with this one, then turns this text into
        # null. With an empty text it would also turn empty strings into null. So this is a text
        # that no value has.
        "nullValue": "\0null\0",
        "emptyValue": "",
    },
    "json": dict(_COMMON),
}
"""The options with which Spark reads equal rows back, by format."""

_LONELY_NULL = "AIRFLOW_DELTA_LONELY_NULL"


def write_text_files(rows: DataFrame, path: str, name: str) -> int:
    """Write rows into a new directory, and count them.

    Args:
        rows: the rows, in columns that the format can hold; see
            `airflow_delta.copies.formats.check_columns`.
        path: the directory's Hadoop path; must not exist.
        name: the format: ``csv`` or ``json``.

    Returns:
        The number of rows.

    Raises:
        InvalidArgumentError: the only column of a CSV file has a null. Its line would be empty, and
            readers skip empty lines.
        PySparkException: Spark's own errors.
    """
    count = Observation()
    columns = [_csv_column(rows, field.name) for field in rows.schema] if name == "csv" else ["*"]
    counted = rows.select(*columns).observe(count, F.count(F.lit(1)).alias("rows"))
    writer = counted.write.mode("error").options(**committer_options(path), **_WRITE_OPTIONS[name])
    try:
        writer.format(name).save(path)
    except PySparkException as error:
        if _LONELY_NULL not in str(error):
            raise
        raise InvalidArgumentError(
            f"a copy as csv can't hold the nulls of the column {rows.columns[0]}: in the only column they "
            "are empty lines, which readers skip; choose json, parquet or delta",
            columns=(rows.columns[0],),
        ) from error
    return int(count.get["rows"])


def _csv_column(rows: DataFrame, name: str) -> Column:
    column = F.col(quoted(name))
    # Spark writes small decimals of a large scale with an exponent, but not when cast to strings.
    text = column.cast("string") if isinstance(rows.schema[name].dataType, DecimalType) else column
    if len(rows.columns) == 1:
        text = F.when(column.isNull(), F.raise_error(F.lit(_LONELY_NULL))).otherwise(text)
    return text.alias(name)
