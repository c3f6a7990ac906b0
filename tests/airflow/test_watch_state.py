"""Where a watcher goes on: after errors, without one of its assets, and with other filters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse

from airflow_delta.triggers import watch_state
from airflow_delta.version_compat import is_inactive_asset
from tests.airflow.watched_tables import States, Variables, WatchedTable, Watching, no_pauses

NOT_FOUND = {"reason": "not_found", "message": "Asset with name='b' not found"}


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> Variables:
    no_pauses(monkeypatch)
    return Variables().install(monkeypatch)


@pytest.fixture
def table(tmp_path: Path) -> WatchedTable:
    return WatchedTable.created(tmp_path / "sales")


def server_error(status_code: int | None) -> AirflowRuntimeError:
    """The error of the supervisor of a triggerer when the API answers so."""
    detail = {"status_code": status_code, "message": "Server returned error", "detail": NOT_FOUND}
    return AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail=detail))


def failing(states: States, asset: str, error: Exception) -> list[Exception]:
    """Have an asset's store fail as long as the list that is returned isn't cleared."""
    store, errors = states._by_name[asset], [error]
    aset = store.aset

    async def fail(key: str, value: Any) -> None:
        store.tries += 1  # type: ignore[attr-defined]
        for found in errors:
            raise found
        await aset(key, value)

    store.tries = 0  # type: ignore[attr-defined]
    store.aset = fail  # type: ignore[method-assign]
    return errors


@pytest.mark.parametrize("exists", [False, True])
def test_a_watcher_keeps_where_it_begins_until_it_can_store_it(
    table: WatchedTable, exists: bool
) -> None:
    if not exists:
        table.delete_after(-1)
    watching = Watching(table)
    errors = failing(watching.states, "sales", OSError("the API server restarts"))
    begin = table.version
    assert watching.look() is None
    table.commit()
    table.commit()
    assert watching.look() is None
    errors.clear()
    assert watching.range() == (begin, begin + 2)


def test_only_an_asset_that_no_dag_uses_is_missing() -> None:
    assert is_inactive_asset(server_error(404))
    assert not is_inactive_asset(server_error(500))
    assert not is_inactive_asset(server_error(None))
    assert not is_inactive_asset(OSError("404"))
    not_found = ErrorResponse(error=ErrorType.VARIABLE_NOT_FOUND)
    assert not is_inactive_asset(AirflowRuntimeError(not_found))


def test_an_asset_that_is_removed_stops_no_events_of_another(
    table: WatchedTable, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching = Watching(table, States("a", "b"))
    assert watching.look() is None
    stored = watching.states._by_name["b"].values.copy()
    errors = failing(watching.states, "b", server_error(404))
    with caplog.at_level("INFO", logger="airflow_delta.triggers"):
        for version in range(1, 5):
            table.commit()
            assert watching.range() == (version - 1, version)
            assert watching.look() is None
    (said,) = [record.getMessage() for record in caplog.records]
    assert "no DAG uses the asset 'b' any more" in said
    assert watching.states._by_name["b"].tries == 1  # type: ignore[attr-defined]
    # The other has the mark: it goes on there.
    (mark,) = watching.states._by_name["a"].values.values()
    assert '"version": 4' in mark
    assert watching.states._by_name["b"].values == stored
    # A DAG uses it again, which got none of the events since.
    errors.clear()
    monkeypatch.setattr(watch_state, "_LEFT_OUT_SECONDS", 0.0)
    for store in watching.state._stores:
        store._left_out_until = store._left_out_until and 0.0
    table.commit()
    assert watching.range() == (0, 5)
    assert watching.look() is None
    assert watching.states._by_name["b"].values == watching.states._by_name["a"].values


@pytest.mark.parametrize(
    ("names", "error"),
    [(["a"], 404), (["a", "b"], 404), (["a", "b"], 500)],
)
def test_a_watcher_of_assets_that_cannot_be_stored_reports_nothing_more(
    table: WatchedTable, names: list[str], error: int, caplog: pytest.LogCaptureFixture
) -> None:
    watching = Watching(table, States(*names))
    assert watching.look() is None
    # Of several that are removed all fail, and of other errors one is enough.
    failed = names if error == 404 else names[-1:]
    errors = [failing(watching.states, name, server_error(error)) for name in failed]
    table.commit()
    assert watching.range() == (0, 1)
    table.commit()
    assert watching.range() is None
    assert watching.range() is None
    assert "AirflowRuntimeError: API_SERVER_ERROR" in caplog.text
    for found in errors:
        found.clear()
    # The event before may have come too late for a removed asset.
    assert watching.range() == ((0, 2) if error == 404 else (1, 2))


def test_a_watcher_with_other_filters_reports_what_is_pending(table: WatchedTable) -> None:
    watching = Watching(table, min_new_versions=5)
    assert watching.look() is None
    for _ in range(3):
        table.commit()
        assert watching.look() is None
    watching.restart(min_new_versions=1)
    assert watching.range() == (0, 3)
    assert watching.look() is None
    table.commit()
    assert watching.range() == (3, 4)


def test_a_watcher_with_other_filters_compares_what_is_pending_with_these(
    table: WatchedTable,
) -> None:
    watching = Watching(table, operations=("MERGE",))
    assert watching.look() is None
    for operation in ("WRITE", "DELETE", "WRITE"):
        table.commit(operation)
        assert watching.look() is None
    watching.restart(operations=("WRITE",), min_new_versions=3)
    assert watching.look() is None
    # That is stored.
    watching.restart()
    table.commit("WRITE")
    assert watching.range() == (0, 4)


def test_a_watcher_with_other_filters_goes_on_from_the_one_that_has_seen_most(
    table: WatchedTable,
) -> None:
    watching = Watching(table)
    assert watching.look() is None
    table.commit()
    assert watching.range() == (0, 1)
    assert watching.look() is None
    watching.restart(min_new_versions=3)
    table.commit()
    table.commit()
    table.commit()
    assert watching.range() == (1, 4)
    assert watching.look() is None
    table.commit()
    assert watching.look() is None
    watching.restart(min_new_versions=2)
    table.commit()
    assert watching.range() == (4, 6)


@pytest.mark.parametrize("versions", [3, 4, 6])
def test_a_watcher_with_other_filters_notices_that_the_table_was_put_back(
    table: WatchedTable, versions: int
) -> None:
    watching = Watching(table, min_new_versions=5)
    assert watching.look() is None
    for _ in range(3):
        table.commit()
    assert watching.look() is None
    # Only commits that are pending have become others.
    table.delete_after(1)
    while table.version < versions - 1:
        table.commit()
    watching.restart(min_new_versions=1)
    found = watching.look()
    assert found is not None
    assert (found["after_version"], found["version"]) == (-1, versions - 1)
    assert found["table_change"] == "rolled_back"
