"""What the asset events of tasks that commit say."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Asset, AssetAlias, BaseOperator
from airflow.sdk.exceptions import ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse
from airflow.sdk.execution_time.context import OutletEventAccessor, OutletEventAccessors

from airflow_delta.assets import delta_asset
from airflow_delta.engine import DeltaTable
from airflow_delta.hooks.failures import ArgumentError
from airflow_delta.operators.commit_ownership import ConvertToFileSystemOperator
from airflow_delta.operators.restore import RestoreOperator
from airflow_delta.operators.row_tracking import EnableRowTrackingOperator
from airflow_delta.operators.table_commits import row_commit, target_commit, with_table_commit
from airflow_delta.operators.time_travel_snapshot import TimeTravelSnapshotOperator
from airflow_delta.provider import get_provider_info
from airflow_delta.version_compat import AirflowFailException, AirflowRuntimeError
from tests.airflow.dag_runs import new_dag, run_of
from tests.airflow.run_context import context_of


def executed(operator: Any) -> OutletEventAccessors:
    """The events that a task has filled in."""
    events = OutletEventAccessors()
    operator.execute({**context_of(), "outlet_events": events})
    return events


def test_a_commit_is_in_the_event_of_the_table(sales_copy: Path) -> None:
    table, other = delta_asset(f"file://{sales_copy}/", name="sales"), Asset("other")
    events = executed(
        RestoreOperator(
            task_id="restore", table_uri=str(sales_copy), version=1, outlets=[other, table]
        )
    )
    extra = events[table].extra
    metrics = extra.pop("metrics")
    assert extra == {
        "table_uri": f"file://{sales_copy}",
        "table_id": DeltaTable(sales_copy).snapshot().metadata.id,
        "after_version": 3,
        "version": 4,
        "operation": "RESTORE",
        "committed": True,
        "repeated": False,
    }
    assert metrics.keys() == {
        "files_restored",
        "files_removed",
        "bytes_restored",
        "bytes_removed",
    }
    assert events[other].extra == {}


def test_a_retry_reports_the_commit_of_the_try_before(sales_copy: Path) -> None:
    operator = RestoreOperator(
        task_id="restore",
        table_uri=str(sales_copy),
        version=1,
        outlets=[delta_asset(str(sales_copy))],
    )
    for repeated in (False, True):
        extra = executed(operator)[operator.outlets[0]].extra
        assert (extra["version"], extra["committed"], extra["repeated"]) == (4, True, repeated)


@pytest.mark.parametrize(
    "make",
    [
        lambda **given: RestoreOperator(version=1, dry_run=True, **given),
        lambda **given: EnableRowTrackingOperator(dry_run=True, **given),
        ConvertToFileSystemOperator,
    ],
)
def test_a_task_that_commits_nothing_says_so(sales_copy: Path, make: Any) -> None:
    table, alias = delta_asset(str(sales_copy)), AssetAlias("tables")
    events = executed(make(task_id="task", table_uri=str(sales_copy), outlets=[table, alias]))
    extra = events[table].extra
    assert (extra["after_version"], extra["version"], extra["committed"]) == (3, 3, False)
    # Nothing is new, so there is no event of an alias at all.
    assert events[alias].asset_alias_events == []


def test_an_alias_gets_an_event_of_the_asset_that_airflow_has(
    sales_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: dict[str, Asset] = {}
    answers = [ErrorType.ASSET_NOT_FOUND, ErrorType.API_SERVER_ERROR]

    def find(name: str | None = None, uri: str | None = None) -> Asset:
        if uri not in known:
            raise AirflowRuntimeError(ErrorResponse(error=answers.pop()))
        return known[uri]

    for kind in (OutletEventAccessors, OutletEventAccessor):
        monkeypatch.setattr(kind, "_get_asset_from_db", staticmethod(find))
    alias, uri = AssetAlias("tables"), f"file://{sales_copy}"
    table_id = DeltaTable(sales_copy).snapshot().metadata.id
    operator = RestoreOperator(
        task_id="restore", table_uri=str(sales_copy), version=1, outlets=[alias]
    )
    # An outage doesn't show that Airflow has no asset.
    with pytest.raises(AirflowRuntimeError, match="API_SERVER_ERROR"):
        executed(operator)
    for name in (uri, "sales"):
        (event,) = executed(operator)[alias].asset_alias_events
        assert (event.dest_asset_key.name, event.dest_asset_key.uri) == (name, uri)
        assert (event.extra["version"], event.extra["table_id"]) == (4, table_id)
        known[uri] = delta_asset(uri, name="sales")


class _Fake(BaseOperator):
    """An operator of rows without Spark."""

    def __init__(self, *, result: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.result = result

    @with_table_commit(row_commit("MERGE"))
    def execute(self, context: Any) -> dict[str, Any]:
        return self.result


def test_the_commit_of_a_row_change_has_its_metrics_and_the_dry_run_none() -> None:
    asset = delta_asset("s3://lake/t")
    commit = {
        "table_uri": "s3a://lake/t/",
        "table_id": "5f3c",
        "version": 7,
        "committed": True,
        "repeated": False,
        "metrics": {"numTargetRowsInserted": 3},
    }
    extra = executed(_Fake(task_id="merge", result=commit, outlets=[asset]))[asset].extra
    assert (extra["version"], extra["operation"], extra["table_id"]) == (7, "MERGE", "5f3c")
    assert extra["metrics"] == {"numTargetRowsInserted": 3}
    plan = {"table_uri": "s3://lake/t", "version": 6, "num_files": 2}
    extra = executed(_Fake(task_id="plan", result=plan, outlets=[asset]))[asset].extra
    assert (extra["version"], extra["committed"], extra["metrics"]) == (6, False, {})
    assert "table_id" not in extra


def test_the_commit_to_a_target_is_one_of_the_target() -> None:
    copied = {
        "table_uri": "/t",
        "version": 3,
        "target_uri": "/copy",
        "target_version": 0,
        "n": None,
    }
    commit = target_commit("CLONE", metrics=("n",))(copied)
    assert commit is not None
    assert (commit.table_uri, commit.version, commit.committed) == ("/copy", 0, True)
    appended = {**copied, "appended": False, "n": 4}
    commit = target_commit("WRITE", metrics=("n",))(appended)
    assert commit is not None
    assert (commit.repeated, commit.metrics) == (True, {"n": 4})
    assert target_commit("CLONE")({**copied, "target_version": None}) is None


def test_airflow_keeps_the_event_of_a_run(airflow_database: Path, sales_copy: Path) -> None:
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session
    from sqlalchemy import select

    asset = delta_asset(str(sales_copy))
    with new_dag() as dag:
        RestoreOperator(task_id="restore", table_uri=str(sales_copy), version=1, outlets=[asset])
    assert run_of(dag).state == "success"
    with create_session() as session:
        events = session.scalars(
            select(AssetEvent).where(AssetEvent.source_dag_id == dag.dag_id)
        ).all()
        (extra,) = [event.extra for event in events]
    assert (extra["version"], extra["committed"]) == (4, True)


WITHOUT_COMMITS = {
    "BackfillOperator",
    "CheckpointOperator",
    "LogCompactionOperator",
    "MetadataCleanupOperator",
    "TableProfileOperator",
    "VacuumOperator",
}


def test_every_operator_that_commits_records_it() -> None:
    (declared,) = get_provider_info()["operators"]
    modules = map(importlib.import_module, declared["python-modules"])
    kinds = [
        getattr(module, name)
        for module in modules
        for name in module.__all__
        if name.endswith("Operator")
    ]
    recording = set()
    for kind in kinds:
        execute = kind.execute
        while execute is not None:
            if execute.__code__.co_name == "recorded":
                recording.add(kind.__name__)
            execute = getattr(execute, "__wrapped__", None)
    assert {kind.__name__ for kind in kinds} - recording == WITHOUT_COMMITS


def test_an_alias_of_a_table_that_cannot_be_an_asset_fails_before_the_commit(
    tmp_path: Path,
) -> None:
    outlets = [AssetAlias("tables")]
    operator = RestoreOperator(
        task_id="restore", table_uri="memory://tables/a?b", version=0, outlets=outlets
    )
    with pytest.raises(ArgumentError, match="'\\?' or a '#'"):
        executed(operator)
    pin = TimeTravelSnapshotOperator(
        task_id="pin", table_uri="memory://tables/a?b", outlets=outlets
    )
    # Without a target nothing is committed.
    with pytest.raises(AirflowFailException, match="no Delta table"):
        executed(pin)
