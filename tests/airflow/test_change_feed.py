"""The change feed operator: which versions it takes, what Spark is given, and its DAG, run whole."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Peer
from deltalake import write_deltalake

from airflow_delta.engine.errors import ChangesNotAvailableError
from airflow_delta.operators.change_feed import ChangeFeedOperator
from airflow_delta.version_compat import AirflowFailException, AirflowSkipException
from tests.airflow.maintenance import rows_by_peer, run_dag
from tests.airflow.managed_tables import commit, hand_over, in_log, use_owner
from tests.airflow.run_context import context_of
from tests.airflow.task_state import TaskState

COUNTS = {"insert": 2, "delete": 1, "update_preimage": 0, "update_postimage": 0}


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Versions 0 to 2, each with a row more."""
    uri = str(tmp_path / "table")
    for number in range(3):
        grow(uri, number)
    return uri


def grow(uri: str, number: int) -> None:
    feed = {"delta.enableChangeDataFeed": "true"}
    rows = pa.table({"id": [number]})
    write_deltalake(uri, rows, mode="append", configuration=None if number else feed)


class Runs:
    """The runs of one task: what each returned is there for the next, as XComs are."""

    def __init__(self) -> None:
        self.returned: list[Any] = []
        self.state = TaskState()

    def context(self) -> Any:
        context = context_of("feed")
        context["ti"].xcom_pull = self.pull
        context["task_state_store"] = self.state
        return context

    def pull(self, *, task_ids: str, map_indexes: int, include_prior_dates: bool) -> Any:
        assert (task_ids, map_indexes, include_prior_dates) == ("feed", -1, True)
        return self.returned[-1] if self.returned else None

    def attempt(self, operator: ChangeFeedOperator) -> dict[str, Any]:
        """A try in the same run."""
        return operator.execute(self.context())

    def run(self, operator: ChangeFeedOperator) -> dict[str, Any]:
        """A run: another one, with a state of its own."""
        self.state = TaskState()
        self.returned.append(self.attempt(operator))
        found: dict[str, Any] = self.returned[-1]
        return found


class Submissions:
    """Takes the place of Spark: keeps what is submitted, and answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[dict[str, Any]] = []
        self.answer: dict[str, Any] = {"appended": True, "counts": COUNTS, "committed_version": 5}
        monkeypatch.setattr("airflow_delta.hooks.spark_job.SparkJobHook", lambda *_, **__: self)

    def run(self, job: str, parameters: dict[str, Any], **environment: Any) -> dict[str, Any]:
        assert job == "change_feed"
        self.taken.append(parameters)
        self.environment = environment
        self.in_log = in_log(Path(parameters["table_uri"]))
        return self.answer


def feed(table: str, **arguments: Any) -> ChangeFeedOperator:
    return ChangeFeedOperator(task_id="feed", table_uri=table, **arguments)


def test_each_run_goes_on_after_the_one_before(table: str) -> None:
    runs, operator = Runs(), feed(table)
    found = {
        "table_uri": table,
        "table_id": str(Peer(table).metadata().id),
        "version": 2,
        "start_version": 0,
        "end_version": 2,
        "num_files": 3,
    }
    assert runs.run(operator) == found
    with pytest.raises(AirflowSkipException, match="nothing is new"):
        runs.run(operator)
    grow(table, 3)
    grow(table, 4)
    later = runs.run(operator)
    assert (later["start_version"], later["end_version"], later["num_files"]) == (3, 4, 2)


def test_a_retry_takes_the_versions_of_the_first_try(table: str) -> None:
    runs, operator = Runs(), feed(table)
    first = runs.attempt(operator)
    grow(table, 3)
    assert runs.attempt(operator) == first
    assert runs.run(operator)["end_version"] == 3


def test_the_first_and_the_last_version_can_be_given(table: str) -> None:
    runs = Runs()
    found = runs.run(feed(table, start_version="1", end_version="1"))
    assert (found["start_version"], found["end_version"]) == (1, 1)
    with pytest.raises(AirflowSkipException):
        runs.run(feed(table, end_version=1))
    # What was processed is left behind, whatever the start; and versions can be left out.
    assert runs.run(feed(table, start_version=0))["start_version"] == 2
    with pytest.raises(AirflowSkipException):
        runs.run(feed(table, start_version=9))
    with pytest.raises(ValueError, match="start_version: expected a version"):
        runs.run(feed(table, start_version="soon"))


def test_runs_about_another_table_do_not_count(table: str, tmp_path: Path) -> None:
    runs, other = Runs(), str(tmp_path / "other")
    runs.run(feed(table))
    grow(other, 0)
    assert runs.run(feed(other))["start_version"] == 0
    shutil.rmtree(other)
    grow(other, 0)
    assert runs.run(feed(other))["start_version"] == 0


def test_the_changes_are_appended_by_spark(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submissions, target = Submissions(monkeypatch), str(tmp_path / "changes")
    found = Runs().run(feed(table, target_uri=target, target_format="parquet"))
    assert submissions.taken == [
        {"table_uri": table, "start": 0, "end": 2, "target_uri": target, "format": "parquet"}
    ]
    assert found == {
        "table_uri": table,
        "table_id": str(Peer(table).metadata().id),
        "version": 2,
        "start_version": 0,
        "end_version": 2,
        "num_files": 3,
        "target_uri": target,
        "target_version": 5,
        "appended": True,
        "num_changes": 3,
        "counts": COUNTS,
    }
    assert json.loads(json.dumps(found)) == found


def test_a_target_that_does_not_tell_its_counts(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Submissions(monkeypatch).answer = {"appended": False, "counts": None}
    found = Runs().run(feed(table, target_uri=str(tmp_path / "changes")))
    assert (found["counts"], found["num_changes"], found["appended"]) == (None, None, False)


def test_versions_that_changed_no_row_need_no_spark(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submissions, runs = Submissions(monkeypatch), Runs()
    operator = feed(table, target_uri=str(tmp_path / "changes"))
    runs.run(operator)
    Peer(table).optimize.compact()
    found = runs.run(operator)
    assert (found["start_version"], found["num_changes"], found["appended"]) == (3, 0, False)
    assert len(submissions.taken) == 1
    with pytest.raises(AirflowSkipException):
        runs.run(operator)


def test_the_target_says_how_far_it_has_come(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the XComs of earlier runs have been deleted."""
    submissions, target = Submissions(monkeypatch), tmp_path / "changes"
    folder = target / f"change_versions={0:020}-{1:020}"
    folder.mkdir(parents=True)
    marker = {"table_id": str(Peer(table).metadata().id), "counts": COUNTS}
    (folder / "_airflow_delta_changes.json").write_text(json.dumps(marker))
    Runs().run(feed(table, target_uri=str(target), target_format="parquet"))
    assert [taken["start"] for taken in submissions.taken] == [2]


def test_what_a_managed_table_lacks_is_backfilled_and_its_owner_told(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submissions, books = Submissions(monkeypatch), tmp_path / "owner.db"
    use_owner(monkeypatch, books)
    newest = commit(Path(table), hand_over(Path(table), books), 2)
    assert in_log(Path(table)) < newest
    Runs().run(feed(table, target_uri=str(tmp_path / "changes")))
    assert submissions.taken[0]["end"] == submissions.in_log == newest
    assert submissions.environment["commit_owner_url"] == f"sqlite:///{books}"


def test_what_must_not_be_appended_to_fails_for_good(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submissions = Submissions(monkeypatch)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(AirflowFailException, match=r"holds notes\.txt"):
        Runs().run(feed(table, target_uri=str(tmp_path / "mine"), target_format="parquet"))
    with pytest.raises(AirflowFailException, match="target_format: unknown format 'csv'"):
        Runs().run(feed(table, target_uri=str(tmp_path / "c"), target_format="csv"))
    assert submissions.taken == []


def test_changes_that_were_not_recorded_are_told_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submissions = Submissions(monkeypatch)
    write_deltalake(str(tmp_path / "t"), pa.table({"id": [1]}))
    with pytest.raises(ChangesNotAvailableError, match="in version 0"):
        Runs().run(feed(str(tmp_path / "t"), target_uri=str(tmp_path / "c")))
    assert submissions.taken == []


def test_a_kill_ends_the_job(table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submissions, killed = Submissions(monkeypatch), []
    operator = feed(table, target_uri=str(tmp_path / "changes"))
    operator.on_kill()
    monkeypatch.setattr(submissions, "on_kill", lambda: killed.append(1), raising=False)
    Runs().run(operator)
    operator.on_kill()
    assert killed == [1]


def test_the_example_dag_over_three_runs(
    airflow_database: Path, table: str, tmp_path: Path
) -> None:
    target = tmp_path / "changes"
    given = {"table_uri": table, "target_uri": str(target)}
    state, returned = run_dag(load_dag(), **given)
    assert state == "success"
    assert returned["change_feed"]["counts"] == {**COUNTS, "insert": 3, "delete": 0}
    Peer(table).delete("id = 1")
    state, returned = run_dag(load_dag(), **given)
    assert state == "success"
    found = returned["change_feed"]
    assert (found["start_version"], found["end_version"], found["target_version"]) == (3, 3, 1)
    changes = {(r["id"], r["_change_type"], r["_commit_version"]) for r in rows_by_peer(target)}
    assert changes == {(n, "insert", n) for n in range(3)} | {(1, "delete", 3)}
    state, returned = run_dag(load_dag(), **given)
    assert (state, returned["change_feed"]) == ("success", None)
    assert Peer(str(target)).version() == 1


def test_the_example_dag_without_a_target(airflow_database: Path, table: str) -> None:
    """Then only the XComs of earlier runs tell what was processed."""
    for start in (0, 3, 4):
        _, returned = run_dag(load_dag(), table_uri=table)
        assert returned["change_feed"]["start_version"] == start
        grow(table, start + 3)


def load_dag() -> Any:
    """The DAG, anew for each run: a run in this process leaves its params behind in the object."""
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag()
    assert bag.import_errors == {}
    return bag.dags["delta_change_feed"]


@pytest.mark.parametrize(("number", "task"), [(1, "feed"), (2, "total")])
def test_the_dags_of_the_guide_can_be_loaded(number: int, task: str) -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "read-changes.md"
    code = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)[number]
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, str(page), "exec"), names)
    (operator,) = (found for found in names.values() if isinstance(found, ChangeFeedOperator))
    assert operator.dag.task_ids[-1] == task
