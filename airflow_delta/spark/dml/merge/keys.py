"""The keys of a merge: the equalities in its condition, and the values that they have in the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    from airflow_delta.spark.dml.merge.source import MergeSource

__all__ = ["MergeKey", "SourceKeys", "has_plain_order", "read_keys"]

_ORDERED = {"tinyint", "smallint", "int", "bigint", "string", "date"}

_MOST_PARTITIONS = 200
"""Up to so many values of a partition column are listed one by one."""


def has_plain_order(type_: str) -> bool:
    """Whether values of a type have the same order everywhere, and come to Python and back as they are.

    A date does so as a number (`_sent`): Python has no years before 1 and after 9999, and the way back
    leads through Java's older calendar.

    Args:
        type_: the type, as in SQL. A string with a collation has another name than ``string``.
    """
    return type_ in _ORDERED or type_.startswith("decimal(")


@dataclass(frozen=True, slots=True)
class MergeKey:
    """An equality of an expression over the table with one over the source.

    Attributes:
        own: the table's side.
        other: the source's side, resolved.
        type_: the type of both, as in SQL.
        is_null_safe: whether null equals null.
        is_of_partitions: whether the table's side has partition columns alone.
        is_column: whether the table's side is a column, in its own type or in a wider one. It has a value
            in every row; an expression may fail in rows that the merge doesn't read.
    """

    own: Column
    other: Column
    type_: str
    is_null_safe: bool
    is_of_partitions: bool
    is_column: bool

    def condition(self, values: _KeyValues) -> Column:
        """A condition on the table's side that holds for every match."""
        if values.least is None:
            found = F.lit(False)
        elif values.listed is not None:
            found = self.own.isin([_received(value, self.type_) for value in values.listed])
        else:
            least, greatest = (
                _received(value, self.type_) for value in (values.least, values.greatest)
            )
            found = (self.own >= least) & (self.own <= greatest)
        return found | self.own.isNull() if self.is_null_safe and values.has_null else found


@dataclass(frozen=True, slots=True)
class _KeyValues:
    """The values of a key in the rows of the source that can match, as `_sent` gives them.

    Attributes:
        least: the least one; None if there is none but null.
        greatest: the greatest one.
        has_null: whether there is a null.
        listed: all of them but null; None if they weren't listed.
    """

    least: Any
    greatest: Any
    has_null: bool
    listed: Sequence[Any] | None


@dataclass(frozen=True, slots=True)
class SourceKeys:
    """The values of the keys in the source.

    Attributes:
        num_rows: the number of its rows.
        num_matchable: the number of those that can match.
        conditions: for each key whose values are known, a condition on the table's side that holds for
            every match.
    """

    num_rows: int
    num_matchable: int
    conditions: Sequence[Column]


def read_keys(source: MergeSource, keys: Sequence[MergeKey], candidates: Column) -> SourceKeys:
    """Read the values of keys from the source.

    Args:
        source: the source.
        keys: the keys.
        candidates: a condition on rows of the source; rows for which it isn't true can't match.

    Raises:
        PySparkException: Spark's errors.
    """
    # Null isn't true, and Spark evaluates the second side of an AND if the first one is null.
    candidates = F.coalesce(candidates, F.lit(False))
    columns = [F.count(F.lit(1)).alias("rows"), F.count_if(candidates).alias("matchable")]
    for i, key in enumerate(keys):
        # Python can't decode texts that aren't UTF-8.
        is_text = F.is_valid_utf8(key.other) if key.type_ == "string" else F.lit(True)
        value = F.when(candidates & is_text, _sent(key.other, key.type_))
        columns += [
            F.min(value).alias(f"least_{i}"),
            F.max(value).alias(f"greatest_{i}"),
            F.bool_or(candidates & key.other.isNull()).alias(f"has_null_{i}"),
            F.bool_or(candidates & ~is_text).alias(f"is_unknown_{i}"),
        ]
    row = source.rows.agg(*columns).toArrow().to_pylist()[0]
    return SourceKeys(
        row["rows"],
        row["matchable"],
        [
            key.condition(
                _KeyValues(
                    row[f"least_{i}"],
                    row[f"greatest_{i}"],
                    bool(row[f"has_null_{i}"]),
                    _listed(source, key, candidates) if key.is_of_partitions else None,
                )
            )
            for i, key in enumerate(keys)
            if not row[f"is_unknown_{i}"]
        ],
    )


def _listed(source: MergeSource, key: MergeKey, candidates: Column) -> list[Any] | None:
    """The values of a key but null; None if they are too many."""
    found = source.rows.where(candidates).select(_sent(key.other, key.type_).alias("value"))
    values = found.where("value IS NOT NULL").distinct().limit(_MOST_PARTITIONS + 1)
    listed = values.toArrow()["value"].to_pylist()
    return listed if len(listed) <= _MOST_PARTITIONS else None


def _sent(value: Column, type_: str) -> Column:
    """A value in the form in which Python gets it: a date is the number of days since 1970."""
    return F.unix_date(value) if type_ == "date" else value


def _received(value: Any, type_: str) -> Column:
    """A constant from a value of `_sent`."""
    return F.date_from_unix_date(F.lit(value)) if type_ == "date" else F.lit(value).cast(type_)
