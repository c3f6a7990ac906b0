r"""Write rows as CSV or JSON, so that nothing of them is lost.

Each value is written so that it can be told from all others, by whatever reads the files, whatever
the session is set to:

===================  =============================================  ===============================
type                 ``csv``                                        ``json``
===================  =============================================  ===============================
null                 nothing between the commas                     ``null``
string               as it is, in quotes where it must be; an       as it is
                     empty one is ``""``
boolean              ``true``, ``false``                            ``true``, ``false``
whole numbers        digits                                         a number
decimal              digits, never an exponent                      a number with all digits
float, double        the shortest digits that mean the number,      such a number, or the text
                     ``NaN``, ``Infinity``, ``-Infinity``           ``"NaN"`` and so on
date                 ``2026-01-31``                                 the same as text
timestamp            ``2026-01-31T12:00:00.000000Z``, UTC           the same as text
timestamp_ntz        ``2026-01-31T12:00:00.000000``                 the same as text
binary               not held                                       text in base64
===================  =============================================  ===============================

Files are in UTF-8, lines end with ``\n``. CSV files have a header each, and a quote in a value is
doubled (RFC 4180). A value may hold line breaks. A JSON file has an object in each line.

Spark reads them back equal with the schema and `READ_OPTIONS`, but for the character U+0000 in CSV files,
which its reader leaves out.
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
from airflow_delta.spark.reader.data_files import COMMITTER_OPTIONS

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
        # Spark takes blanks away from both ends unless told otherwise.
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
        # Null has no text in the files. Spark gives it this one while it reads, and takes it for null
        # afterwards; it would do so with an empty text in quotes. So it is one that no value is.
        "nullValue": "\0null\0",
        "emptyValue": "",
    },
    "json": dict(_COMMON),
}
"""With which options, and the schema, Spark reads files of a format back equal."""

_LONELY_NULL = "AIRFLOW_DELTA_LONELY_NULL"


def write_text_files(rows: DataFrame, path: str, name: str) -> int:
    """Write rows into a new directory, and count them.

    Args:
        rows: what to write, columns that the format can hold; see `copy_formats.check_columns`.
        path: the directory's Hadoop path; must not exist.
        name: the format: ``csv`` or ``json``.

    Returns:
        How many rows there were.

    Raises:
        InvalidArgumentError: in CSV the only column has a null, whose line would be an empty one,
            which readers pass over.
        PySparkException: Spark's own errors.
    """
    count = Observation()
    columns = [_csv_column(rows, field.name) for field in rows.schema] if name == "csv" else ["*"]
    counted = rows.select(*columns).observe(count, F.count(F.lit(1)).alias("rows"))
    writer = counted.write.mode("error").options(**COMMITTER_OPTIONS, **_WRITE_OPTIONS[name])
    try:
        writer.format(name).save(path)
    except PySparkException as error:
        if _LONELY_NULL not in str(error):
            raise
        raise InvalidArgumentError(
            f"a copy as csv can't hold the nulls of the column {rows.columns[0]}: as it is the only "
            "one, they are empty lines, which readers pass over; choose json, parquet or delta",
            columns=(rows.columns[0],),
        ) from error
    return int(count.get["rows"])


def _csv_column(rows: DataFrame, name: str) -> Column:
    column = rows[quoted(name)]
    # Spark writes small numbers of many decimal places with an exponent, but not as strings.
    text = column.cast("string") if isinstance(rows.schema[name].dataType, DecimalType) else column
    if len(rows.columns) == 1:
        text = F.when(column.isNull(), F.raise_error(F.lit(_LONELY_NULL))).otherwise(text)
    return text.alias(name)
