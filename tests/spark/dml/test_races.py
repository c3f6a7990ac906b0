"""Two changes of rows at the same time: what comes out is that of one after the other, or a conflict.

One change prepares its commit; the other one is committed; then the first one commits. It either makes its
change again, or has only one attempt, and may fail. The model is a list of rows.

All races of a table begin with the same files. So the commit of the other change is always the same, and is
made once: its files are copied to where the race is.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from airflow_delta.engine import DeltaTable, OptimisticTransaction
from airflow_delta.engine.errors import CommitConflictError
from airflow_delta.engine.model.paths import decode_path
from airflow_delta.spark import delete, merge, update, write
from airflow_delta.spark.dml import commit
from tests.deep import deep_but_for
from tests.spark.dml.tables import all_files, stored_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row: TypeAlias = "tuple[int, str, int]"
Rows: TypeAlias = "list[Row]"
Change: TypeAlias = "tuple[str, Callable[[SparkSession, str], Any], Callable[[Rows], Rows]]"

COLUMNS = "id long, p string, v int"
TABLE = [(1, "a", 1), (2, "a", 2), (11, "a", 3), (12, "a", 4), (21, "b", 1), (22, "b", 2)]
"""The rows, two in each file; those of ``a`` are in two."""


def appends(rows: Rows) -> Change:
    def run(spark: SparkSession, table: str) -> Any:
        return write(_frame(spark, rows), table)

    return "append", run, lambda before: [*before, *rows]


def deletes(condition: str, matches: Callable[[Row], bool]) -> Change:
    return (
        f"delete {condition}",
        lambda spark, table: delete(spark, table, condition),
        lambda before: [row for row in before if not matches(row)],
    )


def updates(
    condition: str,
    values: dict[str, str],
    matches: Callable[[Row], bool],
    new: Callable[[Row], Row],
) -> Change:
    return (
        f"update {condition}",
        lambda spark, table: update(spark, table, values, condition),
        lambda before: [new(row) if matches(row) else row for row in before],
    )


def merges(rows: Rows, *, within: str | None = None, then: str = "update") -> Change:
    """A merge by ``id``, of a partition or of all, that updates, deletes or keeps what it matches."""
    on = "target.id = source.id" + (f" AND target.p = '{within}'" if within else "")

    def run(spark: SparkSession, table: str) -> Any:
        builder = merge(spark, table, _frame(spark, rows), on)
        if then == "update":
            builder = builder.when_matched_update({"v": "source.v * 10 + target.v"})
        elif then == "delete":
            builder = builder.when_matched_delete()
        elif then == "delete others":
            builder = builder.when_not_matched_by_source_delete("target.p = 'a'")
        return builder.when_not_matched_insert_all().execute()

    def model(before: Rows) -> Rows:
        source = {row[0]: row for row in rows}
        own = {row[0] for row in before if within in (None, row[1])}
        found = []
        for id_, p, v in before:
            is_match = id_ in source and within in (None, p)
            if is_match and then == "update":
                found.append((id_, p, source[id_][2] * 10 + v))
            elif not (then == "delete" and is_match) and not (
                then == "delete others" and not is_match and p == "a"
            ):
                found.append((id_, p, v))
        return found + [row for id_, row in source.items() if id_ not in own]

    return f"merge {within} {then}", run, model


CHANGES = [
    appends([(1, "a", 7), (31, "a", 8)]),
    deletes("p = 'a'", lambda row: row[1] == "a"),
    deletes(
        "p = 'a' AND id > 10 AND v > 3", lambda row: row[1] == "a" and row[0] > 10 and row[2] > 3
    ),
    deletes("v < 2", lambda row: row[2] < 2),
    updates("p = 'b'", {"v": "v + 2"}, lambda row: row[1] == "b", lambda r: (r[0], r[1], r[2] + 2)),
    updates("v = 2", {"p": "'a'"}, lambda row: row[2] == 2, lambda row: (row[0], "a", row[2])),
    merges([(1, "a", 5), (31, "a", 6)], within="a"),
    merges([(21, "b", 5), (31, "b", 6)], within="b", then="delete"),
    merges([(31, "a", 5), (2, "a", 1)], then="insert"),
    merges([(2, "b", 5), (21, "b", 3), (33, "b", 6)]),
    merges([(1, "a", 5), (34, "a", 6)], within="a", then="delete others"),
]
NAMES = [name for name, _, _ in CHANGES]
LEVELS = ("WriteSerializable", "Serializable")
APART = {
    frozenset(pair)
    for pair in [
        ("delete p = 'a'", "update p = 'b'"),
        ("delete p = 'a' AND id > 10 AND v > 3", "update p = 'b'"),
        ("delete p = 'a' AND id > 10 AND v > 3", "merge b delete"),
        ("update p = 'b'", "merge a update"),
        ("merge b delete", "merge a update"),
    ]
}
"""Changes of two partitions, which never conflict."""
CASES = [(level, name) for level in LEVELS for name in NAMES]
IN_SHORT = [("Serializable", "delete v < 2")]
IN_SHORT_AFTER = [0, 6]
ONLY_ADD = [0, 8]
"""Changes that only add files: a blind append, and one that has read the table before."""


def others_of(level: str, first: int) -> Sequence[int]:
    """Which other changes are committed before one: together more than 200 pairs.

    The levels differ in one rule: if files were added meanwhile by a blind append, ``WriteSerializable``
    lets them be. So at this level each change is made after those that only add files, and after most of
    the others. At ``Serializable`` it is made after all, because there the rows can come out in only one
    way, except for the change that ``make test`` has at this level after few.
    """
    if (level, NAMES[first]) in IN_SHORT:
        return IN_SHORT_AFTER
    every = range(len(CHANGES))
    if level == "Serializable" or ("Serializable", NAMES[first]) in IN_SHORT:
        return every
    return [other for other in every if other in ONLY_ADD or (first + other) % 4]


class Tables:
    """Writes the tables of the races, and the commits of the other changes, each once."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark, self._root = spark, root
        self.written = cache(self._written)
        self._changed = cache(self._changed_once)

    def _written(self, level: str, has_vectors: bool) -> Path:
        path = self._root / f"{level}-{has_vectors}"
        slices = self._spark.sparkContext.parallelize(TABLE, 3)
        properties = {
            "delta.isolationLevel": level,
            "delta.enableDeletionVectors": str(has_vectors).lower(),
        }
        rows = self._spark.createDataFrame(slices, COLUMNS)
        write(rows, str(path), partition_by=["p"], properties=properties, optimize_write=False)
        assert DeltaTable(str(path)).snapshot().num_files == 3
        return path

    def commit(self, change: int, level: str, has_vectors: bool, table: Path) -> None:
        """Copy the files of a change's commit into a copy of its table."""
        shutil.copytree(self._changed(change, level, has_vectors), table, dirs_exist_ok=True)

    def _changed_once(self, change: int, level: str, has_vectors: bool) -> Path:
        before = self.written(level, has_vectors)
        path = self._root / f"{before.name}-{change}"
        shutil.copytree(before, path)
        CHANGES[change][1](self._spark, str(path))
        assert DeltaTable(str(path)).latest_version() == 1
        return path


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return Tables(spark, tmp_path_factory.mktemp("tables"))


@pytest.mark.parametrize("case", deep_but_for(CASES, *IN_SHORT), ids=", ".join)
def test_two_changes_come_out_as_one_after_the_other(
    spark: SparkSession,
    tables: Tables,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    case: tuple[str, str],
) -> None:
    level, name = case
    first = NAMES.index(name)
    for second in others_of(level, first):
        other = CHANGES[second]
        table = tmp_path / str(second)
        has_vectors = (first + second) % 2 == 0
        shutil.copytree(tables.written(level, has_vectors), table)
        commit_other = partial(tables.commit, second, level, has_vectors, table)
        is_alone = (first + second // 2) % 2 == 0
        with monkeypatch.context() as patch:
            if is_alone:
                patch.setattr(commit, "_ATTEMPTS", 1)
            outcome = _race(spark, table, CHANGES[first], commit_other, patch)
        what = f"{level}: {name}, then, before its commit, {other[0]}: {outcome}"
        rows = _rows(table)
        _, _, one = CHANGES[first]
        _, _, two = other
        after, before = sorted(one(two(TABLE))), sorted(two(one(TABLE)))
        if is_alone and _touched(one) & _touched(two):
            assert isinstance(outcome, CommitConflictError), what
        if isinstance(outcome, CommitConflictError):
            assert is_alone or name == "append", what
            assert frozenset((name, other[0])) not in APART, what
            assert rows == sorted(two(TABLE)), what
        else:
            assert rows in ([after, before] if level == "WriteSerializable" else [after]), what
        _check_files(table, what)
    assert stored_bytes(spark) == 0


@pytest.mark.parametrize("name", deep_but_for(["delete", "update", "merge"], "update"))
def test_a_change_gives_up_after_five_lost_races(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    write(_frame(spark, TABLE), str(tmp_path))
    changes = {
        "delete": lambda: delete(spark, str(tmp_path), "v < 2"),
        "update": lambda: update(spark, str(tmp_path), {"v": "v + 1"}, "v < 2"),
        "merge": lambda: merges([(1, "a", 5), (31, "a", 6)])[1](spark, str(tmp_path)),
    }
    files, bases = all_files(tmp_path), []

    def lost(transaction: OptimisticTransaction, **_: Any) -> Any:
        bases.append(transaction.base.version)
        raise CommitConflictError("lost", table=str(tmp_path))

    monkeypatch.setattr(OptimisticTransaction, "commit", lost)
    with pytest.raises(CommitConflictError, match="lost"):
        changes[name]()
    assert bases == [0] * 5
    assert all_files(tmp_path) == files
    assert stored_bytes(spark) == 0


def _race(
    spark: SparkSession,
    table: Path,
    one: Change,
    commit_other: Callable[[], None],
    patch: pytest.MonkeyPatch,
) -> Any:
    """Make a change, and commit another one just before: what the first has returned or raised."""
    commit_ = OptimisticTransaction.commit

    def later(transaction: OptimisticTransaction, **named: Any) -> Any:
        patch.setattr(OptimisticTransaction, "commit", commit_)
        commit_other()
        return commit_(transaction, **named)

    patch.setattr(OptimisticTransaction, "commit", later)
    try:
        return one[1](spark, str(table))
    except CommitConflictError as error:
        return error


def _touched(change: Callable[[Rows], Rows]) -> set[Row]:
    """The rows of the table that a change removes or gives other values."""
    return set(TABLE) - set(change(TABLE))


def _check_files(table: Path, what: str) -> None:
    """Nothing but the files of the log is there, and nothing is wrong with them."""
    delta = DeltaTable(str(table))
    snapshot = delta.snapshot()
    assert not snapshot.verify().differences, what
    assert not [f for f in delta.check(depth="files").findings if f.severity != "info"], what
    known = {str(table / path) for path in _paths(delta)}
    found = {path for path in all_files(table) if "/_delta_log/" not in path}
    vectors = {path for path in found if "deletion_vector_" in path}
    assert found - vectors <= known, what


def _paths(delta: DeltaTable) -> set[str]:
    snapshot = delta.snapshot()
    return {
        decode_path(path)
        for files in (snapshot.files(["path"]), snapshot.tombstones())
        for path in files["path"].to_pylist()
    }


def _rows(table: Path) -> Rows:
    found = DeltaTable(str(table)).snapshot().to_arrow()
    return sorted(zip(*(found[name].to_pylist() for name in ("id", "p", "v")), strict=True))


def _frame(spark: SparkSession, rows: Sequence[Row]) -> Any:
    return spark.createDataFrame(list(rows), COLUMNS).coalesce(1)
