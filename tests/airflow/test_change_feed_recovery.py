"""Change feeds after mishaps: tables put back, runs that were killed, targets deleted, logs cleaned up."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as Peer

from airflow_delta.change_feeds.progress import FeedProgress, transaction_identifiers
from airflow_delta.change_feeds.request import FeedRequest
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import (
    ChangesNotAvailableError,
    CommitOwnerUnavailableError,
    DeltaWarning,
    TableNotFoundError,
)
from airflow_delta.operators import change_feed
from airflow_delta.operators.feed_progress import TaskProgress
from airflow_delta.version_compat import AirflowFailException, AirflowSkipException
from tests.airflow.failures import fails_for_good
from tests.airflow.feed_runs import (
    Runs,
    Submissions,
    begun,
    broken,
    feed,
    grow,
    made_range,
    three_versions,
    versions,
)
from tests.airflow.managed_tables import commit, hand_over, use_owner
from tests.log_builder import add, commit_path, write_commit, write_table

PUT_BACK = "was put back to an earlier state"


@pytest.fixture
def table(tmp_path: Path) -> str:
    return three_versions(tmp_path)


def put_back(table: str, version: int) -> None:
    """Leave of a table what a backup has that was taken at a version."""
    for path in Path(table, "_delta_log").glob("*.json"):
        if int(path.stem) > version:
            path.unlink()


@pytest.mark.parametrize("target_format", [None, "parquet"])
def test_a_table_put_back_to_an_earlier_state_is_an_error(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target_format: str | None
) -> None:
    """Its next versions have the numbers of those that were told, and other changes."""
    submissions, runs, target = Submissions(monkeypatch), Runs(), tmp_path / "changes"
    arguments = {"target_uri": str(target), "target_format": target_format} if target_format else {}
    runs.run(feed(table, **arguments))
    if target_format:
        made_range(target, Peer(table).metadata().id)
    put_back(table, 0)
    another = "version 2 is another commit now"
    for number, reason in ((3, "its newest version is 1 now"), (4, another), (5, another)):
        grow(table, number)
        with pytest.raises(AirflowFailException, match=f"{reason}.* {PUT_BACK}.* start_version 3"):
            runs.run(feed(table, **arguments))
    assert versions(runs.run(feed(table, start_version=3, **arguments))) == (3, 3)
    grow(table, 6)
    assert [taken["end"] for taken in submissions.taken] == ([2, 3] if target_format else [])
    if not target_format:
        assert versions(runs.run(feed(table))) == (4, 4)


def test_versions_that_only_the_target_tells_show_a_table_put_back(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a task of another name goes on with the target."""
    Submissions(monkeypatch)
    target = tmp_path / "changes"
    made_range(target, Peer(table).metadata().id, 0, 4)
    arguments = {"target_uri": str(target), "target_format": "parquet"}
    with pytest.raises(AirflowFailException, match=f"its newest version is 2 now.*{PUT_BACK}"):
        Runs().run(feed(table, **arguments))
    with pytest.raises(AirflowSkipException, match="nothing is new"):
        Runs().run(feed(table, start_version=5, **arguments))


def test_a_table_whose_owner_cannot_be_asked_was_not_put_back(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log has fewer versions than were told. That is for another try to see."""
    runs, owner_file = Runs(), tmp_path / "owner.db"
    with monkeypatch.context() as patch:
        use_owner(patch, owner_file)
        newest = commit(Path(table), hand_over(Path(table), owner_file), 2)
        assert versions(runs.run(feed(table))) == (0, newest)
    with (
        pytest.warns(DeltaWarning, match="may be stale"),
        pytest.raises(CommitOwnerUnavailableError),
    ):
        runs.run(feed(table))


def test_a_range_taken_before_the_table_was_put_back_is_taken_anew(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, operator = Runs(), feed(table)
    runs.attempt(operator, 1)
    for number in (3, 4):
        grow(table, number)
    with monkeypatch.context() as patch:
        patch.setattr(TaskProgress, "advance", broken)
        with pytest.raises(OSError, match="the store fails"):
            runs.attempt(operator, 2)
    put_back(table, 2)
    grow(table, 5)
    assert versions(runs.attempt(operator, 2)) == (3, 3)


def test_a_copy_of_the_log_with_other_times_is_the_same_table(table: str) -> None:
    runs = Runs()
    runs.run(feed(table))
    for path in Path(table, "_delta_log").glob("*.json"):
        os.utime(path, (1, 1))
    grow(table, 3)
    assert versions(runs.run(feed(table))) == (3, 3)


def test_a_commit_that_was_cleaned_up_is_not_missed(table: str) -> None:
    runs = Runs()
    runs.run(feed(table))
    grow(table, 3)
    DeltaTable(table).checkpoint()
    grow(table, 4)
    for version in range(3):
        commit_path(Path(table), version).unlink()
    assert versions(runs.run(feed(table))) == (3, 4)


def test_commits_that_say_nothing_of_themselves_are_told(tmp_path: Path) -> None:
    runs, path = Runs(), tmp_path / "t"
    write_commit(path, 0, *begun("only"), add("a"))
    assert versions(runs.run(feed(str(path)))) == (0, 0)
    write_commit(path, 1, add("b"))
    assert versions(runs.run(feed(str(path)))) == (1, 1)
    assert versions(runs.attempt(feed(str(path)), 1)) == (0, 0)


def test_a_run_killed_while_it_said_that_it_has_told_its_versions_tells_them_again(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those after it go by what it said, though its own tasks never got them."""
    runs, operator = Runs(), feed(table)
    finish = change_feed._TakenRange.finish

    def killed(taken: Any, state: str) -> None:
        if state == "done":
            raise OSError("killed")
        finish(taken, state)

    with monkeypatch.context() as patch:
        patch.setattr(change_feed._TakenRange, "finish", killed)
        with pytest.raises(OSError, match="killed"):
            runs.attempt(operator, 1)
    grow(table, 3)
    assert versions(runs.attempt(operator, 2)) == (3, 3)
    assert versions(runs.attempt(operator, 1)) == (0, 2)


def test_a_clear_that_fails_does_not_forget_that_the_versions_were_told(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, operator = Runs(), feed(table)
    runs.attempt(operator, 1)
    grow(table, 3)
    runs.attempt(operator, 2)
    with monkeypatch.context() as patch:
        patch.setattr(TaskProgress, "advance", broken)
        with pytest.raises(OSError, match="the store fails"):
            runs.attempt(operator, 1)
    assert versions(runs.attempt(operator, 1)) == (0, 2)


def test_a_failed_run_begins_anew_with_a_target_that_was_deleted(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submissions, runs, target = Submissions(monkeypatch), Runs(), tmp_path / "changes"
    operator = feed(table, target_uri=str(target), target_format="parquet")
    runs.attempt(operator, 1)
    made_range(target, Peer(table).metadata().id)
    grow(table, 3)
    with monkeypatch.context() as patch:
        patch.setattr(submissions, "run", broken)
        with pytest.raises(OSError, match="the store fails"):
            runs.attempt(operator, 2)
    assert versions(runs.attempt(operator, 2)) == (3, 3)
    shutil.rmtree(target)
    assert versions(runs.attempt(operator, 2)) == (0, 3)


def test_a_retry_takes_what_another_run_has_left_of_its_versions(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submissions, runs, target = Submissions(monkeypatch), Runs(), tmp_path / "changes"
    operator = feed(table, target_uri=str(target), target_format="parquet")
    with monkeypatch.context() as patch:
        patch.setattr(submissions, "run", broken)
        for run in (1, 2):
            with pytest.raises(OSError, match="the store fails"):
                runs.attempt(operator, run)
            grow(table, 2 + run)
    assert versions(runs.attempt(operator, 1)) == (0, 2)
    made_range(target, Peer(table).metadata().id)
    assert versions(runs.attempt(operator, 2)) == (3, 3)
    made_range(target, Peer(table).metadata().id, 3, 3)
    # All of it is there: a clear finds the same.
    assert versions(runs.attempt(operator, 2)) == (3, 3)
    assert versions(runs.attempt(operator, 1)) == (0, 2)
    taken = [(job["start"], job["end"]) for job in submissions.taken]
    assert taken[:2] == [(0, 2), (3, 3)]


@pytest.mark.parametrize("target_format", ["delta", "parquet"])
def test_a_try_whose_target_has_the_range_starts_no_spark(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target_format: str
) -> None:
    """The job of an earlier try was done, and its worker gone before Airflow heard of it."""
    submissions, runs, target = Submissions(monkeypatch), Runs(), tmp_path / "changes"
    operator = feed(table, target_uri=str(target), target_format=target_format)
    first = runs.attempt(operator, 1)
    assert len(submissions.taken) == 1
    table_id = str(Peer(table).metadata().id)
    if target_format == "parquet":
        made_range(target, table_id)
        again = {"target_version": None, "appended": False}  # its marker has the counts
    else:
        request = FeedRequest(table, 0, 2, str(target))
        marks = transaction_identifiers(request, FeedProgress(), table_id)
        txns = [{"txn": {"appId": name, "version": number}} for name, number in marks.items()]
        write_table(target, [add("a")], [add("b"), *txns])
        again = {"target_version": 1, "appended": False, "num_changes": None, "counts": None}
    assert runs.attempt(operator, 1) == {**first, **again}
    assert len(submissions.taken) == 1


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_clear_has_nothing_to_do_where_the_target_has_what_the_table_has_lost(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_gone: bool
) -> None:
    submissions, runs, target = Submissions(monkeypatch), Runs(), tmp_path / "changes"
    operator = feed(table, target_uri=str(target), target_format="parquet")
    first = runs.attempt(operator, 1)
    made_range(target, Peer(table).metadata().id)
    clean_up_to(table, 3)
    if is_gone:
        shutil.rmtree(table)
    untold = {"appended": False, "target_version": None, "num_changes": None, "counts": None}
    assert runs.attempt(operator, 1) == {**first, **untold}
    assert len(submissions.taken) == 1
    shutil.rmtree(target)
    lost = TableNotFoundError if is_gone else ChangesNotAvailableError
    with fails_for_good(lost):
        runs.attempt(operator, 1)


def clean_up_to(table: str, version: int) -> None:
    """Leave the commits from a version on, and a checkpoint there."""
    grow(table, version)
    DeltaTable(table).checkpoint()
    for older in range(version):
        commit_path(Path(table), older).unlink()
