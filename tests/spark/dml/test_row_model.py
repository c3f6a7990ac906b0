"""Random writes, deletions, updates and merges beside a model that is a list of rows.

At every version the rows are those of the model. The change feed, where there is one, has exactly the
changes of the model. A row keeps its row id for as long as it lives, and its row commit version until it is
updated.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from unittest.mock import patch

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.functions import lit

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import DeltaWarning, MultipleMatchesError
from airflow_delta.spark import delete, merge, read_changes, read_snapshot, update, write
from airflow_delta.spark.dml.merge import key_filter
from airflow_delta.spark.dml.merge import source as merge_source
from tests.deep import deep_but_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta.spark import MergeBuilder, MergeResult

Values: TypeAlias = "tuple[int, int, str | None, int | None, str]"
Change: TypeAlias = "tuple[str, Values]"

COLUMNS = ["k", "id", "p", "v", "t"]
DDL = "k long, id long, p string, v int, t string"
PARTITIONS = ["a", "b", "007", "c d/é=%", None]


@dataclass(frozen=True)
class Row:
    """A row of the model.

    Attributes:
        k: another one for each new row; rows that one row of a source has updated have the same.
        number: which row this is: stays through updates, unlike the values.
        changed: the version that has inserted or updated it; None if that version isn't made yet.
    """

    k: int
    id: int
    p: str | None
    v: int | None
    t: str
    number: int = -1
    changed: int | None = None

    @property
    def values(self) -> Values:
        return (self.k, self.id, self.p, self.v, self.t)


Condition: TypeAlias = "tuple[str, Callable[[Row], bool]]"
Update: TypeAlias = "tuple[Mapping[str, str], Callable[[Row], Mapping[str, Any]]]"
PairCondition: TypeAlias = "tuple[str | None, Callable[[Row, Row], bool]]"
PairUpdate: TypeAlias = "tuple[Mapping[str, str] | None, Callable[[Row, Row], Mapping[str, Any]]]"


def plus(value: int | None, other: int | None) -> int | None:
    return None if value is None or other is None else value + other


def above(value: int | None, other: int | None) -> bool:
    return value is not None and other is not None and value > other


def same(value: str | None, other: str | None) -> bool:
    return value is not None and value == other


CONDITIONS: list[Condition] = [
    ("v > 10", lambda row: above(row.v, 10)),
    ("NOT v > 10", lambda row: row.v is not None and not row.v > 10),
    ("p = 'a'", lambda row: row.p == "a"),
    ("p IS NULL OR p > 'b'", lambda row: row.p is None or row.p > "b"),
    ("id BETWEEN 10 AND 19", lambda row: 10 <= row.id < 20),
    ("p IS NULL AND v < 5", lambda row: row.p is None and row.v is not None and row.v < 5),
    ("t = 't1' OR v = 3", lambda row: row.t == "t1" or row.v == 3),
    ("v IS NULL", lambda row: row.v is None),
    ("id < 0", lambda row: False),
    ("id >= 0", lambda row: True),
    ("v + id > 40", lambda row: above(plus(row.v, row.id), 40)),
]
UPDATES: list[Update] = [
    ({"v": "v + 1"}, lambda row: {"v": plus(row.v, 1)}),
    ({"p": "'b'", "v": "CAST(id AS INT)"}, lambda row: {"p": "b", "v": row.id}),
    ({"p": "nullif(p, 'a')"}, lambda row: {"p": None if row.p == "a" else row.p}),
    ({"t": "concat('t', id % 5)"}, lambda row: {"t": f"t{row.id % 5}"}),
    ({"v": "NULL"}, lambda row: {"v": None}),
    ({"id": "id + 7", "t": "'t9'"}, lambda row: {"id": row.id + 7, "t": "t9"}),
]
ON: list[tuple[str, Callable[[Row, Row], bool]]] = [
    ("target.id = source.id", lambda row, new: row.id == new.id),
    (
        "target.id = source.id AND target.p = 'a'",
        lambda row, new: row.id == new.id and row.p == "a",
    ),
    (
        "target.id = source.id AND source.v > 5",
        lambda row, new: row.id == new.id and above(new.v, 5),
    ),
    (
        "target.p = source.p AND target.id = source.id",
        lambda row, new: same(row.p, new.p) and row.id == new.id,
    ),
    (
        "target.p <=> source.p AND target.id = source.id",
        lambda row, new: row.p == new.p and row.id == new.id,
    ),
    (
        "target.id >= source.id AND target.id < source.id + 1 AND target.p > 'b'",
        lambda row, new: new.id <= row.id < new.id + 1 and row.p is not None and row.p > "b",
    ),
    (
        "target.id + 1 = source.id AND target.v IS NOT NULL",
        lambda row, new: row.id + 1 == new.id and row.v is not None,
    ),
]
PAIRS: list[PairCondition] = [
    (None, lambda row, new: True),
    ("target.v > source.v", lambda row, new: above(row.v, new.v)),
    ("source.t = 't1' OR target.t = 't2'", lambda row, new: new.t == "t1" or row.t == "t2"),
    ("target.p IS NULL", lambda row, new: row.p is None),
    ("source.v IS NULL", lambda row, new: new.v is None),
]
PAIR_UPDATES: list[PairUpdate] = [
    (None, lambda row, new: {name: getattr(new, name) for name in COLUMNS}),
    (
        {"v": "target.v + source.v", "t": "source.t"},
        lambda row, new: {"v": plus(row.v, new.v), "t": new.t},
    ),
    ({"target.p": "source.p"}, lambda row, new: {"p": new.p}),
]
NEW: list[PairCondition] = [
    (None, lambda row, new: True),
    ("source.v > 9", lambda row, new: above(new.v, 9)),
    ("t = 't1'", lambda row, new: new.t == "t1"),
]
INSERTS: list[PairUpdate] = [
    (None, lambda row, new: {name: getattr(new, name) for name in COLUMNS}),
    (
        {"k": "k", "id": "source.id", "t": "'new'", "v": "v + 1"},
        lambda row, new: {"k": new.k, "id": new.id, "p": None, "v": plus(new.v, 1), "t": "new"},
    ),
]
OLD: list[PairCondition] = [
    (None, lambda row, new: True),
    ("v < 5", lambda row, new: row.v is not None and row.v < 5),
    ("target.p = 'a'", lambda row, new: row.p == "a"),
]
TABLES: dict[str, Mapping[str, str]] = {
    "plain": {},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "feed": {"delta.enableChangeDataFeed": "true"},
    "vectors, feed, mapping, row ids": {
        "delta.enableDeletionVectors": "true",
        "delta.enableChangeDataFeed": "true",
        "delta.columnMapping.mode": "name",
        "delta.enableRowTracking": "true",
    },
    "feed, mapping by id, row ids": {
        "delta.enableChangeDataFeed": "true",
        "delta.columnMapping.mode": "id",
        "delta.enableRowTracking": "true",
    },
    "vectors, row ids": {
        "delta.enableDeletionVectors": "true",
        "delta.enableRowTracking": "true",
    },
}
STEPS = 7
"""The number of random operations on each table."""
SEEDS = 1
"""The number of tables of each kind."""


@dataclass
class Model:
    """A table, and the rows and changes that it should have."""

    spark: SparkSession
    table: Path
    rng: random.Random
    partition_by: Sequence[str]
    rows: list[Row] = field(default_factory=list)
    versions: dict[int, list[Row]] = field(default_factory=dict)
    changes: dict[int, Counter[Change]] = field(default_factory=dict)
    num_rows: int = 0

    def some_rows(self, number: int, ids: Sequence[int] | None = None) -> list[Row]:
        """New rows; with other numbers and keys than all before them."""
        found = []
        for i in range(number):
            self.num_rows += 1
            found.append(
                Row(
                    self.num_rows,
                    self.rng.randrange(60) if ids is None else ids[i],
                    self.rng.choice(PARTITIONS),
                    self.rng.choice([None, *range(20)]),
                    f"t{self.rng.randrange(5)}",
                    self.num_rows,
                )
            )
        return found

    def frame(self, rows: Sequence[Row]) -> Any:
        return self.spark.createDataFrame([row.values for row in rows], DDL).repartition(2)

    def committed(self, version: int, rows: Sequence[Row], changes: Counter[Change]) -> None:
        self.rows = [
            row if row.changed is not None else replace(row, changed=version) for row in rows
        ]
        self.versions[version] = self.rows
        self.changes[version] = changes

    def write(self, rows: Sequence[Row], gone: Sequence[Row], **arguments: Any) -> None:
        result = write(self.frame(rows), str(self.table), **arguments)
        if result.version in self.versions:
            assert not rows
            assert not gone
            return
        kept = [row for row in self.rows if row not in gone]
        changes = Counter([("delete", row.values) for row in gone])
        changes.update(("insert", row.values) for row in rows)
        self.committed(result.version, [*kept, *rows], changes)

    def create(self, **arguments: Any) -> None:
        self.write(self.some_rows(60), [], **arguments)

    def append(self) -> None:
        self.write(self.some_rows(20), [])

    def overwrite(self) -> None:
        self.write(self.some_rows(20), self.rows, mode="overwrite")

    def replace(self) -> None:
        condition, matches = self.rng.choice(CONDITIONS)
        gone = [row for row in self.rows if matches(row)]
        rows = [row for row in self.some_rows(30) if matches(row)]
        self.write(rows, gone, mode="overwrite", replace_where=condition)

    def replace_partitions(self) -> None:
        rows = self.some_rows(3)
        places = {row.p for row in (rows if self.partition_by else self.rows)}
        expected = (
            nullcontext() if self.partition_by else pytest.warns(DeltaWarning, match="all rows")
        )
        with expected:
            gone = [row for row in self.rows if row.p in places]
            self.write(rows, gone, mode="overwrite", partition_overwrite="dynamic")

    def delete(self) -> None:
        condition, matches = self.rng.choice(CONDITIONS)
        gone = [row for row in self.rows if matches(row)]
        result = delete(self.spark, str(self.table), condition)
        assert (result.num_deleted_rows, result.written) == (len(gone), bool(gone))
        if gone:
            kept = [row for row in self.rows if not matches(row)]
            changes = Counter([("delete", row.values) for row in gone])
            self.committed(result.version, kept, changes)

    def update(self) -> None:
        condition, matches = self.rng.choice(CONDITIONS)
        values, new_values = self.rng.choice(UPDATES)
        result = update(self.spark, str(self.table), values, condition)
        rows, changes = [], Counter[Change]()
        for row in self.rows:
            new = replace(row, **new_values(row), changed=None) if matches(row) else row
            rows.append(new)
            if matches(row):
                changes += changed(row, new)
        num_updated = sum(map(matches, self.rows))
        assert (result.num_updated_rows, result.written) == (num_updated, num_updated > 0)
        if num_updated:
            self.committed(result.version, rows, changes)

    def merge(self) -> None:
        on, is_match = self.rng.choice(ON)
        source = self.some_rows(25, self.rng.sample(range(70), 25))
        if self.rng.random() < 0.2:
            source += self.some_rows(3, [row.id for row in source[:3]])
        matched, added, left = self._clauses()
        builder = merge(self.spark, str(self.table), self.frame(source), on)
        for then, (condition, _), (values, _) in matched:
            builder = matched_clause(builder, then, condition, values)
        for (condition, _), (values, _) in added:
            builder = (
                builder.when_not_matched_insert_all(condition)
                if values is None
                else builder.when_not_matched_insert(values, condition)
            )
        for then, (condition, _), (values, _) in left:
            builder = (
                builder.when_not_matched_by_source_delete(condition)
                if then == "delete"
                else builder.when_not_matched_by_source_update(values, condition)
            )
        pairs = {row.number: [new for new in source if is_match(row, new)] for row in self.rows}
        deletes_all = [(then, condition) for then, (condition, _), _ in matched] == [
            ("delete", None)
        ]
        is_ambiguous = any(len(found) > 1 for found in pairs.values())
        if is_ambiguous and not deletes_all and (matched or left):
            before = DeltaTable(str(self.table)).latest_version()
            with pytest.raises(MultipleMatchesError):
                self.merged(builder)
            assert DeltaTable(str(self.table)).latest_version() == before
            return
        rows, changes = self._merged(source, pairs, matched, added, left)
        result = self.merged(builder)
        kinds = Counter(kind for kind, _ in changes.elements())
        assert (result.num_inserted_rows, result.num_updated_rows, result.num_deleted_rows) == (
            kinds["insert"],
            kinds["update_postimage"],
            kinds["delete"],
        )
        assert result.written == bool(changes)
        if changes:
            self.committed(result.version, rows, changes)

    def merged(self, builder: MergeBuilder) -> MergeResult:
        """Execute a merge; half of them as if the source or the table were large."""
        most = self.rng.choice([0, merge_source._MOST_BROADCAST])
        least = self.rng.choice([0, key_filter._LEAST_TABLE_BYTES])
        with (
            patch.object(merge_source, "_MOST_BROADCAST", most),
            patch.object(key_filter, "_LEAST_TABLE_BYTES", least),
        ):
            return builder.execute()

    def _clauses(self) -> Any:
        """Clauses of each kind, at least one; all but the last of a kind have conditions."""
        choice, random_ = self.rng.choice, self.rng.random
        while True:
            matched = [
                (choice(["update", "update", "delete"]), choice(PAIRS), choice(PAIR_UPDATES))
                for _ in range(choice([0, 1, 2]))
            ]
            added = [(choice(NEW), choice(INSERTS)) for _ in range(choice([0, 1, 2]))]
            values = [({"v": "v + 1"}, lambda row, _: {"v": plus(row.v, 1)})]
            left = [
                (choice(["update", "delete"]), choice(OLD), choice(values))
                for _ in range(choice([1, 2]) if random_() < 0.4 else 0)
            ]
            conditions = [
                [condition for _, (condition, _), _ in matched],
                [condition for (condition, _), _ in added],
                [condition for _, (condition, _), _ in left],
            ]
            if any(conditions) and not any(None in kind[:-1] for kind in conditions):
                return matched, added, left

    def _merged(
        self,
        source: Sequence[Row],
        pairs: Mapping[int, list[Row]],
        matched: Any,
        added: Any,
        left: Any,
    ) -> tuple[list[Row], Counter[Change]]:
        rows: list[Row] = []
        changes = Counter[Change]()
        for row in self.rows:
            new, clauses = (pairs[row.number][0], matched) if pairs[row.number] else (row, left)
            for then, (_, applies), (_, values) in clauses:
                if not applies(row, new):
                    continue
                if then == "delete":
                    changes["delete", row.values] += 1
                else:
                    rows.append(replace(row, **values(row, new), changed=None))
                    changes += changed(row, rows[-1])
                break
            else:
                rows.append(row)
        found = {new.k for matches in pairs.values() for new in matches}
        for new in source:
            for (_, applies), (_, values) in added:
                if new.k not in found and applies(new, new):
                    rows.append(replace(new, **values(new, new)))
                    changes["insert", rows[-1].values] += 1
                    break
        return rows, changes


def matched_clause(
    builder: MergeBuilder, then: str, condition: str | None, values: Mapping[str, str] | None
) -> MergeBuilder:
    if then == "delete":
        return builder.when_matched_delete(condition)
    if values is None:
        return builder.when_matched_update_all(condition)
    return builder.when_matched_update(values, condition)


def changed(row: Row, new: Row) -> Counter[Change]:
    return Counter([("update_preimage", row.values), ("update_postimage", new.values)])


def check_rows(model: Model, *, has_ids: bool) -> None:
    """The rows of every version; with row ids, also these."""
    ids: dict[int, int] = {}
    # All versions are read at once: most of a read of so few rows is its start.
    frames = [
        read_snapshot(model.spark, str(model.table), version, with_row_tracking=has_ids).withColumn(
            "version", lit(version)
        )
        for version in model.versions
    ]
    read = reduce(DataFrame.unionByName, frames).collect()
    for version, rows in model.versions.items():
        frame = [row for row in read if row["version"] == version]
        values = Counter(tuple(row[name] for name in COLUMNS) for row in frame)
        assert values == Counter(row.values for row in rows), version
        if not has_ids:
            continue
        assert len({row["_row_id"] for row in frame}) == len(rows), version
        found = {row["k"]: (row["_row_id"], row["_row_commit_version"]) for row in frame}
        times = Counter(row.k for row in rows)
        for row in rows:
            if times[row.k] > 1:
                # A row of a source has updated several rows.
                continue
            row_id, changed_at = found[row.k]
            assert ids.setdefault(row.number, row_id) == row_id, (version, row)
            assert changed_at == row.changed, (version, row)


def check_feed(model: Model) -> None:
    last = max(model.versions)
    changes = read_changes(model.spark, str(model.table), 1, last).collect()
    found: dict[int, Counter[Change]] = {version: Counter() for version in model.changes}
    for change in changes:
        values = tuple(change[name] for name in COLUMNS)
        found[change["_commit_version"]][change["_change_type"], values] += 1
    for version, expected in model.changes.items():
        if version > 0:
            assert found[version] == expected, version


CASES = [
    (kind, partitioning, seed)
    for kind in TABLES
    for partitioning in ("unpartitioned", "partitioned")
    for seed in range(SEEDS)
]
IN_SHORT = [
    ("vectors, feed, mapping, row ids", "partitioned", 0),
]


@pytest.mark.parametrize("case", deep_but_for(CASES, *IN_SHORT), ids=str)
def test_rows_are_those_of_the_model_at_every_version(
    spark: SparkSession,
    tmp_path: Path,
    case: tuple[str, str, int],
) -> None:
    kind, partitioning, seed = case
    properties, partition_by = TABLES[kind], ["p"] if partitioning == "partitioned" else []
    rng = random.Random(f"{sorted(properties)} {partition_by} {seed}")
    model = Model(spark, tmp_path, rng, partition_by)
    model.create(partition_by=partition_by, properties=properties)
    others = [model.append, model.replace, model.replace_partitions, model.overwrite]
    steps = [rng.choice(others), model.delete, model.update, model.merge, model.merge, model.merge]
    for _ in range(STEPS - len(steps)):
        steps.append(rng.choice([model.delete, model.update, model.append]))
    rng.shuffle(steps)
    for step in steps:
        step()
    check_rows(model, has_ids="delta.enableRowTracking" in properties)
    if "delta.enableChangeDataFeed" in properties:
        check_feed(model)
    table = DeltaTable(str(tmp_path))
    assert not table.snapshot().verify().differences
    findings = table.check(depth="files").findings
    assert not [finding for finding in findings if finding.severity != "info"]
