"""Writes that end in the middle, or meet another writer: all or nothing, and no file too many."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine import DeltaTable, OptimisticTransaction
from airflow_delta.engine.errors import (
    CommitOutcomeUnknownError,
    ConcurrentTransactionError,
    DeltaError,
    InvalidTableError,
    StorageError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.model.schema import LONG, StructField, StructType
from airflow_delta.spark import delete, read_snapshot, update, write
from airflow_delta.spark.dml import change_files, removed_rows
from airflow_delta.spark.writer import file_writing
from tests.deep import deep_but_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IDENTITY = {
    "delta.identity.start": 1,
    "delta.identity.step": 1,
    "delta.identity.allowExplicitInsert": False,
}


class StoppedError(Exception):
    """A driver that ends here."""


def stopping(function: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Something that stops the driver, after a function if there is one."""

    def stop(*arguments: Any, **named: Any) -> Any:
        if function is not None:
            function(*arguments, **named)
        raise StoppedError

    return stop


def data_files(table: Path) -> set[str]:
    return {str(path) for path in table.rglob("*.parquet") if path.is_file()} | {
        str(path) for path in table.rglob("deletion_vector_*")
    }


STEPS = {
    "before the data files": (file_writing, "write_data_files", False),
    "after the data files": (file_writing, "write_data_files", True),
    "after their statistics": (file_writing, "list_data_files", True),
    "before the commit": (OptimisticTransaction, "commit", False),
}


@pytest.mark.parametrize("mode", deep_but_for(["append", "overwrite"], "overwrite"))
def test_a_write_that_stops_leaves_nothing_and_a_retry_writes_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    write(spark.range(4), str(tmp_path))
    files = data_files(tmp_path)
    # Each try finds the table as it was before all of them.
    for step, (owner, name, is_after) in STEPS.items():
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, stopping(getattr(owner, name) if is_after else None))
            with pytest.raises(StoppedError):
                write(spark.range(4, 6), str(tmp_path), mode=mode, txn=("task", 1))
        assert DeltaTable(str(tmp_path)).latest_version() == 0, step
        if step != "before the commit":
            assert data_files(tmp_path) == files, step
    for _ in range(2):
        assert write(spark.range(4, 6), str(tmp_path), mode=mode, txn=("task", 1)).version == 1
    ids = sorted(row["id"] for row in read_snapshot(spark, str(tmp_path)).collect())
    assert ids == ([0, 1, 2, 3, 4, 5] if mode == "append" else [4, 5])


@pytest.mark.parametrize(
    "properties", deep_but_for([{}, {"delta.enableDeletionVectors": "true"}], {})
)
def test_a_deletion_that_stops_leaves_the_rows(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    properties: dict[str, str],
) -> None:
    write(spark.range(10).coalesce(1), str(tmp_path), properties=properties)
    files = data_files(tmp_path)
    name = "_add_with_vectors" if properties else "FileRewriter"
    with monkeypatch.context() as patch:
        patch.setattr(removed_rows, name, stopping(getattr(removed_rows, name)))
        with pytest.raises(StoppedError):
            delete(spark, str(tmp_path), "id > 6", txn=("task", 1))
    assert data_files(tmp_path) == files
    assert read_snapshot(spark, str(tmp_path)).count() == 10
    for _ in range(2):
        assert delete(spark, str(tmp_path), "id > 6", txn=("task", 1)).version == 1
    assert read_snapshot(spark, str(tmp_path)).count() == 7


def test_files_stay_where_nobody_knows_of_the_commit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit was made, and its answer lost: the table needs the files."""
    write(spark.range(4), str(tmp_path))
    commit = OptimisticTransaction.commit

    def lost(*arguments: Any, **named: Any) -> Any:
        commit(*arguments, **named)
        raise CommitOutcomeUnknownError("lost", table=str(tmp_path))

    with monkeypatch.context() as patch:
        patch.setattr(OptimisticTransaction, "commit", lost)
        with pytest.raises(CommitOutcomeUnknownError):
            write(spark.range(4, 6), str(tmp_path), txn=("task", 1))
    assert read_snapshot(spark, str(tmp_path)).count() == 6
    assert write(spark.range(4, 6), str(tmp_path), txn=("task", 1)).version == 1
    assert read_snapshot(spark, str(tmp_path)).count() == 6


@pytest.mark.parametrize("kind", [InvalidTableError, UnsupportedFeatureError, StorageError])
def test_files_of_a_commit_that_was_refused_are_deleted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[DeltaError]
) -> None:
    write(spark.range(4), str(tmp_path))
    before = set(tmp_path.rglob("*"))

    def refused(*arguments: Any, **named: Any) -> Any:
        assert set(tmp_path.rglob("*.parquet")) > before & set(tmp_path.rglob("*.parquet"))
        raise kind("refused", table=str(tmp_path))

    monkeypatch.setattr(OptimisticTransaction, "commit", refused)
    with pytest.raises(kind, match="refused"):
        write(spark.range(4, 6), str(tmp_path))
    assert {path for path in tmp_path.rglob("*") if path.is_file()} <= before


@pytest.mark.parametrize("exists", [True, False])
def test_a_driver_that_goes_on_and_the_retry_commit_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: bool
) -> None:
    """The driver of a killed task commits while its retry is about to."""
    if exists:
        write(spark.range(4), str(tmp_path))
    commit = OptimisticTransaction.commit
    made: list[int] = []

    def later(transaction: OptimisticTransaction, **named: Any) -> Any:
        monkeypatch.setattr(OptimisticTransaction, "commit", commit)
        made.append(write(spark.range(4, 6), str(tmp_path), txn=("task", 1)).version)
        return commit(transaction, **named)

    monkeypatch.setattr(OptimisticTransaction, "commit", later)
    found = write(spark.range(4, 6), str(tmp_path), txn=("task", 1))
    assert [found.version] == made == [int(exists)]
    assert (found.written, found.repeated) == (False, True)
    assert read_snapshot(spark, str(tmp_path)).count() == (6 if exists else 2)
    paths = set(DeltaTable(str(tmp_path)).snapshot().file_uris())
    assert data_files(tmp_path) == paths, "the files of the slower one are deleted"


OTHER_RUNS = {
    "another run": ([2], 2, 5),
    "two other runs": ([2, 3], 3, 7),
    "another run, and a try of this one": ([2, 1], 2, 5),
}
"""The numbers that are committed meanwhile, the version of the write then, and the rows of the table."""


LEFT = {
    "append": (file_writing, lambda spark, table: write(spark.range(2), table)),
    "change data": (change_files, lambda spark, table: update(spark, table, {"id": "id + 1"})),
}


@pytest.mark.parametrize("case", LEFT)
def test_files_that_a_dead_executor_has_left_are_not_committed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """Files of a first try of a task, which the second one hasn't replaced."""
    table = str(tmp_path)
    write(spark.range(4), table, properties={"delta.enableChangeDataFeed": "true"})
    files = data_files(tmp_path)
    module, change = LEFT[case]
    write_data_files = module.write_data_files

    def leaving(rows: Any, path: str, **named: Any) -> int:
        written = write_data_files(rows, path, **named)
        directory = Path(path.removeprefix("file:"))
        file = max(directory.rglob("*.parquet"), key=lambda file: file.stat().st_size)
        shutil.copy(file, file.with_name("part-00099-left.snappy.parquet"))
        return written

    monkeypatch.setattr(module, "write_data_files", leaving)
    with pytest.raises(StorageError, match=r"have \d+ rows, and Spark's tasks have written \d+"):
        change(spark, table)
    assert DeltaTable(table).latest_version() == 0
    assert data_files(tmp_path) == files
    monkeypatch.undo()
    change(spark, table)
    assert DeltaTable(table).latest_version() == 1


NO_ROWS = {
    "range": lambda spark: spark.range(0),
    "constant condition": lambda spark: spark.range(4).where(F.lit(False)),
    "condition": lambda spark: spark.range(4).where("id > 4"),
    "local rows": lambda spark: spark.createDataFrame([], "id bigint"),
    "empty join": lambda spark: (
        # Spark learns while it runs that one side is empty, and leaves the join out.
        spark.range(4).where("id + rand() > 9").repartition(2).join(spark.range(4), "id")
    ),
}


@pytest.mark.parametrize("case", NO_ROWS)
def test_writes_without_rows_are_counted(spark: SparkSession, tmp_path: Path, case: str) -> None:
    """Also if Spark plans them without a task that could count."""
    table, rows = str(tmp_path), NO_ROWS[case](spark)
    for _ in range(2):
        assert write(rows, table, "overwrite").num_rows == 0
    partitioned = write(
        rows.select("id", F.lit(1).alias("p")), f"{table}/new", "append", partition_by=["p"]
    )
    assert partitioned.num_rows == 0


def _commit_meanwhile(monkeypatch: pytest.MonkeyPatch, *others: Callable[[], Any]) -> None:
    """Have the next commits begin with those of others, one each."""
    commit, left = OptimisticTransaction.commit, list(others)

    def later(transaction: OptimisticTransaction, **named: Any) -> Any:
        if left:
            other = left.pop(0)
            with monkeypatch.context() as patch:
                patch.setattr(OptimisticTransaction, "commit", commit)
                other()
        return commit(transaction, **named)

    monkeypatch.setattr(OptimisticTransaction, "commit", later)


@pytest.mark.parametrize("case", deep_but_for(OTHER_RUNS, *list(OTHER_RUNS)[1:]))
def test_appends_of_one_application_at_the_same_time_all_commit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """Runs of a DAG that overlap, with one task and a number each."""
    numbers, version, num_rows = OTHER_RUNS[case]
    table = str(tmp_path)
    write(spark.range(1).coalesce(1), table, properties={"delta.enableRowTracking": "true"})
    rows = spark.range(2).coalesce(1)
    write_data_files, jobs = file_writing.write_data_files, []

    def counted(*arguments: Any, **named: Any) -> int:
        jobs.append(arguments)
        return write_data_files(*arguments, **named)

    monkeypatch.setattr(file_writing, "write_data_files", counted)
    others = [lambda number=number: write(rows, table, txn=("job", number)) for number in numbers]
    _commit_meanwhile(monkeypatch, *others)
    result = write(rows, table, txn=("job", 1))
    is_repeated = 1 in numbers
    assert (result.version, result.repeated, result.num_rows) == (
        version,
        is_repeated,
        0 if is_repeated else 2,
    )
    assert len(jobs) == 1 + len(numbers), "the rows aren't written again"
    assert read_snapshot(spark, table).count() == num_rows
    assert data_files(tmp_path) == set(DeltaTable(table).snapshot().file_uris())
    assert write(rows, table, txn=("job", 1)).version == version


def test_an_append_does_not_follow_a_run_of_its_application_to_another_definition(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = str(tmp_path)
    write(spark.range(1), table)

    def redefine() -> None:
        write(spark.range(1), table, txn=("job", 2))
        DeltaTable(table).alter.set_comment("id", "the id")

    _commit_meanwhile(monkeypatch, redefine)
    with pytest.raises(ConcurrentTransactionError, match="set the transaction of"):
        write(spark.range(2), table, txn=("job", 1))
    assert DeltaTable(table).latest_version() == 2
    assert data_files(tmp_path) == set(DeltaTable(table).snapshot().file_uris())


def test_writers_at_the_same_time_make_no_identity_value_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = StructType((StructField("id", LONG, metadata=IDENTITY), StructField("n", LONG)))
    DeltaTable.create(str(tmp_path), schema)
    errors: list[BaseException] = []

    def appends(first: int) -> None:
        try:
            for number in range(4):
                rows = spark.range(100).selectExpr(f"id + {first + number} AS n")
                write(rows, str(tmp_path), txn=(f"writer-{first}", number))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=appends, args=(first,)) for first in (0, 1000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    ids = [row["id"] for row in read_snapshot(spark, str(tmp_path)).select("id").collect()]
    assert len(ids) == len(set(ids)) == 800


def test_errors_of_java_become_errors_of_the_store(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "source"
    spark.range(4).write.parquet(str(source))
    rows = spark.read.parquet(str(source))
    for path in source.rglob("*.parquet"):
        path.unlink()
    table = tmp_path / "table"
    with pytest.raises(StorageError) as caught:
        write(rows, str(table))
    assert len(str(caught.value)) < 1500
    assert str(table) in str(caught.value)
    assert not DeltaTable(str(table)).exists()
    with pytest.raises(StorageError, match="Spark failed to write files: "):
        write(spark.range(1), "/proc/nothing-here")
