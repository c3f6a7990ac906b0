"""The same changes of rows through Delta Spark and through us, on two copies of a table.

After each step the copies have the same rows, row commit versions and metrics, and a row keeps its row id
in both or in none. After half of the steps the engines change tables, so that each goes on with what the
other one has written. In the end both engines read the same rows and change feed from either table.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import ConstraintViolationError, MultipleMatchesError
from airflow_delta.engine.log.commit_file import read_commit_info
from airflow_delta.spark import read_changes, read_snapshot
from tests.delta_spark.peer import DeltaSpark, DeltaSparkError
from tests.spark.conftest import rows_of_each
from tests.spark.dml.random_changes import RandomChanges

if TYPE_CHECKING:
    from airflow_delta.engine import Snapshot
    from tests.spark.dml.random_changes import Kind

__all__ = ["Twins"]

REFUSED = (ConstraintViolationError, MultipleMatchesError)
_OWN_METRICS = re.compile("Bytes|Time|Added.*Files|FilesAdded|^numFiles$|numSourceRows")
"""Each engine decides how many new files it writes. The rows of a source Delta Spark counts twice in some
merges."""
_METRICS_OF_FILES = re.compile("Files|Copied|numOutputRows|Vectors")
"""These are alike if the rows were in the same files before. But without deletion vectors a merge of Delta
Spark also writes files anew whose rows match, and stay as they are."""
_OTHER_OPERATIONS = {"OPTIMIZE", "RESTORE"}
"""Their metrics are about files alone, and compared elsewhere."""


@dataclass
class Twins:
    """Two copies of a table.

    Attributes:
        peer: Delta Spark.
        root: where the copies are.
        kind: the kind of table.
        changes: makes up its rows and their changes.
        differences: what is different in the copies, each with the step after which it is so.
    """

    peer: DeltaSpark
    root: Path
    kind: Kind
    changes: RandomChanges
    differences: list[str] = field(default_factory=list)
    _last: str = ""
    _ids: tuple[dict[int, int], dict[int, int]] = field(default_factory=lambda: ({}, {}))

    def __post_init__(self) -> None:
        statements = [*self.kind.statements(), self.changes.first_rows()]
        for statement in statements:
            self.peer.sql(statement.replace("T!", f"delta.`{self.changes.table}`"))
        self.tables = (self.changes.table, self.root / "other")
        shutil.copytree(*self.tables)

    def run(self, names: Sequence[str]) -> None:
        """Make some steps, by the names of methods of `RandomChanges`."""
        for number, name in enumerate(names):
            if number == len(names) // 2:
                self.tables = self.tables[::-1]
                self._ids = self._ids[::-1]
            self._step(*getattr(self.changes, name)())
        self._compare_readers()

    def _step(self, ours: Callable[[str], Any], theirs: str) -> None:
        """Make a step through each engine, and compare the tables."""
        one, other = self.tables
        before = [DeltaTable(str(table)).snapshot() for table in self.tables]
        self._last = f"version {before[0].version}, then {theirs}"
        refusal = answer = None
        try:
            ours(str(one))
        except REFUSED as error:
            refusal = error
        try:
            # What OPTIMIZE gives has no form that the worker could send: it comes as an error.
            with suppress(DeltaSparkError) if theirs.startswith("OPTIMIZE") else nullcontext():
                self.peer.sql(theirs.replace("T!", f"delta.`{other}`"))
        except DeltaSparkError as error:
            answer = error
        self._expect("refused", *(each is not None for each in (refusal, answer)), refusal, answer)
        self._compare(before)

    def _compare(self, before: Sequence[Snapshot]) -> None:
        after = [DeltaTable(str(table)).snapshot() for table in self.tables]
        self._expect("version", *(snapshot.version for snapshot in after))
        self._expect("protocol", *(snapshot.protocol for snapshot in after))
        rows = [_rows(snapshot, tracked=self.kind.tracked) for snapshot in after]
        self._expect("rows", *map(_values, rows))
        if self.kind.tracked:
            self._compare_ids(*rows)
        for snapshot, table in zip(after, self.tables, strict=True):
            self._expect("differences", snapshot.verify().differences, ())
            findings = DeltaTable(str(table)).check(depth="files").findings
            self._expect("findings", [f for f in findings if f.severity != "info"], [])
        if after[0].version > before[0].version:
            self._compare_metrics(before, after)

    def _compare_ids(self, *rows: Sequence[dict[str, Any]]) -> None:
        """Fresh row ids may be any; but a row keeps its own where the peer's row keeps its own."""
        by_key = [_by_unique_key(found) for found in rows]
        self._expect("keys", *(found.keys() for found in by_key))
        for key in by_key[0].keys() & by_key[1].keys():
            one, other = (found[key] for found in by_key)
            pair = (one["_row_id"], other["_row_id"])
            for ids, (id_, id_there) in zip(self._ids, (pair, pair[::-1]), strict=True):
                self._expect(f"row id of {one}", ids.setdefault(id_, id_there), id_there)
            versions = [row["_row_commit_version"] for row in (one, other)]
            self._expect(f"row commit version of {one}", *versions)
        for found in rows:
            self._expect("different row ids", len({row["_row_id"] for row in found}), len(found))

    def _compare_metrics(self, before: Sequence[Snapshot], after: Sequence[Snapshot]) -> None:
        infos = [
            read_commit_info(s.storage, s.version, path=s.segment.path_of(s.version)) for s in after
        ]
        self._expect("operation", *(info["operation"] for info in infos))
        found = [info.get("operationMetrics", {}) for info in infos]
        if infos[0]["operation"] in _OTHER_OPERATIONS:
            return
        layouts = [_layout(snapshot) for snapshot in before]
        writes_copies = infos[0]["operation"] == "MERGE" and not self.kind.vectors
        same = layouts[0] == layouts[1] and not writes_copies
        for name in sorted(found[0].keys() | found[1].keys()):
            if not _OWN_METRICS.search(name) and (same or not _METRICS_OF_FILES.search(name)):
                values = [None if name not in each else int(each[name]) for each in found]
                self._expect(f"{infos[0]['operation']} {name}", *values)

    def _compare_readers(self) -> None:
        """Compare rows and change feeds as the engines' own readers give them."""
        last = DeltaTable(str(self.tables[0])).latest_version()
        tables, spark = [str(table) for table in self.tables], self.changes.spark
        # The queries of each engine are one, which takes names and types from the first.
        self._expect("columns", *(_columns(self.peer, table) for table in tables))
        self._expect("columns for us", *(read_snapshot(spark, table).schema for table in tables))
        rows = self.peer.sql_of_each([f"SELECT * FROM delta.`{table}`" for table in tables])
        rows += rows_of_each([read_snapshot(spark, table) for table in tables])
        for found in rows[1:]:
            self._expect("rows for the readers", _bag(rows[0]), _bag(found))
        if not self.kind.feed:
            return
        feeds = self.peer.sql_of_each(
            [f"SELECT * FROM table_changes_by_path('{table}', 1, {last})" for table in tables]
        )
        feeds += rows_of_each([read_changes(spark, table, 1, last) for table in tables])
        for feed in feeds:
            for row in feed:
                del row["_commit_timestamp"]
        for feed in feeds[1:]:
            self._expect("feeds", _bag(feeds[0]), _bag(feed))

    def _expect(self, what: str, one: Any, other: Any, *more: Any) -> None:
        if one != other:
            if isinstance(one, Counter):
                one, other = dict(one - other), dict(other - one)
            self.differences.append(f"{what}: {one} != {other} {more}\n    after {self._last}")


def _columns(peer: DeltaSpark, table: str) -> list[tuple[str, str]]:
    rows = peer.sql(f"DESCRIBE delta.`{table}`")
    return [(row["col_name"], row["data_type"]) for row in rows]


def _rows(snapshot: Snapshot, *, tracked: bool) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = snapshot.to_arrow(with_row_tracking=tracked).to_pylist()
    return rows


def _values(rows: Iterable[Mapping[str, Any]]) -> Counter[str]:
    return _bag([{n: v for n, v in row.items() if not n.startswith("_row_")} for row in rows])


def _by_unique_key(rows: Sequence[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The rows by ``k``; without those that one row of a source has made alike."""
    times = Counter(row["k"] for row in rows)
    return {row["k"]: row for row in rows if times[row["k"]] == 1}


def _layout(snapshot: Snapshot) -> list[tuple[int, int]]:
    """The rows of the files, and how many of them are deleted."""
    files = snapshot.files(columns=["stats", "deletionVector"]).to_pylist()
    return sorted(
        (
            json.loads(file["stats"])["numRecords"],
            (file["deletionVector"] or {}).get("cardinality", 0),
        )
        for file in files
    )


def _bag(rows: Iterable[Mapping[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(row, default=str) for row in rows)
