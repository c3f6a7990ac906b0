"""Find the pairs of rows that match, and the rows of the table that match none, with the clauses for them.

The table is joined with the source once, and Spark stores the result: for each pair, the location of the
row of the table, the clause that applies to it, and its new values. All later steps use the stored result,
so each expression of a clause is evaluated once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine.errors import MultipleMatchesError
from airflow_delta.row_changes.clauses import MATCHED, NOT_MATCHED_BY_SOURCE, MergeClause
from airflow_delta.spark.dml.assignments import Assignments
from airflow_delta.spark.dml.expressions import condition_column
from airflow_delta.spark.dml.matching import LocatedRows, collect_groups
from airflow_delta.spark.dml.merge.source import SOURCE_ROW
from airflow_delta.spark.dml.new_values import (
    assign,
    old_names,
    with_old_values,
)
from airflow_delta.spark.dml.row_store import RowStore
from airflow_delta.spark.reader.catalyst import resolved_column
from airflow_delta.spark.reader.snapshot_reader import (
    LOCATION_FILE,
    LOCATION_ID,
    LOCATION_ROW,
    OWN_PREFIX,
)

if TYPE_CHECKING:
    from airflow_delta.spark.dml.merge.source import MergeSource
    from airflow_delta.spark.writer.target import WriteTarget

__all__ = ["CLAUSE", "Matches", "find_matches", "joined", "numbered"]

CLAUSE = f"{OWN_PREFIX}clause"
"""The column with the number of the clause that applies to a row; `_NONE` if none does."""

_NONE = -1


@dataclass(frozen=True)
class Matches:
    """The stored pairs.

    Attributes:
        rows: a row for each pair, and for each row without a match to which a clause applies: its
            location, `CLAUSE`, `SOURCE_ROW`, its row id if the table has row ids, its old values if they
            are needed, and the new values.
        clauses: the clauses for rows of the table, by number.
        located: the locations of the rows of each clause.
    """

    rows: DataFrame
    clauses: Mapping[int, MergeClause]
    located: Mapping[int, LocatedRows]

    def numbers(
        self, then: str, when: Sequence[str] = (MATCHED, NOT_MATCHED_BY_SOURCE)
    ) -> list[int]:
        """The numbers of the clauses that do something."""
        return [n for n, c in self.clauses.items() if c.then == then and c.when in when]

    def count(self, then: str, *when: str) -> int:
        """The number of rows of the table to which clauses apply that do something."""
        numbers = self.numbers(then, when or (MATCHED, NOT_MATCHED_BY_SOURCE))
        return sum(self.located[n].num_distinct for n in numbers if n in self.located)

    def of(self, numbers: Sequence[int]) -> DataFrame:
        """The rows to which certain clauses apply, each once."""
        found = self.rows.where(F.col(CLAUSE).isin(numbers))
        if any(
            self.located[n].count > self.located[n].num_distinct
            for n in numbers
            if n in self.located
        ):
            return found.dropDuplicates([LOCATION_FILE, LOCATION_ROW])
        return found

    @cached_property
    def changed(self) -> dict[int, BitMap64]:
        """The rows that are updated or deleted."""
        return _joined_bitmaps(found for n, found in self.located.items() if n != _NONE)

    def check_single(self, source: MergeSource, *, table: str) -> None:
        """Check that no row of the table matches several rows of the source.

        As in Delta Spark it doesn't matter whether a clause applies to the pairs. Several matches are
        allowed only if all matches are deleted, whatever the row of the source.

        Raises:
            MultipleMatchesError: a row matches several. Facts: num_rows, rows.
        """
        matched = {n: c for n, c in self.clauses.items() if c.when == MATCHED}
        if [(c.then, c.condition is None) for c in matched.values()] == [("delete", True)]:
            return
        pairs = [found for n, found in self.located.items() if n == _NONE or n in matched]
        num_rows = sum(map(len, _joined_bitmaps(pairs).values()))
        if sum(found.count for found in pairs) == num_rows:
            return
        raise _multiple_matches(self.rows, source, table)


def joined(
    rows: DataFrame,
    source: MergeSource,
    on: Column | str,
    aliases: tuple[str, str],
    how: str,
) -> DataFrame:
    """Join rows of the table with the source.

    Args:
        rows: the rows of the table.
        source: the source.
        on: the condition.
        aliases: the names of the table and of the source in it.
        how: the kind of the join.
    """
    return rows.alias(aliases[0]).join(
        source.for_join().alias(aliases[1]), condition_column(on), how
    )


def numbered(clauses: Mapping[int, MergeClause]) -> Column:
    """The number of the first clause whose condition is true.

    Args:
        clauses: the clauses, by number.
    """
    number = F.lit(_NONE)
    for n, clause in sorted(clauses.items(), reverse=True, key=lambda item: item[0]):
        found = F.lit(n)
        if clause.condition is None:
            number = found
        else:
            number = F.when(condition_column(clause.condition), found).otherwise(number)
    return number


def find_matches(
    rows: DataFrame,
    source: MergeSource,
    on: Column | str,
    aliases: tuple[str, str],
    clauses: Mapping[int, MergeClause],
    assignments: Mapping[int, Assignments],
    target: WriteTarget,
    store: RowStore,
    *,
    keeps_old: bool,
) -> Matches:
    """Join the table with the source, and store the pairs.

    Args:
        rows: rows of the table, of `SnapshotReader.located_rows`.
        source: the source.
        on: the condition.
        aliases: the names of the table and of the source in conditions and values.
        clauses: the clauses for rows of the table, by number, which were checked (`check_expressions`).
        assignments: the values of those that update.
        target: the table.
        store: stores the pairs.
        keeps_old: whether the old values are needed later.

    Raises:
        ConstraintViolationError: a value can't be stored, or doesn't fit. Facts: columns.
        StorageError: Spark can't read a file.
        PySparkException: Spark's other errors.
    """
    assert target.base is not None
    schema = target.base.schema
    by_source = {n: c for n, c in clauses.items() if c.when == NOT_MATCHED_BY_SOURCE}
    matched = {n: c for n, c in clauses.items() if c.when == MATCHED}
    rows = with_old_values(rows, schema)
    own = rows.alias(aliases[0])
    how = "left" if by_source else "inner"
    pairs = joined(rows, source, on, aliases, how)
    number = numbered(matched)
    if by_source:
        # These use only the columns of the table, even if the source has columns of the same names.
        is_match, alone = F.col(SOURCE_ROW).isNotNull(), resolved_column(own, numbered(by_source))
        number = F.when(is_match, number).otherwise(alone)
    found = pairs.withColumn(CLAUSE, number)
    if by_source:
        found = found.where(is_match | (F.col(CLAUSE) != _NONE))
    keep = [LOCATION_FILE, LOCATION_ROW, CLAUSE, SOURCE_ROW]
    keep += [LOCATION_ID] if LOCATION_ID in rows.columns else []
    keep += old_names(schema) if keeps_old else []
    bound = {n: a if n in matched else a.resolved_on(own) for n, a in assignments.items()}
    if bound:
        found = assign(found, bound, target, clause=CLAUSE, keep=keep, old=schema)
    else:
        found = found.select(keep)
    stored = store.store(found)
    return Matches(stored, clauses, collect_groups(stored, CLAUSE, table=target.table))


def _joined_bitmaps(parts: Iterable[LocatedRows]) -> dict[int, BitMap64]:
    found: dict[int, BitMap64] = {}
    # A Python loop over the files that have changed rows, for each clause.
    for part in parts:
        for file, rows in part.rows.items():
            found[file] = found[file] | rows if file in found else rows
    return found


def _multiple_matches(rows: DataFrame, source: MergeSource, table: str) -> MultipleMatchesError:
    """The error, with the number of the rows, and the rows of the source that one of them matches."""
    several = (
        rows.where(F.col(SOURCE_ROW).isNotNull())
        .groupBy(LOCATION_FILE, LOCATION_ROW)
        .agg(F.count(F.lit(1)).alias("n"), F.slice(F.collect_list(SOURCE_ROW), 1, 2).alias("two"))
        .where("n > 1")
    )
    num_rows = several.count()
    two = several.select("two").first()
    shown: list[str] = []
    if two is not None:
        matching = source.rows.where(F.col(SOURCE_ROW).isin(two[0])).drop(SOURCE_ROW)
        texts = matching.select(F.substring(F.to_json(F.struct("*")), 1, 500))
        shown = [row[0] for row in texts.collect()]
    matches = "row of the table matches" if num_rows == 1 else "rows of the table match"
    return MultipleMatchesError(
        f"{num_rows} {matches} several rows of the source, and the merge can't know which of these to use, "
        f"for example {' and '.join(shown)}: leave one row for each match in the source, or make the "
        "condition stricter",
        table=table,
        num_rows=num_rows,
        rows=tuple(shown),
    )
