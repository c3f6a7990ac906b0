"""The versions in the asset events of tasks that commit several times, or in several tries."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk.execution_time.context import OutletEventAccessors

from airflow_delta.assets import delta_asset
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import DeltaWarning, InvalidTableError, StorageError
from airflow_delta.engine.maintenance.optimize import settings
from airflow_delta.engine.transaction.transaction import OptimisticTransaction
from airflow_delta.hooks.delta import DeltaHook, reading
from airflow_delta.hooks.spark.job import SparkJobHook
from airflow_delta.operators.commit_ownership import (
    ConvertToFileSystemOperator,
    ConvertToManagedCommitOperator,
)
from airflow_delta.operators.convert import ConvertToDeltaOperator
from airflow_delta.operators.drop_feature import DropFeatureOperator
from airflow_delta.operators.optimize import OptimizeOperator
from airflow_delta.operators.restore import RestoreOperator
from airflow_delta.operators.row_rules import AddConstraintOperator
from airflow_delta.operators.row_tracking import EnableRowTrackingOperator
from airflow_delta.operators.time_travel_snapshot import TimeTravelSnapshotOperator
from airflow_delta.operators.write import WriteOperator
from airflow_delta.task_runs import record_task_run, task_run
from tests.airflow.managed_tables import hand_over, use_owner
from tests.airflow.run_context import context_of
from tests.airflow.test_drop_feature import COUNTED, VECTOR
from tests.log_builder import add, metadata, remove, write_commit

Make = Callable[..., Any]


class Killed(BaseException):
    """The worker was killed."""


class Table:
    """A table, and the tries of one task on it."""

    def __init__(self, path: Path, make: Make) -> None:
        self.path = path
        self.asset = delta_asset(str(path))
        self._make = make
        self._tries = 0
        self.task: Any = None
        self.result: Any = None

    def next_try(self, **context: Any) -> dict[str, Any]:
        """What the event says after one more try."""
        self._tries += 1
        table = {"table_uri": str(self.path), "outlets": [self.asset]}
        self.task = self._make(task_id="task", **table)
        events = OutletEventAccessors()
        given = {**context_of(try_number=self._tries), "outlet_events": events, **context}
        self.result = self.task.execute(given)
        return dict(events[self.asset].extra)

    def interrupt(self, monkeypatch: pytest.MonkeyPatch, *, after: int) -> None:
        """Make a try that is killed after some commits."""
        done = 0
        commit = OptimisticTransaction.commit

        def killing(self: Any, **named: Any) -> Any:
            nonlocal done
            found = commit(self, **named)
            done += 1
            if done == after:
                raise Killed
            return found

        with monkeypatch.context() as patch:
            patch.setattr(OptimisticTransaction, "commit", killing)
            with pytest.raises(Killed):
                self.next_try()

    @property
    def newest(self) -> int:
        return DeltaTable(str(self.path)).latest_version()

    def commit_of_another(self) -> None:
        DeltaTable(str(self.path)).alter.set_properties({"number": str(self.newest)})

    @property
    def outputs(self) -> list[int | None]:
        """The versions that the task reports as written to OpenLineage."""
        return [found.version for found in self.task.datasets(self.result).outputs]


def facts(extra: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(extra[name] for name in ("after_version", "version", "committed", "repeated"))


def drop_row_tracking(**given: Any) -> DropFeatureOperator:
    return DropFeatureOperator(feature="rowTracking", spark_conn_id=None, **given)


@pytest.fixture
def small_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an optimization commit each of its files alone."""
    monkeypatch.setattr(settings, "_COMMIT_BYTES", 1)


@pytest.fixture(params=["row tracking", "drop", "optimize"])
def several(request: pytest.FixtureRequest, days: Path, small_rounds: None) -> Table:
    """A table, and a task that makes several commits."""
    if request.param == "drop":
        DeltaTable(str(days)).enable_row_tracking()
        return Table(days, drop_row_tracking)
    return Table(
        days, EnableRowTrackingOperator if request.param == "row tracking" else OptimizeOperator
    )


def test_the_event_has_all_commits_of_the_task(several: Table) -> None:
    before = several.newest
    extra = several.next_try()
    assert several.newest >= before + 2
    assert facts(extra) == (before, several.newest, True, False)
    assert several.result["first_version"] == before + 1
    assert several.result["last_version"] == several.newest


def test_a_retry_reports_the_commits_of_a_try_that_died_at_its_end(several: Table) -> None:
    before = several.newest
    several.next_try()
    last = several.newest
    several.commit_of_another()
    extra = several.next_try()
    assert several.newest == last + 1
    assert several.result["first_version"] is None
    assert facts(extra) == (before, last, True, True)
    assert several.outputs == [last]


def test_a_retry_that_continues_reports_the_earlier_commits_too(
    several: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = several.newest
    several.interrupt(monkeypatch, after=1)
    several.commit_of_another()
    extra = several.next_try()
    assert several.result["first_version"] >= before + 3
    assert facts(extra) == (before, several.newest, True, False)
    assert several.outputs == [several.newest]


def test_commits_of_other_tasks_runs_and_indexes_are_not_those_of_the_task(days: Path) -> None:
    table = Table(days, EnableRowTrackingOperator)
    other = context_of("other"), context_of(run=2), context_of()
    other[2]["ti"].map_index = 3
    for context in other:
        with record_task_run(context):
            table.commit_of_another()
    table.next_try()
    assert facts(table.next_try()) == (5, 8, True, True)


def test_the_first_try_searches_no_commits_of_earlier_ones(
    days: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(DeltaHook, "commits_of_task", fail)
    assert facts(Table(days, EnableRowTrackingOperator).next_try()) == (2, 5, True, False)


def test_commits_from_before_the_run_are_not_searched(days: Path) -> None:
    table = Table(days, EnableRowTrackingOperator)
    table.next_try()
    late = datetime.now(timezone.utc) + timedelta(days=1)
    run = {"dag_run": type("Run", (), {"run_after": late})}
    assert facts(table.next_try(**run)) == (5, 5, False, False)


def test_an_outage_during_the_search_is_a_temporary_failure(
    days: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(days, EnableRowTrackingOperator)
    table.next_try()

    def fail(*_: Any, **__: Any) -> Any:
        raise StorageError("the store is down")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaHook, "commits_of_task", fail)
        with pytest.raises(StorageError):
            table.next_try()
        # Nobody needs the versions: there is no event.
        table.asset = delta_asset("s3://lake/other")
        table._make = lambda outlets, **given: EnableRowTrackingOperator(**given)
        assert table.next_try() == {}
    assert table.result["enabled"]


def test_an_outage_during_the_search_for_lineage_fails_no_task(
    days: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise StorageError("the store is down")

    monkeypatch.setattr(DeltaHook, "commits_of_task", fail)
    for module in ("lineage.task", "table_commits"):
        name = f"airflow_delta.operators.{module}.is_openlineage_enabled"
        monkeypatch.setattr(name, lambda: True)
    table = Table(days, lambda outlets, **given: EnableRowTrackingOperator(**given))
    table.next_try()
    assert table.next_try() == {}
    assert table.outputs == []


def test_a_search_has_a_limit(
    days: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Table(days, EnableRowTrackingOperator)
    table.next_try()
    monkeypatch.setattr(reading, "_MOST_COMMITS", 2)
    run = task_run(context_of()["ti"])
    assert DeltaHook().commits_of_task(str(days), run, since_ms=None) == {4: 1, 5: 1}
    assert "only the commits 4 to 5 were searched" in capsys.readouterr().out


def test_a_search_ends_at_a_damaged_commit(days: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = Table(days, EnableRowTrackingOperator)
    table.next_try()
    DeltaTable(str(days)).checkpoint()
    (days / "_delta_log" / f"{table.newest - 1:020}.json").write_text("")
    run = task_run(context_of()["ti"])
    found = DeltaHook().commits_of_task(str(days), run, since_ms=None)
    assert found == {table.newest: 1}
    assert f"{table.newest - 1:020}.json" in caplog.text


def test_a_search_fails_if_the_properties_of_the_table_contradict_each_other(days: Path) -> None:
    table = Table(days, EnableRowTrackingOperator)
    table.next_try()
    enablement = {
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": "1",
    }
    log = days / "_delta_log"
    lines = (log / f"{0:020}.json").read_text().splitlines()
    action = next(json.loads(line) for line in lines if "metaData" in line)
    action["metaData"]["configuration"].update(enablement)
    protocol = {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": ["rowTracking", "domainMetadata", "inCommitTimestamp"],
    }
    content = "\n".join(map(json.dumps, ({"protocol": protocol}, action)))
    (log / f"{table.newest + 1:020}.json").write_text(content)
    run = task_run(context_of()["ti"])
    with pytest.raises(InvalidTableError, match="inCommitTimestampEnablement"):
        DeltaHook().commits_of_task(str(days), run, since_ms=None)


def test_the_retry_of_a_conversion_to_a_managed_table(
    sales_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_owner(monkeypatch, tmp_path / "owner.db")
    table = Table(sales_copy, ConvertToManagedCommitOperator)
    for repeated in (False, True):
        assert facts(table.next_try()) == (3, 4, True, repeated)
        assert table.outputs == [4]
    # The owner isn't needed to find that.
    monkeypatch.delenv("AIRFLOW_CONN_DELTA_COMMIT_OWNER_DEFAULT")
    with pytest.warns(DeltaWarning, match="doesn't know its database"):
        assert facts(table.next_try()) == (3, 4, True, True)


def test_the_retry_of_a_conversion_to_the_file_system(
    sales_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_owner(monkeypatch, tmp_path / "owner.db")
    hand_over(sales_copy, tmp_path / "owner.db")
    table = Table(sales_copy, ConvertToFileSystemOperator)
    for repeated in (False, True):
        assert facts(table.next_try()) == (4, 5, True, repeated)
        table.commit_of_another()
    assert table.outputs == [5]


def test_the_files_that_spark_rewrites_for_a_drop_are_in_the_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark reports no versions to the engine, and its commits aren't counted."""
    path = tmp_path / "vectors"
    names = ["deletionVectors"]
    lists = {"readerFeatures": names, "writerFeatures": names}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **lists}
    write_commit(path, 0, {"protocol": protocol}, metadata())
    write_commit(path, 1, add("a", deletionVector=VECTOR, stats=COUNTED))

    def rewrite(self: Any, name: str, parameters: Any, **_: Any) -> dict[str, Any]:
        """Commit twice."""
        anew = {"dataChange": False}
        old, new = remove("a", deletionVector=VECTOR, **anew), add("c", stats=COUNTED, **anew)
        write_commit(path, 2, old, new)
        write_commit(path, 3, {"commitInfo": {"operation": "REORG"}})
        return {"commits": 2}

    monkeypatch.setattr(SparkJobHook, "run", rewrite)
    table = Table(
        path,
        lambda **given: DropFeatureOperator(
            feature="deletionVectors", truncate_history=True, **given
        ),
    )
    extra = table.next_try()
    assert table.result["status"] == "waiting"
    assert facts(extra) == (1, table.newest, True, False)
    assert table.newest - 3 == table.result["num_commits"]


def spark_stand_in(monkeypatch: pytest.MonkeyPatch, *, compacts: bool = False) -> None:
    """Commit as a Spark job would, with the task's transaction identifier."""

    def run(self: Any, name: str, parameters: Any, **_: Any) -> dict[str, Any]:
        uri = parameters.get("target_uri") or parameters["table_uri"]
        table = DeltaTable(uri)
        transaction = table.transaction("WRITE")
        transaction.set_transaction(parameters["app_id"], parameters["app_version"])
        version = transaction.commit().version
        done = {"table_uri": uri, "version": version, "committed": True, "repeated": False}
        if not compacts:
            return done
        compacted = table.alter.set_properties({"compacted": str(version)}).version
        report = {"num_removed_files": 5, "num_added_files": 1, "error": None}
        return {**done, "compaction": {"version": compacted, **report}}

    monkeypatch.setattr(SparkJobHook, "run", run)


def test_the_compaction_after_a_write_is_in_its_event(
    days: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark_stand_in(monkeypatch, compacts=True)
    table = Table(days, lambda **given: WriteOperator(source_uri="/landing", **given))
    assert facts(table.next_try()) == (2, 4, True, False)
    table.commit_of_another()
    assert facts(table.next_try()) == (2, 4, True, True)
    assert (table.result["version"], table.outputs) == (3, [3])


def test_the_retry_of_a_copy_repeats_it(
    sales: Path, days: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_delta.hooks.snapshot_copy import SnapshotCopy

    found = {"target_uri": str(days), "target_version": 3, "expires_at": None}
    found |= {"target_num_files": 1, "target_num_rows": 1}

    def submit(self: Any, job: Any) -> dict[str, Any]:
        DeltaTable(str(days)).alter.set_properties({"copy": "1"})
        return found

    earlier = iter([None, found])
    monkeypatch.setattr(SnapshotCopy, "earlier", lambda self: next(earlier))
    monkeypatch.setattr(SnapshotCopy, "submit", submit)
    table = Table(
        days,
        lambda table_uri, **given: TimeTravelSnapshotOperator(
            table_uri=str(sales), target_uri=table_uri, **given
        ),
    )
    for repeated in (False, True):
        assert facts(table.next_try()) == (2, 3, True, repeated)


def no_rule_is_broken(**given: Any) -> AddConstraintOperator:
    return AddConstraintOperator(name="positive", expression="id >= 0", **given)


@pytest.mark.parametrize(
    "make", [lambda **given: RestoreOperator(version=1, **given), no_rule_is_broken]
)
def test_a_retry_that_finds_its_commit_by_its_identifier_searches_no_others(
    days: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise AssertionError

    spark_stand_in(monkeypatch)
    monkeypatch.setattr(DeltaHook, "commits_of_task", fail)
    table = Table(days, make)
    for repeated in (False, True):
        assert facts(table.next_try()) == (2, 3, True, repeated)
        assert table.outputs == [3]
        table.commit_of_another()


def test_the_retry_of_a_conversion_of_parquet_files(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": [1]}), tmp_path / "part.parquet")
    table = Table(tmp_path, ConvertToDeltaOperator)
    for repeated in (False, True):
        assert facts(table.next_try()) == (-1, 0, True, repeated)
        table.commit_of_another()
