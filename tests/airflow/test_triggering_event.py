"""Pinning the version of the asset event that has started a run."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Asset, AssetAlias
from airflow.sdk.execution_time.context import TriggeringAssetEventsAccessor

import airflow_delta
from airflow_delta.assets import delta_asset
from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.failures import ArgumentError
from airflow_delta.operators.backfill import BackfillOperator
from airflow_delta.operators.change_feed import ChangeFeedOperator
from airflow_delta.operators.checkpoint import CheckpointOperator
from airflow_delta.operators.table_profile import TableProfileOperator
from airflow_delta.operators.template_values import TRIGGERING_EVENT
from airflow_delta.operators.time_travel_snapshot import TimeTravelSnapshotOperator
from airflow_delta.operators.triggering_event import EventRange, requested_version, triggering_range
from airflow_delta.sensors.backfill import BackfillSensor
from airflow_delta.version_compat import AirflowSkipException
from tests.airflow.dag_runs import new_dag, run_by_event, run_of
from tests.airflow.feed_runs import Runs, feed, grow, three_versions, versions
from tests.airflow.managed_tables import commit, hand_over, in_log, use_owner
from tests.airflow.run_context import context_of
from tests.airflow.task_state import TaskState

EXAMPLE = Path(airflow_delta.__file__).parent / "example_dags" / "delta_events.py"
TABLE = "s3://lake/sales"
SALES = delta_asset("s3a://lake/sales/", name="sales")
START = datetime(2026, 3, 1, tzinfo=timezone.utc)


def event(extra: Any, *, asset: Asset = SALES, at: int = 0, aliases: Iterable[str] = ()) -> Any:
    """An event as a run refers to it."""
    return SimpleNamespace(
        asset=asset,
        extra=extra,
        timestamp=START + timedelta(seconds=at),
        source_aliases=[SimpleNamespace(name=name) for name in aliases],
    )


def watched(**payload: Any) -> dict[str, Any]:
    """What Airflow makes of an event of a watcher."""
    return {"from_trigger": True, "payload": payload}


def started_by(*events: Any) -> Any:
    accessor = TriggeringAssetEventsAccessor.build(events)
    return {**context_of("pin"), "triggering_asset_events": accessor}


@pytest.mark.parametrize(
    ("extras", "found"),
    [
        ([{"version": 17}], EventRange(None, 17)),
        ([{"version": "17", "after_version": 16}], EventRange(16, 17)),
        ([watched(version=17, after_version=14)], EventRange(14, 17)),
        # Several, in whatever order Airflow lists them; one is repeated.
        (
            [watched(version=v, after_version=a) for a, v in ((5, 8), (3, 5), (3, 6))],
            EventRange(3, 8),
        ),
        # Nothing is new in the last.
        (
            [
                watched(version=5, after_version=4),
                {"version": 5, "after_version": 5, "committed": False},
            ],
            EventRange(4, 5),
        ),
        ([{"version": 5, "after_version": 5, "committed": False}], EventRange(None, 5)),
        # By hand in the user interface, and by a task of the user's own.
        ([{"from_rest_api": True}], None),
        ([None], None),
        ([watched()], None),
        ([{"from_trigger": True, "payload": "text"}], None),
        # The table of an event counts, whatever the asset is.
        ([{"version": 4, "table_uri": "s3://lake/other"}], None),
        # The table was created again: what came before is no version of it.
        (
            [
                watched(version=90, after_version=80),
                watched(version=2, after_version=-1, table_change="recreated"),
                watched(version=3, after_version=2),
            ],
            EventRange(-1, 3),
        ),
    ],
)
def test_the_events_of_a_run_make_one_range(extras: list[Any], found: EventRange | None) -> None:
    events = [event(extra, at=number) for number, extra in enumerate(extras)]
    assert triggering_range(started_by(*events), TABLE) == found


def test_the_asset_may_have_any_uri_if_its_events_name_the_table() -> None:
    asset = Asset("sales")
    found = event(watched(version=3, table_uri=TABLE), asset=asset)
    assert triggering_range(started_by(found), TABLE) == EventRange(None, 3)
    assert triggering_range(started_by(event({"version": 3}, asset=asset)), TABLE) is None


def test_an_event_through_an_alias_counts_once() -> None:
    found = event({"version": 3, "after_version": 2}, aliases=["tables"])
    context = started_by(found)
    assert AssetAlias("tables") in list(context["triggering_asset_events"])
    assert triggering_range(context, TABLE) == EventRange(2, 3)


def test_a_run_that_nothing_has_started_has_no_range() -> None:
    assert triggering_range(context_of(), TABLE) is None
    assert triggering_range(started_by(), TABLE) is None


def test_events_of_which_none_fits_are_a_warning(
    sales_copy: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The asset of a path has another spelling, for example because of a link."""
    table = str(sales_copy)
    others = [event({"version": 1}, asset=delta_asset(f"/other/{number}")) for number in range(7)]
    for context in (started_by(event({"version": 1})), started_by(*others), started_by()):
        assert requested_version(context, table, TRIGGERING_EVENT) is None
    one, many, none = caplog.records
    start = (
        f"none of the asset events that have started this run is of file://{table}: take the newest"
    )
    assert one.getMessage() == f"{start}; they are of s3://lake/sales"
    assert many.getMessage().endswith(
        "; they are of "
        + ", ".join(f"file:///other/{number}" for number in range(5))
        + " and 2 more"
    )
    assert [one.levelname, many.levelname, none.levelname] == ["WARNING", "WARNING", "INFO"]


def test_events_without_a_version_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert requested_version(started_by(event({})), TABLE, TRIGGERING_EVENT) is None
    [record] = caplog.records
    assert record.levelname == "WARNING"
    said = "the asset events of s3://lake/sales that have started this run have no"
    assert said in record.getMessage()


def test_a_pin_warns_too(sales_copy: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pin = TimeTravelSnapshotOperator(
        task_id="pin", table_uri=str(sales_copy), version="triggering_event"
    )
    assert pin.execute(started_by(event({"version": 1})))["version"] == 3
    [line] = [line for line in capfd.readouterr().out.splitlines() if "take the newest" in line]
    assert "[warning" in line


@pytest.mark.parametrize("version", [-1, 1.5, True, "seven", [3]])
def test_a_version_that_is_none_fails_with_the_name_of_the_event(version: Any) -> None:
    with pytest.raises(ArgumentError, match="version of the event of the asset 'sales' at 2026"):
        triggering_range(started_by(event({"version": version})), TABLE)


def started_by_version(table: Path, version: int | None) -> Any:
    """A run that the event of a version has started; None: that nothing has started."""
    events = [] if version is None else [event({"version": version}, asset=delta_asset(str(table)))]
    return started_by(*events)


def pinned(table: Path, *extras: Any) -> dict[str, Any]:
    asset = delta_asset(str(table))
    operator = TimeTravelSnapshotOperator(
        task_id="pin", table_uri=str(table), version="triggering_event"
    )
    return operator.execute(started_by(*(event(extra, asset=asset) for extra in extras)))


def test_a_task_pins_the_version_of_the_event(sales_copy: Path) -> None:
    found = pinned(sales_copy, {"version": 1, "after_version": 0})
    assert (found["version"], found["after_version"]) == (1, 0)
    assert (pinned(sales_copy)["version"], pinned(sales_copy)["after_version"]) == (3, None)


def test_a_profile_is_of_the_version_of_the_event(sales_copy: Path) -> None:
    operator = TableProfileOperator(
        task_id="profile", table_uri=str(sales_copy), version="triggering_event", columns=[]
    )
    asset = delta_asset(str(sales_copy))
    result = operator.execute(started_by(event({"version": 1}, asset=asset)))
    assert result["version"] == 1


def feed_run(runs: Runs, operator: ChangeFeedOperator, run: int, version: int | None) -> Any:
    """A try of a change feed in a run that an event has started, or none."""
    started = started_by_version(Path(operator.table_uri), version)
    return runs.attempt(operator, run, triggering_asset_events=started["triggering_asset_events"])


def test_a_change_feed_ends_with_the_version_of_the_event(tmp_path: Path) -> None:
    table, runs = three_versions(tmp_path), Runs()
    operator = feed(table, end_version="triggering_event")
    assert versions(feed_run(runs, operator, 1, 1)) == (0, 1)
    # A retry, and a run for an event that an earlier run has processed.
    assert versions(feed_run(runs, operator, 1, 1)) == (0, 1)
    with pytest.raises(AirflowSkipException, match="nothing is new"):
        feed_run(runs, operator, 2, 1)
    # Without an event it is the newest version, the same in all tries.
    assert versions(feed_run(runs, operator, 3, None)) == (2, 2)
    grow(table, 3)
    grow(table, 4)
    assert versions(feed_run(runs, operator, 3, None)) == (2, 2)
    assert versions(feed_run(runs, operator, 4, 3)) == (3, 3)


def test_a_change_feed_whose_event_is_before_its_start_is_skipped(tmp_path: Path) -> None:
    operator = feed(three_versions(tmp_path), start_version=2, end_version="triggering_event")
    with pytest.raises(AirflowSkipException, match="nothing is new"):
        feed_run(Runs(), operator, 1, 1)


@pytest.mark.parametrize(("version", "found"), [(1, 1), (None, 3)])
def test_a_checkpoint_is_of_the_version_of_the_event(
    sales_copy: Path, version: int | None, found: int
) -> None:
    operator = CheckpointOperator(
        task_id="checkpoint", table_uri=str(sales_copy), version="triggering_event"
    )
    assert operator.execute(started_by_version(sales_copy, version))["version"] == found


@pytest.fixture
def managed_copy(sales_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A managed table with the versions 0 to 7, of which those to 4 are backfilled."""
    use_owner(monkeypatch, tmp_path / "owner.db")
    commit(sales_copy, hand_over(sales_copy, tmp_path / "owner.db"), 3)
    assert in_log(sales_copy) == 4
    return sales_copy


@pytest.mark.parametrize(("version", "found"), [(5, 5), (None, 7)])
def test_a_table_is_backfilled_to_the_version_of_the_event(
    managed_copy: Path, version: int | None, found: int
) -> None:
    operator = BackfillOperator(
        task_id="backfill", table_uri=str(managed_copy), version="triggering_event"
    )
    operator.execute(started_by_version(managed_copy, version))
    assert in_log(managed_copy) == found


@pytest.mark.parametrize(("version", "found"), [(5, 5), (None, 7)])
def test_a_sensor_waits_until_the_version_of_the_event_is_backfilled(
    managed_copy: Path, version: int | None, found: int
) -> None:
    state = TaskState()

    def look() -> Any:
        """A check of a rescheduled wait, which has a new object each time."""
        sensor = BackfillSensor(
            task_id="wait", table_uri=str(managed_copy), version="triggering_event"
        )
        context = started_by_version(managed_copy, version)
        result = sensor.poke({**context, "task_state_store": state})
        assert sensor.wanted == f"version {found} to be backfilled"
        return result

    assert not look()
    DeltaHook().backfill(str(managed_copy), version=found)
    assert look().xcom_value["version"] == found


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (TimeTravelSnapshotOperator, "version"),
        (ChangeFeedOperator, "end_version"),
        (CheckpointOperator, "version"),
        (BackfillOperator, "version"),
        (BackfillSensor, "version"),
    ],
)
def test_a_text_that_is_no_version_is_refused_when_the_dag_is_parsed(kind: Any, name: str) -> None:
    with pytest.raises(ArgumentError, match="expected a version such as 24, or 'triggering_event'"):
        kind(task_id="pin", table_uri=TABLE, **{name: "newest"})


def test_the_example_reports_the_version_of_the_event(
    airflow_database: Path, sales_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.dag_processing.dagbag import DagBag

    monkeypatch.setenv("DELTA_EVENTS_TABLE", str(sales_copy))
    dag = DagBag(dag_folder=EXAMPLE).dags["delta_events"]
    assert dag.get_task("pin").table_uri == str(sales_copy)
    assert run_of(dag).results["report"] == {"after_version": None, "version": 3}


def test_a_test_of_the_dag_and_a_run_that_an_event_has_started_pin_the_same(
    airflow_database: Path, sales_copy: Path
) -> None:
    """A run by the event of version 1, and ``airflow dags test`` with its version; the newest is 3."""
    sales = delta_asset(str(sales_copy), name="sales_with_events")
    with new_dag(schedule=[sales], params={"version": "triggering_event"}) as dag:
        TimeTravelSnapshotOperator(
            task_id="pin", table_uri=str(sales_copy), version="{{ params.version }}"
        )
    started = run_by_event(dag, sales, {"version": 1, "after_version": 0}).results["pin"]
    assert (started["version"], started.pop("after_version")) == (1, 0)
    assert run_of(dag).results["pin"]["version"] == 3
    assert run_of(dag, version=1).results["pin"] == started
