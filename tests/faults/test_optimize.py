"""Each step of an optimization fails once, and kills the process once.

Whatever happens, the rows stay, every file of the table is whole, and the next run does what is left.
"""

from __future__ import annotations

import shutil
import warnings
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import CommitOutcomeUnknownError, DeltaWarning, StorageError
from airflow_delta.engine.maintenance.optimize.sorting import external_sort
from tests.faulty_storage import READS, Call, Crash, Fault, FaultyStorage, How
from tests.row_tables import RowTable, bag, random_table

WAYS = (How.FAIL, How.LOSE_ANSWER, How.FULL, How.CRASH_BEFORE, How.CRASH_WITHIN, How.CRASH_AFTER)


KINDS: dict[str, dict[str, Any]] = {
    "compaction": {},
    "z-order": {"z_order_by": ["id", "text"]},
    "clustering": {},
}


CASES = [
    *(pytest.param("compaction", how, marks=pytest.mark.deep) for how in WAYS if how != How.FAIL),
    ("compaction", How.FAIL),
    *(
        pytest.param(kind, how, marks=pytest.mark.deep)
        for kind in ("z-order", "clustering")
        for how in (How.FAIL, How.FULL, How.CRASH_WITHIN)
    ),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> RowTable:
    root = tmp_path_factory.mktemp("made") / "t"
    return random_table(root, 11, tracked=True, partition_by=("q",), num_files=5, max_rows=8)


@pytest.fixture(scope="module")
def made_clustered(tmp_path_factory: pytest.TempPathFactory) -> RowTable:
    root = tmp_path_factory.mktemp("clustered") / "t"
    return random_table(root, 11, tracked=True, cluster_by=("id", "n"), num_files=5, max_rows=8)


@pytest.fixture(autouse=True)
def spill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have even few rows sorted in temporary files."""
    monkeypatch.setattr(external_sort, "_FITS_IN_MEMORY", 1)


def disturbed(
    root: Path, *faults: Fault, **arguments: Any
) -> tuple[BaseException | None, FaultyStorage]:
    """Optimize a table with faults, and return what was raised, and the storage."""
    table = DeltaTable(str(root))
    storage = FaultyStorage(table.storage, *faults)
    table.__dict__["storage"] = storage
    try:
        table.optimize(max_file_size=1 << 20, commit_bytes=1, **arguments)
    except (StorageError, CommitOutcomeUnknownError, Crash) as error:
        return error, storage
    return None, storage


def chosen(steps: Sequence[Call]) -> list[int]:
    """The numbers of the steps that change something; of the writes to one file two stand for all."""
    found: list[int] = []
    writes: defaultdict[str, list[int]] = defaultdict(list)
    for number, step in enumerate(steps, 1):
        if step.operation == "file.write":
            writes[step.path].append(number)
        elif step.operation not in READS:
            found.append(number)
    return sorted([*found, *(number for of in writes.values() for number in (of[0], of[-1]))])


def rows(root: Path) -> object:
    return bag(DeltaTable(str(root)).snapshot().to_arrow(with_row_tracking=True).to_pylist())


@pytest.mark.parametrize(("kind", "how"), CASES)
def test_an_optimization_survives_whatever_fails(
    made: RowTable, made_clustered: RowTable, tmp_path: Path, how: How, kind: str
) -> None:
    arguments = KINDS[kind]
    made = made_clustered if kind == "clustering" else made
    expected = bag(made.rows)
    shutil.copytree(made.path, tmp_path / "undisturbed")
    error, undisturbed = disturbed(tmp_path / "undisturbed", **arguments)
    assert error is None
    assert rows(tmp_path / "undisturbed") == expected
    changes = chosen(undisturbed.steps)
    assert len(changes) > (5 if kind == "clustering" else 10)
    failed = 0
    for nth in changes:
        root = tmp_path / str(nth)
        shutil.copytree(made.path, root)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*couldn't be deleted", DeltaWarning)
            error, _ = disturbed(root, Fault("**", nth, how), **arguments)
        failed += error is not None
        assert rows(root) == expected
        table = DeltaTable(str(root))
        table.optimize(max_file_size=1 << 20, **arguments)
        assert rows(root) == expected
        assert table.optimize(max_file_size=1 << 20, **arguments).num_commits == 0
        shutil.rmtree(root)
    assert failed > len(changes) // 2


@pytest.mark.deep
def test_a_compaction_survives_reads_that_fail(made: RowTable, tmp_path: Path) -> None:
    shutil.copytree(made.path, tmp_path / "undisturbed")
    _, undisturbed = disturbed(tmp_path / "undisturbed")
    reads = [n for n, step in enumerate(undisturbed.steps, 1) if step.operation in READS][::4]
    for nth in reads:
        root = tmp_path / str(nth)
        shutil.copytree(made.path, root)
        error, _ = disturbed(root, Fault("**", nth, How.FAIL))
        assert rows(root) == bag(made.rows)
        if isinstance(error, StorageError):
            # Nothing is left but what was committed.
            live = set(DeltaTable(str(root)).snapshot().files()["path"].to_pylist())
            assert {p.name for p in root.glob("*.c000.*.parquet")} <= live
        shutil.rmtree(root)
