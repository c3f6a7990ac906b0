"""Each step of a conversion fails once, and kills the process once.

Whatever happens, no data file is touched, the directory is the whole table or none, and the next run makes
it one.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import (
    CommitOutcomeUnknownError,
    DataFileError,
    StorageError,
    TableNotFoundError,
)
from airflow_delta.engine.maintenance.convert.execution import ConvertResult, convert_directory
from airflow_delta.engine.maintenance.convert.plan import ConvertRequest
from tests.deep import deep_but_for
from tests.engine.maintenance.convert.parquet_folders import fingerprint, write_parquet
from tests.faulty_storage import Crash, Fault, FaultyStorage, How

WAYS = (How.FAIL, How.LOSE_ANSWER, How.FULL, How.CRASH_BEFORE, How.CRASH_WITHIN, How.CRASH_AFTER)
ROWS = [(1, "2026-01-31"), (2, "2026-01-31"), (3, "2026-02-01"), (4, "2026-02-01")]


@pytest.fixture
def days(tmp_path: Path) -> Path:
    """A directory of three files in two partitions."""
    root = tmp_path / "days"
    write_parquet(root / "day=2026-01-31" / "0.parquet", {"id": [1, 2]})
    write_parquet(root / "day=2026-02-01" / "1.parquet", {"id": [3]})
    write_parquet(root / "day=2026-02-01" / "2.parquet", {"id": [4]})
    return root


def convert(root: Path, *faults: Fault) -> tuple[ConvertResult, FaultyStorage]:
    table = DeltaTable(str(root))
    storage = FaultyStorage(table.storage, *faults)
    table.__dict__["storage"] = storage
    request = ConvertRequest({"day": "date"})
    done = convert_directory(table.file_access, table.commit_owners, request, once=("job", 1))
    return done, storage


def rows_of(root: Path) -> list[tuple[int, str]]:
    found = DeltaTable(str(root)).snapshot().to_arrow().to_pylist()
    return sorted((row["id"], row["day"].isoformat()) for row in found)


@pytest.mark.parametrize("how", deep_but_for(WAYS, How.CRASH_WITHIN))
def test_a_conversion_survives_whatever_fails(days: Path, tmp_path: Path, how: How) -> None:
    before = fingerprint(days)
    shutil.copytree(days, tmp_path / "undisturbed")
    done, undisturbed = convert(tmp_path / "undisturbed")
    assert done.converted
    failed = 0
    for nth in range(1, len(undisturbed.steps) + 1):
        root = tmp_path / str(nth)
        shutil.copytree(days, root)
        try:
            convert(root, Fault("**", nth, how))
        except (StorageError, DataFileError, CommitOutcomeUnknownError, Crash):
            failed += 1
            try:
                assert rows_of(root) == ROWS
            except TableNotFoundError:
                assert not list((root / "_delta_log").glob("*.json"))
        again, _ = convert(root)
        assert again.version == 0
        assert again.converted or again.repeated
        assert rows_of(root) == ROWS
        assert len(DeltaTable(str(root)).history()) == 1
        files = {name: print_ for name, print_ in fingerprint(root).items() if name in before}
        assert files == before
        shutil.rmtree(root)
    assert failed
