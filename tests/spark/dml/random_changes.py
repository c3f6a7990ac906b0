"""Random changes of the rows of a table: as statements for Delta Spark, and as calls of our functions."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow_delta.engine import DeltaTable
from airflow_delta.spark import delete, merge, update, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Change", "Kind", "RandomChanges"]

Change: TypeAlias = "tuple[Callable[[str], Any], str]"
"""What makes a change of the table at a path, and the same as a statement about the table ``T!``."""

COLUMNS = "k, id, p, v, t, s"
PARTITIONS = ["'a'", "'b'", "'007'", "'c d/é=%'", "NULL"]
CONDITIONS = [
    "v > 10",
    "NOT v > 10",
    "p = 'a'",
    "p IS NULL OR p > 'b'",
    "id BETWEEN 10 AND 29",
    "p = 'b' AND v < 9",
    "s.a > 8",
    "v IS NULL",
    "id < 0",
    "v + id > 40",
    "s.b <=> NULL OR t = 't1'",
]
REPLACED = ["v > 10", "p = 'a'", "p IS NULL OR p > 'b'", "id >= 10 AND id <= 29", "v IS NULL"]
"""Conditions that Spark can hand over to a writer, unlike some of the others."""
UPDATES: list[Mapping[str, str]] = [
    {"v": "v + 1"},
    {"p": "'b'", "v": "id"},
    {"p": "nullif(p, 'a')", "s.a": "s.a + 1"},
    {"t": "concat('t', id % 5)", "s.b": "NULL"},
    {"id": "id + 7L", "s": "named_struct('b', t, 'a', v)"},
    {"id": "id + 1", "v": "id"},
    {"t": "repeat('x', v)"},
]
"""The last two break the rules of some tables, for some rows."""
ON = [
    "target.id = source.id",
    "target.id = source.id AND target.p = 'a'",
    "target.p <=> source.p AND target.id = source.id",
    "target.id >= source.id AND target.id < source.id + 1 AND source.v > 5",
    "target.s.a = source.s.a AND target.id = source.id",
]
PAIRS = [None, "target.v > source.v", "source.t = 't1' OR target.t = 't2'", "target.p IS NULL"]
PAIR_UPDATES: list[Mapping[str, str] | None] = [
    None,
    {"v": "target.v + source.v", "t": "source.t"},
    {"p": "source.p", "s.b": "source.s.b"},
]
NEW = [None, "source.v > 9", "source.t = 't1'"]
INSERTS: list[Mapping[str, str] | None] = [
    None,
    {"k": "source.k", "id": "source.id", "t": "'new'", "v": "source.v + 1"},
]
OLD = [None, "target.v < 5", "target.p = 'a'"]
OLD_UPDATES: list[Mapping[str, str] | None] = [{"v": "target.v + 1"}, {"p": "'b'"}]


@dataclass(frozen=True)
class Kind:
    """A kind of table.

    Attributes:
        vectors: whether it has deletion vectors.
        mapping: its column mapping mode.
        feed: whether it keeps a change feed.
        tracked: whether it tracks rows.
        partitioned: whether it is partitioned.
        constrained: whether it has constraints.
    """

    vectors: bool = False
    mapping: str = "none"
    feed: bool = False
    tracked: bool = False
    partitioned: bool = False
    constrained: bool = False

    def statements(self) -> list[str]:
        """What makes the table ``T!``."""
        given = {
            "enableDeletionVectors": self.vectors,
            "enableChangeDataFeed": self.feed,
            "enableRowTracking": self.tracked,
        }
        properties = {name: str(value).lower() for name, value in given.items()}
        if self.mapping != "none":
            properties["columnMapping.mode"] = self.mapping
        listed = ", ".join(f"'delta.{name}' = '{value}'" for name, value in properties.items())
        required, text = (" NOT NULL", "VARCHAR(9)") if self.constrained else ("", "STRING")
        columns = (
            f"k BIGINT{required}, id INT, p STRING, v INT, t {text}, s STRUCT<a: INT, b: STRING>"
        )
        partitioning = "PARTITIONED BY (p) " if self.partitioned else ""
        statements = [
            f"CREATE TABLE T! ({columns}) USING delta {partitioning}TBLPROPERTIES ({listed})"
        ]
        if self.constrained:
            statements.append("ALTER TABLE T! ADD CONSTRAINT small CHECK (v IS NULL OR v < 45)")
        return statements


@dataclass
class RandomChanges:
    """Makes changes up, one after the other; each method is for one kind.

    Attributes:
        spark: our session.
        rng: chooses.
        table: where the table is, for its versions.
    """

    spark: SparkSession
    rng: random.Random
    table: Path
    _keys: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def first_rows(self) -> str:
        """The statement that gives the table its first rows."""
        return f"INSERT INTO T! ({COLUMNS}) {self.rows(30, 3)}"

    def rows(self, number: int, num_files: int = 1, ids: Sequence[int] | None = None) -> str:
        """A query for new rows."""
        choice, rows = self.rng.choice, []
        for i in range(number):
            id_ = self.rng.randrange(40) if ids is None else ids[i]
            v, a = choice(["NULL", *range(20)]), choice(["NULL", *range(12)])
            b = choice(["NULL", "'x'", "''"])
            s = choice([*[f"named_struct('a', {a}, 'b', {b})"] * 5, "NULL"])
            rows.append(
                f"({next(self._keys)}L, {id_}, {choice(PARTITIONS)}, {v}, 't{self.rng.randrange(5)}', {s})"
            )
        # A column of nulls alone has no type.
        types = {"k": "BIGINT", "id": "INT", "p": "STRING", "v": "INT", "t": "STRING"}
        casts = [f"CAST({name} AS {type_}) AS {name}" for name, type_ in types.items()]
        hint = f"/*+ REPARTITION({num_files}) */ " if num_files > 1 else "/*+ COALESCE(1) */ "
        return (
            f"SELECT {hint}{', '.join(casts)}, CAST(s AS STRUCT<a: INT, b: STRING>) AS s "
            f"FROM VALUES {', '.join(rows)} AS rows({COLUMNS})"
        )

    def append(self) -> Change:
        rows = self.rows(8)
        return (
            lambda table: write(self.spark.sql(rows), table),
            f"INSERT INTO T! ({COLUMNS}) {rows}",
        )

    def overwrite(self) -> Change:
        rows = self.rows(20, 2)
        return (
            lambda table: write(self.spark.sql(rows), table, mode="overwrite"),
            f"INSERT OVERWRITE T! ({COLUMNS}) {rows}",
        )

    def replace(self) -> Change:
        condition = self.rng.choice(REPLACED)
        rows = f"SELECT * FROM ({self.rows(20)}) WHERE {condition}"
        return (
            lambda table: write(
                self.spark.sql(rows), table, mode="overwrite", replace_where=condition
            ),
            f"INSERT INTO T! REPLACE WHERE {condition} {rows}",
        )

    def optimize(self) -> Change:
        return lambda table: DeltaTable(table).optimize(), "OPTIMIZE T!"

    def restore(self) -> Change:
        newest = DeltaTable(str(self.table)).latest_version()
        version = self.rng.randrange(max(newest - 3, 1), newest)
        return (
            lambda table: DeltaTable(table).restore(version),
            f"RESTORE TABLE T! TO VERSION AS OF {version}",
        )

    def delete(self) -> Change:
        condition = self.rng.choice(CONDITIONS)
        return (
            lambda table: delete(self.spark, table, condition),
            f"DELETE FROM T! WHERE {condition}",
        )

    def update(self) -> Change:
        condition, values = self.rng.choice([*CONDITIONS, None]), self.rng.choice(UPDATES)
        where = "" if condition is None else f" WHERE {condition}"
        return (
            lambda table: update(self.spark, table, values, condition),
            f"UPDATE T! SET {_listed(values)}{where}",
        )

    def merge(self) -> Change:
        on, rows = self.rng.choice(ON), self.rows(15, ids=self.rng.sample(range(50), 15))
        if self.rng.random() < 0.15:
            rows += f" UNION ALL {self.rows(2, ids=[self.rng.randrange(40)] * 2)}"
        matched, added, left = self._clauses()

        def run(table: str) -> Any:
            builder = merge(self.spark, table, self.spark.sql(rows), on)
            for condition, values in matched:
                if values == {}:
                    builder = builder.when_matched_delete(condition)
                elif values is None:
                    builder = builder.when_matched_update_all(condition)
                else:
                    builder = builder.when_matched_update(values, condition)
            for condition, values in added:
                if values is None:
                    builder = builder.when_not_matched_insert_all(condition)
                else:
                    builder = builder.when_not_matched_insert(values, condition)
            for condition, values in left:
                if values:
                    builder = builder.when_not_matched_by_source_update(values, condition)
                else:
                    builder = builder.when_not_matched_by_source_delete(condition)
            return builder.execute()

        clauses = [
            *(("MATCHED", c, _changed(v)) for c, v in matched),
            *(("NOT MATCHED", c, _inserted(v)) for c, v in added),
            *(("NOT MATCHED BY SOURCE", c, _changed(v)) for c, v in left),
        ]
        text = " ".join(
            f"WHEN {when}{'' if condition is None else f' AND {condition}'} THEN {then}"
            for when, condition, then in clauses
        )
        return run, f"MERGE INTO T! AS target USING ({rows}) AS source ON {on} {text}"

    def _clauses(self) -> Any:
        """Clauses of each kind, at least one; all but the last of a kind have conditions.

        An update without values is a deletion.
        """
        choice, random_ = self.rng.choice, self.rng.random
        while True:
            matched = [
                (choice(PAIRS), choice([*PAIR_UPDATES, {}])) for _ in range(choice([0, 1, 2, 2]))
            ]
            added = [(choice(NEW), choice(INSERTS)) for _ in range(choice([0, 1, 1, 2]))]
            left = [
                (choice(OLD), choice([*OLD_UPDATES, {}]))
                for _ in range(choice([1, 2]) if random_() < 0.35 else 0)
            ]
            kinds = (matched, added, left)
            if any(kinds) and not any(None in [c for c, _ in kind][:-1] for kind in kinds):
                return matched, added, left


def _listed(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def _changed(values: Mapping[str, str] | None) -> str:
    if values is None:
        return "UPDATE SET *"
    return f"UPDATE SET {_listed(values)}" if values else "DELETE"


def _inserted(values: Mapping[str, str] | None) -> str:
    if values is None:
        return "INSERT *"
    return f"INSERT ({', '.join(values)}) VALUES ({', '.join(values.values())})"
