"""The change feed operator: which versions it takes, what Spark is given, and its DAG, run whole."""

from __future__ import annotations

import json
import os
import re
import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk import DAG
from deltalake import DeltaTable as Peer
from deltalake import write_deltalake

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import ChangesNotAvailableError
from airflow_delta.operators import change_feed
from airflow_delta.operators.change_feed import ChangeFeedOperator
from airflow_delta.operators.feed_progress import PROGRESS, TaskProgress
from airflow_delta.version_compat import AirflowFailException, AirflowSkipException, Asset
from tests.airflow.failures import fails_for_good
from tests.airflow.feed_runs import (
    COUNTS,
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
from tests.airflow.maintenance import rows_by_peer, run_dag
from tests.airflow.managed_tables import commit, hand_over, in_log, use_owner
from tests.airflow.task_state import AssetStates
from tests.log_builder import add, commit_path, remove, write_commit


@pytest.fixture
def table(tmp_path: Path) -> str:
    return three_versions(tmp_path)


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
    later = runs.attempt(operator, 2)
    assert (later["start_version"], later["end_version"]) == (3, 3)
    assert runs.attempt(operator) == first


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


def test_a_run_goes_on_after_the_last_one_executed_whatever_their_dates(table: str) -> None:
    runs, operator = Runs(), feed(table)
    assert versions(runs.attempt(operator, 3)) == (0, 2)
    grow(table, 3)
    assert versions(runs.attempt(operator, 1)) == (3, 3)
    grow(table, 4)
    assert versions(runs.attempt(operator, 4)) == (4, 4)
    # A clear of the first takes nothing back.
    assert versions(runs.attempt(operator, 3)) == (0, 2)
    with pytest.raises(AirflowSkipException, match="nothing is new"):
        runs.attempt(operator, 5)


def test_a_dag_with_a_dot_in_its_id_goes_on_after_an_upgrade(table: str) -> None:
    runs, operator = Runs(), feed(table)
    store = runs.assets[PROGRESS]
    dotted = {"ti": SimpleNamespace(dag_id="a.b", task_id="c", run_id="r", map_index=-1)}
    other = {"ti": SimpleNamespace(dag_id="a", task_id="b.c", run_id="r", map_index=-1)}
    assert versions(runs.attempt(operator, 1, **other)) == (0, 2)
    (former,) = store.values
    # Both tasks have the name a.b.c, by which earlier releases stored the progress, without the task.
    entry = store.get(former)
    del entry["task"]
    store.set(former, entry)
    grow(table, 3)
    assert versions(runs.attempt(operator, 2, **dotted)) == (3, 3)
    assert store.get(former) == entry
    grow(table, 4)
    assert versions(runs.attempt(operator, 3, **other)) == (3, 4)
    assert versions(runs.attempt(operator, 4, **dotted)) == (4, 4)


def test_a_task_does_not_go_on_from_the_progress_of_another_with_the_same_name(table: str) -> None:
    runs, operator = Runs(), feed(table)
    other = {"ti": SimpleNamespace(dag_id="a", task_id="b.c", run_id="r", map_index=-1)}
    dotted = {"ti": SimpleNamespace(dag_id="a.b", task_id="c", run_id="r", map_index=-1)}
    assert versions(runs.attempt(operator, 1, **other)) == (0, 2)
    assert versions(runs.attempt(operator, 2, **dotted)) == (0, 2)


def test_a_table_put_before_others_does_not_shift_their_progress(
    table: str, tmp_path: Path
) -> None:
    runs, other = Runs(), str(tmp_path / "other")
    grow(other, 0)
    assert versions(runs.run(feed(table), 0)) == (0, 2)
    assert versions(runs.run(feed(other), 0)) == (0, 0)
    with pytest.raises(AirflowSkipException):
        runs.run(feed(f"file://{table}/"), 1)


def test_versions_of_a_failed_run_are_told_by_the_next_and_no_more(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, operator = Runs(), feed(table)
    with monkeypatch.context() as patch:
        patch.setattr(TaskProgress, "advance", broken)
        with pytest.raises(OSError, match="the store fails"):
            runs.attempt(operator, 1)
    grow(table, 3)
    assert versions(runs.attempt(operator, 2)) == (0, 3)
    with pytest.raises(AirflowSkipException, match="another run has processed the versions 0 to 2"):
        runs.attempt(operator, 1)


def test_a_run_that_failed_after_it_had_told_its_versions_tells_them_again(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where Airflow couldn't keep what was returned."""
    runs, operator = Runs(), feed(table)
    with monkeypatch.context() as patch:
        patch.setattr(change_feed._TakenRange, "finish", broken)
        with pytest.raises(OSError, match="the store fails"):
            runs.attempt(operator)
    assert versions(runs.attempt(operator)) == (0, 2)


def test_a_range_that_cannot_be_told_is_not_kept(tmp_path: Path) -> None:
    runs, uri = Runs(), str(tmp_path / "t")
    write_deltalake(uri, pa.table({"id": [0]}))
    Peer(uri).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    grow(uri, 1)
    with fails_for_good(ChangesNotAvailableError, match="in version 0"):
        runs.attempt(feed(uri))
    assert versions(runs.attempt(feed(uri, start_version=1))) == (1, 2)
    # Nor does a run keep to what it has done where something else is asked for.
    grow(uri, 3)
    assert versions(runs.attempt(feed(uri, start_version=3))) == (3, 3)


def test_versions_go_on_where_a_table_is_replaced(tmp_path: Path) -> None:
    """By Delta Spark's ``REPLACE TABLE``: the metadata get another id."""
    runs, path = Runs(), tmp_path / "t"
    write_commit(path, 0, *begun("first"), add("a"))
    assert versions(runs.run(feed(str(path)))) == (0, 0)
    write_commit(path, 1, begun("another")[1], remove("a"), add("b"))
    found = runs.run(feed(str(path)))
    assert (versions(found), found["table_id"]) == ((1, 1), "another")
    # Version 0 has the id that it had, and a clear of its run tells it again.
    assert versions(runs.attempt(feed(str(path)), 1)) == (0, 0)


def test_a_table_that_may_be_another_needs_a_start(tmp_path: Path) -> None:
    runs, path = Runs(), tmp_path / "t"
    write_commit(path, 0, *begun("first"), add("a"))
    runs.run(feed(str(path)))
    write_commit(path, 1, begun("another")[1], add("b"))
    DeltaTable(str(path)).checkpoint()
    commit_path(path, 0).unlink()
    with pytest.raises(AirflowFailException, match="give a start_version, 1 to go on"):
        runs.run(feed(str(path)))
    assert versions(runs.run(feed(str(path), start_version=1))) == (1, 1)


def test_a_target_that_was_deleted_is_begun_anew(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submissions, runs, target = Submissions(monkeypatch), Runs(), tmp_path / "changes"
    arguments = {"target_uri": str(target), "target_format": "parquet"}
    for _ in range(2):
        runs.run(feed(table, **arguments))
        made_range(target, Peer(table).metadata().id)
        with pytest.raises(AirflowSkipException):
            runs.run(feed(table, **arguments))
        shutil.rmtree(target)
    assert [(taken["start"], taken["end"]) for taken in submissions.taken] == [(0, 2), (0, 2)]


def test_a_task_needs_the_inlet_that_leads_to_its_progress(table: str) -> None:
    runs, ours = Runs(), Asset(name="ours")
    assert feed(table, inlets=ours).inlets == [ours, PROGRESS]
    assert feed(table, inlets=[PROGRESS]).inlets == [PROGRESS]
    mapped = ChangeFeedOperator.partial(task_id="feed", inlets=[ours]).expand(table_uri=[table])
    assert mapped.inlets == [ours, PROGRESS]
    runs.assets = AssetStates("ours")
    with pytest.raises(AirflowFailException, match="must be among the task's inlets"):
        runs.run(feed(table))


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
    submissions, runs, target = Submissions(monkeypatch), Runs(), tmp_path / "changes"
    operator = feed(table, target_uri=str(target), target_format="parquet")
    runs.run(operator)
    made_range(target, Peer(table).metadata().id)
    Peer(table).optimize.compact()
    found = runs.run(operator)
    assert (found["start_version"], found["num_changes"], found["appended"]) == (3, 0, False)
    assert len(submissions.taken) == 1
    with pytest.raises(AirflowSkipException):
        runs.run(operator)


def test_the_target_says_how_far_it_has_come(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a task of another name goes on with it."""
    submissions, target = Submissions(monkeypatch), tmp_path / "changes"
    made_range(target, Peer(table).metadata().id, 0, 1)
    Runs().run(feed(table, target_uri=str(target), target_format="parquet"))
    assert [taken["start"] for taken in submissions.taken] == [2]


def test_what_a_managed_table_lacks_is_backfilled_and_its_owner_told(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submissions, owner_file = Submissions(monkeypatch), tmp_path / "owner.db"
    use_owner(monkeypatch, owner_file)
    newest = commit(Path(table), hand_over(Path(table), owner_file), 2)
    assert in_log(Path(table)) < newest
    Runs().run(feed(table, target_uri=str(tmp_path / "changes")))
    assert submissions.taken[0]["end"] == submissions.in_log == newest
    assert submissions.environment["commit_owner_url"] == f"sqlite:///{owner_file}"


def test_what_must_not_be_appended_to_fails_for_good(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submissions = Submissions(monkeypatch)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(AirflowFailException, match=r"holds notes\.txt"):
        Runs().run(feed(table, target_uri=str(tmp_path / "mine"), target_format="parquet"))
    with pytest.raises(AirflowFailException, match="expected one of delta, parquet, found 'csv'"):
        Runs().run(feed(table, target_uri=str(tmp_path / "c"), target_format="csv"))
    assert submissions.taken == []


def test_a_target_with_other_columns_is_refused_before_spark_starts(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submissions, target = Submissions(monkeypatch), str(tmp_path / "changes")
    write_deltalake(target, pa.table({"other": pa.array([], pa.int64())}))
    with pytest.raises(AirflowFailException, match=r"aren't appended to .* columns \['"):
        Runs().run(feed(table, target_uri=target))
    assert submissions.taken == []


def test_changes_that_were_not_recorded_are_told_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submissions = Submissions(monkeypatch)
    write_deltalake(str(tmp_path / "t"), pa.table({"id": [1]}))
    with fails_for_good(ChangesNotAvailableError, match="in version 0"):
        Runs().run(feed(str(tmp_path / "t"), target_uri=str(tmp_path / "c")))
    assert submissions.taken == []


def test_a_kill_ends_the_job(table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submissions, killed = Submissions(monkeypatch), []
    operator = feed(table, target_uri=str(tmp_path / "changes"))
    monkeypatch.setattr(submissions, "on_kill", lambda: killed.append(1), raising=False)
    Runs().run(operator)
    operator.on_kill()
    assert killed == [1]


@pytest.mark.deep
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


@pytest.mark.deep
def test_the_example_dag_without_a_target(airflow_database: Path, table: str) -> None:
    """Then only the state that Airflow keeps tells what was processed."""
    now = datetime.now(timezone.utc)
    for start, date in ((0, now), (3, None), (4, now - timedelta(days=1)), (5, None)):
        run = load_dag().test(run_conf={"table_uri": table}, logical_date=date)
        (instance,) = (i for i in run.get_task_instances() if i.task_id == "change_feed")
        assert versions(instance.xcom_pull(task_ids="change_feed"))[0] == start
        grow(table, start + 3)


@pytest.mark.deep
def test_mapped_tasks_in_a_dag(airflow_database: Path, table: str, tmp_path: Path) -> None:
    other = str(tmp_path / "other")
    grow(other, 0)
    assert run_mapped([table]) == [(0, 2)]
    grow(table, 3)
    assert run_mapped([other, table]) == [(0, 0), (3, 3)]


def run_mapped(tables: list[str]) -> list[tuple[int, int]]:
    """Run a DAG with a task for each table: the versions that they tell."""
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session

    with DAG("mapped_change_feeds", schedule=None) as dag:
        ChangeFeedOperator.partial(task_id="feed").expand(table_uri=tables)
    with create_session() as session:
        if not session.get(DagBundleModel, "testing"):
            session.add(DagBundleModel(name="testing"))
    bag = DagBag(os.devnull)
    bag.bag_dag(dag)
    sync_bag_to_db(bag, "testing", None)
    run = dag.test()
    instances = sorted(run.get_task_instances(), key=lambda instance: instance.map_index)
    return [versions(i.xcom_pull(task_ids="feed", map_indexes=i.map_index)) for i in instances]


def load_dag() -> Any:
    """The DAG, anew for each run: a run in this process leaves its params behind in the object."""
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag()
    assert bag.import_errors == {}
    return bag.dags["delta_change_feed"]


@pytest.mark.parametrize(("number", "task"), [(1, "feed"), (3, "total")])
def test_the_dags_of_the_guide_can_be_loaded(number: int, task: str) -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "read-changes.md"
    code = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)[number]
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, str(page), "exec"), names)
    (operator,) = (found for found in names.values() if isinstance(found, ChangeFeedOperator))
    assert operator.dag.task_ids[-1] == task
    check_one_at_a_time(operator)


def test_the_example_dag_runs_one_at_a_time_and_takes_a_last_version(
    airflow_database: Path, table: str
) -> None:
    check_one_at_a_time(load_dag().task_dict["change_feed"])
    for given, found in ((1, (0, 1)), (None, (2, 2))):
        _, returned = run_dag(load_dag(), table_uri=table, end_version=given)
        assert versions(returned["change_feed"]) == found


def check_one_at_a_time(operator: Any) -> None:
    """Airflow counts the runs of each backfill apart, and the tries of a task in all runs together."""
    assert (operator.max_active_tis_per_dag, operator.dag.max_active_runs) == (1, 1)
