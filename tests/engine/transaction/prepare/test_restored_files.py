"""A commit that says that it brings a version back leaves just the files of that version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import ConstraintViolationError
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.intent import RestoreVersion
from airflow_delta.engine.transaction.prepare.restored_files import check_restored_files
from airflow_delta.engine.transaction.staged import Actions
from tests.engine.transaction.prepare.attempts import VECTOR, counted, file, protocol, tombstone
from tests.log_builder import add, metadata, remove, write_commit


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    """Version 0 has a and b, version 1 has a with a vector, and c."""
    vector, stats = VECTOR.to_json(), counted(9)
    write_commit(
        tmp_path,
        0,
        protocol("deletionVectors"),
        metadata(),
        add("a", stats=stats),
        add("b", stats=stats),
    )
    changed = add("a", stats=stats, deletionVector=vector)
    write_commit(tmp_path, 1, remove("a"), changed, remove("b"), add("c", stats=stats))
    return DeltaTable(str(tmp_path))


def check(table: DeltaTable, **actions: Any) -> None:
    base, target = table.snapshot(), table.snapshot(0)
    staged = Actions(purpose=RestoreVersion(target), **actions)
    context = CommitContext(
        base.table, 2, 1, base.protocol, base.metadata, base, restored_version=target
    )
    assert check_restored_files(staged, context) is staged


BACK = (file("a"), file("b"))
GONE = (tombstone("a", deletion_vector=VECTOR), tombstone("c"))


def test_just_the_files_of_the_version_are_left(table: DeltaTable) -> None:
    check(table, adds=BACK, removes=GONE)


@pytest.mark.parametrize(
    ("adds", "removes", "found"),
    [
        (BACK, GONE[:1], "0 files of that version would be missing, and 1 other"),
        (BACK, (GONE[1], tombstone("a")), "0 files of that version would be missing, and 1 other"),
        (BACK[:1], GONE, "1 files of that version would be missing, and 0 other"),
        ((*BACK, file("d")), GONE, "0 files of that version would be missing, and 1 other"),
        (
            (file("a", deletion_vector=VECTOR), BACK[1]),
            GONE,
            "1 files of that version would be missing, and 1 other",
        ),
        ((), (), "2 files of that version would be missing, and 2 other"),
    ],
)
def test_no_other_files_are(table: DeltaTable, adds: Any, removes: Any, found: str) -> None:
    with pytest.raises(ConstraintViolationError, match=f"restores version 0, but {found}"):
        check(table, adds=adds, removes=removes)


def test_other_commits_are_not_checked(table: DeltaTable) -> None:
    base = table.snapshot()
    context = CommitContext(base.table, 2, 1, base.protocol, base.metadata, base)
    staged = Actions(adds=(file("d"),))
    assert check_restored_files(staged, context) is staged


def test_a_commit_is_held_to_it(table: DeltaTable) -> None:
    transaction = table.transaction("RESTORE")
    transaction.declare(RestoreVersion(table.snapshot(0)))
    transaction.set_metadata(table.snapshot(0).metadata)
    transaction.add_files(BACK[:1])
    transaction.remove_file(GONE[0])
    with pytest.raises(
        ConstraintViolationError, match="1 files of that version would be missing, and 1 other"
    ):
        transaction.commit()
    assert table.latest_version() == 1
