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
from airflow_delta.hooks.failures import ArgumentError
from airflow_delta.operators.table_profile import TableProfileOperator
from airflow_delta.operators.time_travel_snapshot import TimeTravelSnapshotOperator
from airflow_delta.operators.triggering_event import EventRange, triggering_range
from tests.airflow.dag_runs import new_dag, run_of
from tests.airflow.run_context import context_of

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


@pytest.mark.parametrize("version", [-1, 1.5, True, "seven", [3]])
def test_a_version_that_is_none_fails_with_the_name_of_the_event(version: Any) -> None:
    with pytest.raises(ArgumentError, match="version of the event of the asset 'sales' at 2026"):
        triggering_range(started_by(event({"version": version})), TABLE)


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


def test_a_text_that_is_no_version_is_refused_when_the_dag_is_parsed() -> None:
    with pytest.raises(ArgumentError, match="expected a version such as 24, or 'triggering_event'"):
        TimeTravelSnapshotOperator(task_id="pin", table_uri=TABLE, version="newest")


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
    with new_dag() as dag:
        TimeTravelSnapshotOperator(
            task_id="pin", table_uri=str(sales_copy), version="{{ params.version }}"
        )
    found = run_of(dag, version="triggering_event").results["pin"]
    assert found == pinned(sales_copy, {"version": 3})
