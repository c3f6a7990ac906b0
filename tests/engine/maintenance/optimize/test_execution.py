"""Compactions beside other writers, and with stores and files that fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import LONG, DeltaTable, StructField
from airflow_delta.engine.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    DataFileError,
    MetadataChangedError,
    MissingFilesError,
    ProtocolChangedError,
    StorageError,
)
from airflow_delta.engine.maintenance.optimize import execution
from airflow_delta.engine.transaction.file_rows import add_actions
from airflow_delta.engine.transaction.transaction import OptimisticTransaction
from tests.engine.maintenance.optimize.files_of_rows import data_files
from tests.faulty_storage import Fault, FaultyStorage, How
from tests.log_builder import add, write_table
from tests.row_tables import RowTable, bag, random_table

Meanwhile = Callable[[DeltaTable], Any]


@pytest.fixture
def made(tmp_path: Path) -> RowTable:
    return random_table(tmp_path / "t", 7, partition_by=("q",), num_files=9)


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Meanwhile], None]]:
    """Have something done after the new files are written, and before they are committed."""
    write = execution._Run.write

    def register(action: Meanwhile) -> None:
        def writing(run: Any, *arguments: Any) -> Any:
            done = write(run, *arguments)
            action(DeltaTable(run._snapshot.table))
            return done

        monkeypatch.setattr(execution._Run, "write", writing)

    return register


def optimize(made: RowTable, **options: Any) -> execution.OptimizeResult:
    return made.table.optimize(max_file_size=1 << 20, **options)


def live_rows(table: DeltaTable) -> Any:
    return bag(table.snapshot().to_arrow().to_pylist())


def test_an_append_does_not_conflict(made: RowTable, meanwhile: Any) -> None:
    added = random_table(made.path.parent / "other", 8, partition_by=("q",), num_files=2)

    def append(table: DeltaTable) -> None:
        transaction = table.transaction("WRITE")
        files = added.table.snapshot().files()
        transaction.add_files(list(add_actions(files, data_change=True)))
        for path in added.path.glob("*.*"):
            path.rename(made.path / path.name)
        transaction.commit()

    meanwhile(append)
    done = optimize(made)
    assert (done.num_lost, done.num_commits) == (0, 1)
    assert live_rows(made.table) == bag(made.rows) + bag(added.rows)


def test_a_concurrent_delete_costs_only_its_bin(made: RowTable, meanwhile: Any) -> None:
    planned = made.table.optimize(max_file_size=1 << 20, dry_run=True).plan
    assert planned.num_bins > 1
    gone = planned.files["path"][0].as_py()
    bin_of_gone = [f["path"] for f in planned.files.to_pylist() if f["bin"] == 0]
    left: list[Any] = []

    def delete(table: DeltaTable) -> None:
        transaction = table.transaction("DELETE")
        files = transaction.read_files()
        transaction.remove_files(files.filter([path == gone for path in files["path"].to_pylist()]))
        transaction.commit()
        left.append(live_rows(table))

    meanwhile(delete)
    done = optimize(made)
    assert (done.num_lost, done.num_commits) == (len(bin_of_gone), 1)
    assert done.num_removed == len(planned.files) - len(bin_of_gone)
    assert live_rows(made.table) == left[0]
    live = set(made.table.snapshot().files()["path"].to_pylist())
    assert live >= set(bin_of_gone) - {gone}
    # Only the files of the lost bin are gone from the directory.
    written = {path for path in data_files(made.path) if ".c000." in path}
    assert written == {path for path in live if ".c000." in path}


def test_every_round_is_a_commit_of_its_own(made: RowTable) -> None:
    planned = made.table.optimize(max_file_size=1 << 20, dry_run=True).plan
    before = made.table.latest_version()
    done = optimize(made, commit_bytes=1)
    assert done.num_commits == planned.num_bins > 1
    assert (done.first_version, done.version) == (before + 1, before + done.num_commits)
    assert done.num_removed == len(planned.files)
    assert live_rows(made.table) == bag(made.rows)


def test_earlier_rounds_stay_if_a_later_one_fails(made: RowTable, meanwhile: Any) -> None:
    first: list[Path] = []

    def lose_a_file(table: DeltaTable) -> None:
        plan = table.optimize(max_file_size=1 << 20, dry_run=True).plan
        if not first:
            first.append(table.path if False else made.path / plan.files["path"][-1].as_py())
            first[0].rename(made.path.parent / "away")

    meanwhile(lose_a_file)
    version = made.table.latest_version()
    with pytest.raises(MissingFilesError) as caught:
        optimize(made, commit_bytes=1)
    assert caught.value.path == first[0].name
    assert made.table.latest_version() > version
    (made.path.parent / "away").rename(first[0])
    assert live_rows(made.table) == bag(made.rows)


def add_column(table: DeltaTable) -> None:
    table.alter.add_columns([StructField("more", LONG)])


def add_feature(table: DeltaTable) -> None:
    table.alter.set_properties({"delta.feature.inCommitTimestamp": "supported"})


def set_property(table: DeltaTable) -> None:
    table.alter.set_properties({"team": "sales"})


@pytest.mark.parametrize(
    ("change", "error"),
    [(add_column, MetadataChangedError), (add_feature, ProtocolChangedError)],
)
def test_files_in_an_old_form_are_not_committed(
    made: RowTable, meanwhile: Any, change: Meanwhile, error: type[CommitConflictError]
) -> None:
    before = data_files(made.path)
    meanwhile(change)
    with pytest.raises(error, match="run the operation again"):
        optimize(made)
    assert data_files(made.path) == before
    assert made.table.history(1)[0].operation != "OPTIMIZE"


def test_other_changes_of_the_metadata_do_not_matter(made: RowTable, meanwhile: Any) -> None:
    meanwhile(set_property)
    assert optimize(made).num_commits == 1
    assert live_rows(made.table) == bag(made.rows)


def test_a_file_with_other_rows_than_in_the_log_is_named(made: RowTable) -> None:
    path = made.path / made.table.optimize(dry_run=True).plan.files["path"][0].as_py()
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(DataFileError, match="in the log") as caught:
        optimize(made)
    assert caught.value.path == path.name
    path.write_bytes(data)
    assert optimize(made).num_commits == 1


def test_a_full_disk_leaves_nothing(made: RowTable) -> None:
    before, version = data_files(made.path), made.table.latest_version()
    table = made.table
    table.__dict__["storage"] = FaultyStorage(table.storage, Fault("writer", 2, How.FULL))
    with pytest.raises(StorageError):
        table.optimize(max_file_size=1 << 20)
    assert (data_files(made.path), made.table.latest_version()) == (before, version)
    assert live_rows(made.table) == bag(made.rows)


def test_a_commit_whose_answer_is_lost_is_found(made: RowTable) -> None:
    table = made.table
    lost = Fault("create", 1, How.LOSE_ANSWER)
    table.__dict__["storage"] = FaultyStorage(table.storage, lost)
    assert table.optimize(max_file_size=1 << 20).num_commits == 1
    assert live_rows(made.table) == bag(made.rows)


def test_files_of_a_commit_of_unknown_outcome_stay(
    made: RowTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = OptimisticTransaction.commit

    def interrupted(transaction: OptimisticTransaction, **options: Any) -> Any:
        commit(transaction, **options)
        raise CommitOutcomeUnknownError("the answer is lost")

    monkeypatch.setattr(OptimisticTransaction, "commit", interrupted)
    with pytest.raises(CommitOutcomeUnknownError, match="the answer is lost"):
        optimize(made)
    assert made.table.history(1)[0].operation == "OPTIMIZE"
    assert live_rows(made.table) == bag(made.rows)


@pytest.mark.parametrize("lacking", [None, {}, {"part": None}])
def test_new_files_have_the_partition_values_that_the_log_lacks(
    tmp_path: Path, lacking: dict[str, None] | None
) -> None:
    adds = []
    for number in range(3):
        file = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"id": [number]}), file)
        values = {"part": "x"} if number == 2 else lacking
        adds.append(add(file.name, size=file.stat().st_size, partitionValues=values))
    table = DeltaTable(str(write_table(tmp_path, adds, partition_columns=["part"])))
    before = live_rows(table)
    assert table.optimize().plan.num_bins == 1
    assert live_rows(table) == before
    values = table.snapshot().files()["partitionValues"].to_pylist()
    assert sorted(values, key=str) == [[("part", "x")], [("part", None)]]
