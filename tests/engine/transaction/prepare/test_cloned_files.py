"""A commit that makes a clone leaves just the listed files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_delta.engine import DeltaTable, OptimisticTransaction
from airflow_delta.engine.errors import ConstraintViolationError
from airflow_delta.engine.replay.file_key import keys_of_files
from airflow_delta.engine.transaction.intent import CloneVersion
from airflow_delta.engine.transaction.staged import Actions
from tests.engine.transaction.prepare.attempts import VECTOR, counted, file, protocol, tombstone
from tests.log_builder import add, metadata, write_commit


@pytest.fixture
def source(tmp_path: Path) -> DeltaTable:
    """A table of two files, one of which has a deletion vector."""
    first, second = add("a", stats=counted(9)), add("b", stats=counted(9))
    second["add"]["deletionVector"] = VECTOR.to_json()
    write_commit(tmp_path / "s", 0, protocol("deletionVectors"), metadata(), first, second)
    return DeltaTable(str(tmp_path / "s"))


COPIES = (file("c/a"), file("c/b", deletion_vector=VECTOR))


def commit(
    source: DeltaTable, target: Path, files: Any, *, removes: Any = (), keys: Any = None
) -> None:
    version, table = source.snapshot(), DeltaTable(str(target))
    transaction = (
        table.transaction("CLONE")
        if table.exists()
        else OptimisticTransaction(table.storage, None, "CLONE")
    )
    listed = keys_of_files(files if keys is None else keys, table=table.storage.root)
    transaction.declare(CloneVersion(version, listed))
    transaction.set_protocol(version.protocol)
    if transaction.snapshot is None:
        transaction.set_metadata(version.metadata)
    transaction.add_files(list(files))
    for removed in removes:
        transaction.remove_file(removed)
    transaction.commit()


def test_the_copies_are_the_table(source: DeltaTable, tmp_path: Path) -> None:
    """Though the table makes no new deletion vectors, and statistics don't fit anything."""
    commit(source, tmp_path / "t", COPIES)
    assert DeltaTable(str(tmp_path / "t")).snapshot().num_files == 2
    other = (file("d/a"),)
    commit(source, tmp_path / "t", other, removes=(tombstone("c/a"),), keys=(*other, COPIES[1]))
    paths = DeltaTable(str(tmp_path / "t")).snapshot().files()["path"].to_pylist()
    assert sorted(paths) == ["c/b", "d/a"]


@pytest.mark.parametrize(
    ("files", "keys", "found"),
    [
        (COPIES[:1], COPIES, "of the 2 copies, 1 would be missing, and 0 other files"),
        ((*COPIES, file("x")), COPIES, "of the 2 copies, 0 would be missing, and 1 other files"),
        (
            (COPIES[0], file("c/b")),
            COPIES,
            "of the 2 copies, 1 would be missing, and 1 other files",
        ),
        (
            COPIES[:1],
            COPIES[:1],
            "which has 2 files; of the 1 copies, 0 would be missing, and 0 other",
        ),
    ],
)
def test_nothing_else_is(
    source: DeltaTable, tmp_path: Path, files: Any, keys: Any, found: str
) -> None:
    with pytest.raises(ConstraintViolationError, match=found):
        commit(source, tmp_path / "t", files, keys=keys)


def test_files_that_stay_are_held_to_it(source: DeltaTable, tmp_path: Path) -> None:
    commit(source, tmp_path / "t", COPIES)
    with pytest.raises(
        ConstraintViolationError, match="of the 2 copies, 0 would be missing, and 1 other"
    ):
        commit(source, tmp_path / "t", (file("d/a"),), keys=(file("d/a"), COPIES[1]))


def test_other_commits_are_not_checked(source: DeltaTable) -> None:
    from airflow_delta.engine.transaction.context import CommitContext
    from airflow_delta.engine.transaction.prepare.cloned_files import check_cloned_files

    base = source.snapshot()
    context = CommitContext(base.table, 1, 1, base.protocol, base.metadata, base)
    staged = Actions(adds=(file("d"),))
    assert check_cloned_files(staged, context) is staged
    assert CloneVersion(base, pa.chunked_array([], pa.string())).version is base


def test_an_append_only_clone_follows_its_source(tmp_path: Path) -> None:
    """Which may have put its rows into other files."""
    listed = metadata(configuration={"delta.appendOnly": "true"})
    write_commit(tmp_path / "s", 0, protocol("appendOnly"), listed, add("a", stats=counted(1)))
    source = DeltaTable(str(tmp_path / "s"))
    commit(source, tmp_path / "t", (file("c/a"),))
    commit(source, tmp_path / "t", (file("d/a"),), removes=(tombstone("c/a"),))
    assert DeltaTable(str(tmp_path / "t")).latest_version() == 1
