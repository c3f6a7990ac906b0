"""Optimizations beside appends, deletes, merges and vacuums, in seeded schedules: no row is lost.

Each seed gives a table with data files, an optimizer, two or three others, and the order in which their
calls of the storage take effect. The rows are known from what each commit has done, in the order of the
versions. A failure names the seed, which reproduces it.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from airflow_delta.engine import LONG, STRING, AddFile, DeltaTable, StructField, StructType
from airflow_delta.engine.clock import now_ms
from airflow_delta.engine.deletion_vectors.columns import read_deletion_vector_column
from airflow_delta.engine.deletion_vectors.write import write_deletion_vectors
from airflow_delta.engine.errors import CommitConflictError, DeletionVectorError, MissingFilesError
from airflow_delta.engine.maintenance.optimize import execution
from airflow_delta.engine.maintenance.optimize.execution import OptimizeResult
from airflow_delta.engine.maintenance.optimize.new_files import NewFiles
from airflow_delta.engine.model.paths import decode_path
from airflow_delta.engine.transaction.file_rows import add_actions
from tests.deep import deep_but_for
from tests.stepping import SteppedStorage, Turns, stepped_engine

BLOCKS = [range(3), range(3, 25), *(range(first, first + 25) for first in range(25, 200, 25))]
"""Two hundred seeds. ``make test`` has the first few."""

SCHEMA = StructType(
    (StructField("id", LONG), StructField("value", LONG), StructField("part", STRING))
)
PARTS = ("a", "b")
RULES = ["rowTracking", "changeDataFeed"]
OLD = 1_600_000_000

Row = tuple[int, str]
"""The value and the partition of a row; its id is the key."""


@dataclass
class Effect:
    """What a commit has done to the rows, and in which version."""

    version: int
    gone: set[int] = field(default_factory=set)
    new: dict[int, Row] = field(default_factory=dict)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of some small files, of which one has deleted rows, and an old file that nobody needs."""
    root = tmp_path_factory.mktemp("race") / "t"
    properties = {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}
    table = DeltaTable.create(str(root), SCHEMA, partition_by=["part"], properties=properties)
    transaction = table.transaction("WRITE", enforces=RULES)
    for number in range(7):
        rows = {number * 10 + i: (i, PARTS[number % 2]) for i in range(5)}
        transaction.add_file(new_file(root, f"first-{number}", rows))
    transaction.commit()
    delete_rows(table, root, random.Random(0))
    (root / "orphan.parquet").write_bytes(b"old")
    for path in root.glob("*.parquet"):
        os.utime(path, (OLD, OLD))
    return root


def new_file(root: Path, name: str, rows: dict[int, Row]) -> AddFile:
    """Write a data file of one partition."""
    path = root / f"{name}.parquet"
    pq.write_table(pa.table({"id": [*rows], "value": [value for value, _ in rows.values()]}), path)
    (part,) = {part for _, part in rows.values()}
    stats = json.dumps({"numRecords": len(rows)})
    return AddFile(path.name, {"part": part}, path.stat().st_size, 1, data_change=True, stats=stats)


def rows_of(table: DeltaTable, version: int | None = None) -> tuple[dict[int, Row], dict[int, Any]]:
    """The rows of a version, and the row ids, both by id."""
    found = table.snapshot(version).to_arrow(with_row_tracking=True).to_pylist()
    assert len({row["id"] for row in found}) == len(found), "a row is there twice"
    rows = {row["id"]: (row["value"], row["part"]) for row in found}
    return rows, {row["id"]: (row["_row_id"], row["_row_commit_version"]) for row in found}


@cache
def rows_of_template(template: Path) -> tuple[dict[int, Row], dict[int, Any]]:
    """`rows_of` the table that all races begin with."""
    return rows_of(DeltaTable(str(template)))


def chosen_file(
    transaction: Any, root: Path, rng: random.Random
) -> tuple[pa.Table, AddFile, list[int], BitMap64]:
    """A live file by chance, the ids of its rows, and which of them are deleted."""
    files = transaction.read_files()
    one = files.slice(rng.randrange(len(files)), 1)
    (add,) = add_actions(one, data_change=True)
    ids = pq.read_table(root / decode_path(add.path), columns=["id"])["id"].to_pylist()
    vectors = read_deletion_vector_column(
        one["deletionVector"], DeltaTable(str(root)).storage, table=str(root)
    )
    return one, add, ids, vectors.get(0, BitMap64())


def append_rows(table: DeltaTable, root: Path, rng: random.Random, name: str) -> Effect:
    first = 1000 * (1 + ord(name[0]) - ord("a")) + 10 * int(name[1:])
    rows = {first + i: (rng.randrange(100), part) for part in [rng.choice(PARTS)] for i in range(3)}
    transaction = table.transaction("WRITE", enforces=RULES)
    transaction.add_file(new_file(root, f"new-{name}", rows))
    return Effect(transaction.commit().version, new=rows)


def delete_rows(table: DeltaTable, root: Path, rng: random.Random, name: str = "") -> Effect:
    """Delete some rows of a file by a deletion vector, or the whole file."""
    transaction = table.transaction("DELETE", enforces=RULES)
    one, add, ids, deleted = chosen_file(transaction, root, rng)
    left = [n for n in range(len(ids)) if n not in deleted]
    marked = left if name and rng.random() < 0.3 else rng.sample(left, min(2, len(left)))
    transaction.remove_files(one)
    if len(marked) < len(left):
        positions = BitMap64([*deleted, *marked])
        (vector,) = write_deletion_vectors(DeltaTable(str(root)).storage, [positions])[0]
        stats = json.dumps({"numRecords": len(ids), "tightBounds": False})
        transaction.add_file(replace(add, deletion_vector=vector, stats=stats))
    return Effect(transaction.commit().version, gone={ids[n] for n in marked})


def merge_rows(table: DeltaTable, root: Path, rng: random.Random, name: str) -> Effect:
    """Give the rows of a file new values, in a new file."""
    transaction = table.transaction("MERGE", enforces=RULES)
    one, add, ids, deleted = chosen_file(transaction, root, rng)
    part = str(add.partition_values["part"])
    rows = {id_: (rng.randrange(100, 200), part) for n, id_ in enumerate(ids) if n not in deleted}
    transaction.remove_files(one)
    transaction.add_file(new_file(root, f"merged-{name}", rows))
    return Effect(transaction.commit().version, new=rows)


def vacuum(table: DeltaTable, root: Path, rng: random.Random, name: str) -> None:
    table.vacuum(retention_hours=1, enforce_retention=False)


WRITERS = (append_rows, delete_rows, delete_rows, merge_rows, vacuum)
Use = Callable[[Turns], None]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Iterator[Use]:
    with stepped_engine(now_ms) as use_engine:

        def use(turns: Turns) -> None:
            use_engine(turns)
            monkeypatch.setattr(execution, "pause", lambda attempt: turns.step(f"pause {attempt}"))

        yield use


def race(seed: int, template: Path, root: Path, use: Use) -> list[str]:
    """Run one race, check its table, and return what has happened, by name."""
    rng = random.Random(seed)
    shutil.copytree(template, root)
    turns = Turns(rng.choice)
    use(turns)

    def client() -> DeltaTable:
        table = DeltaTable(str(root))
        table.__dict__["storage"] = SteppedStorage(table.storage, turns)
        return table

    options: dict[str, Any] = {
        "max_file_size": 1 << 20,
        "commit_bytes": rng.choice([1, None]),
        "z_order_by": rng.choice([(), (), ("id", "value")]),
    }
    works = [
        (partial(work, client(), root, random.Random(rng.random())), f"{name}{number}")
        for name in "bcd"[: rng.choice([2, 3])]
        for number, work in enumerate(rng.choices(WRITERS, k=2))
    ]

    def act(name: str) -> list[object]:
        return [_outcome(work, label) for work, label in works if label.startswith(name)]

    names = sorted({label[0] for _, label in works})
    outcomes = turns.run(
        [partial(client().optimize, **options), *(partial(act, name) for name in names)]
    )
    done, *others = outcomes
    assert isinstance(done, OptimizeResult), done
    assert all(isinstance(each, list) for each in others), others
    found = [each for of in others if isinstance(of, list) for each in of]
    check_table(DeltaTable(str(root)), template, [e for e in found if isinstance(e, Effect)])
    assert not (root / "orphan.parquet").exists() or vacuum not in {w.func for w, _ in works}
    shutil.rmtree(root)
    return [
        f"{min(done.num_commits, 2)} commits",
        *(["lost bins"] if done.num_lost else []),
        *(type(each).__name__ for each in found),
    ]


def _outcome(work: Callable[[str], object], name: str) -> object:
    try:
        return work(name)
    except CommitConflictError as error:
        return error


def check_table(table: DeltaTable, template: Path, effects: Sequence[Effect]) -> None:
    """Check that the rows are those of the commits, and that optimizations have changed none."""
    before, ids = rows_of_template(template)
    expected, changed = dict(before), set[int]()
    for effect in sorted(effects, key=lambda each: each.version):
        expected = {id_: row for id_, row in expected.items() if id_ not in effect.gone}
        expected |= effect.new
        changed |= effect.new.keys()
    rows, ids_after = rows_of(table)
    assert rows == expected
    assert {i: ids_after[i] for i in ids_after.keys() - changed} == {
        i: ids[i] for i in ids_after.keys() - changed
    }
    rows_at = cache(partial(rows_of, table))
    for commit in table.history():
        assert commit.version is not None
        if commit.operation == "OPTIMIZE":
            assert rows_at(commit.version) == rows_at(commit.version - 1)


@pytest.mark.parametrize("seeds", deep_but_for(BLOCKS, BLOCKS[0]), ids=str)
def test_no_row_is_lost_beside_an_optimization(
    template: Path, tmp_path: Path, use: Use, seeds: range
) -> None:
    met: Counter[str] = Counter()
    for seed in seeds:
        try:
            met.update(race(seed, template, tmp_path / f"t{seed}", use))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    assert met["Effect"] > len(seeds)
    if len(seeds) > 3:
        assert met["1 commits"] + met["2 commits"] > 0


CHECK_STORED = NewFiles.check_stored


class LateVacuum:
    """Vacuums a table without a retention before one call of the storage, ahead of the check of new files.

    Not within the check: it looks at files in threads, and can't see the end of one it has looked at.

    Args:
        root: the table.
        rng: decides whether another one merges first.
        number: the number of the call.
    """

    def __init__(self, root: Path, rng: random.Random, number: int) -> None:
        self.effects: list[Effect] = []
        self._is_checked = False
        self._lock = threading.Lock()
        self._root = root
        self._rng = rng
        self._left = number

    def step(self, what: str) -> None:
        """Count a call of the storage."""
        with self._lock:
            self._left -= 1
            if self._left == 0 and not self._is_checked:
                self._vacuum()

    def end(self) -> None:
        """Vacuum no more; returns when a vacuum under way has ended."""
        with self._lock:
            self._is_checked = True

    def _vacuum(self) -> None:
        table = DeltaTable(str(self._root))
        if self._rng.random() < 0.5:
            self.effects.append(merge_rows(table, self._root, self._rng, "b0"))
        for path in self._root.rglob("*.parquet"):
            os.utime(path, (OLD, OLD))
        table.vacuum(retention_hours=0, enforce_retention=False)


@pytest.mark.parametrize("seeds", deep_but_for(BLOCKS, BLOCKS[0]), ids=str)
def test_no_row_is_lost_if_a_vacuum_deletes_files_of_an_optimization(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: range
) -> None:
    met: Counter[str] = Counter()
    for seed in seeds:
        rng, root = random.Random(seed), tmp_path / f"t{seed}"
        shutil.copytree(template, root)
        late = LateVacuum(root, rng, rng.randrange(1, 60))
        table = DeltaTable(str(root))
        table.__dict__["storage"] = SteppedStorage(table.storage, late)

        def check_stored(self: NewFiles, files: Sequence[AddFile], late: Any = late) -> None:
            late.end()
            CHECK_STORED(self, files)

        with monkeypatch.context() as patch:
            patch.setattr(NewFiles, "check_stored", check_stored)
            try:
                table.optimize(max_file_size=1 << 20, z_order_by=rng.choice([(), ("id", "value")]))
                met["done"] += 1
            except MissingFilesError:
                met["missing"] += 1
                assert "OPTIMIZE" not in {c.operation for c in DeltaTable(str(root)).history()}
            except DeletionVectorError:
                # The merge has removed the file of the vector, so that a vacuum may delete both.
                assert late.effects
                met["missing"] += 1
                assert "OPTIMIZE" not in {c.operation for c in DeltaTable(str(root)).history()}
        try:
            rows = rows_of(DeltaTable(str(root)))[0]
            expected = dict(rows_of_template(template)[0])
            for effect in late.effects:
                expected |= effect.new
            assert rows == expected
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        shutil.rmtree(root)
    if len(seeds) > 3:
        assert met["done"]
        assert met["missing"]


def test_a_new_file_that_a_vacuum_deletes_once_it_is_written_is_named(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "t"
    shutil.copytree(template, root)
    describe = NewFiles.describe

    def describe_late(self: NewFiles, path: str, **kwargs: Any) -> AddFile:
        (root / path).unlink()
        return describe(self, path, **kwargs)

    monkeypatch.setattr(NewFiles, "describe", describe_late)
    with pytest.raises(MissingFilesError, match="new files of this run don't exist any more"):
        DeltaTable(str(root)).optimize(max_file_size=1 << 20)
    assert rows_of(DeltaTable(str(root))) == rows_of_template(template)


def test_new_files_that_a_vacuum_has_deleted_are_not_committed(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "t"
    shutil.copytree(template, root)
    write = execution.LocalRounds.write

    def write_late(*args: Any) -> Any:
        done = write(*args)
        for path in root.rglob("*.parquet"):
            os.utime(path, (OLD, OLD))
        DeltaTable(str(root)).vacuum(retention_hours=0, enforce_retention=False)
        return done

    monkeypatch.setattr(execution.LocalRounds, "write", write_late)
    with pytest.raises(MissingFilesError, match="new files of this run don't exist any more"):
        DeltaTable(str(root)).optimize(max_file_size=1 << 20)
    table = DeltaTable(str(root))
    assert "OPTIMIZE" not in {commit.operation for commit in table.history()}
    assert rows_of(table) == rows_of_template(template)
