"""The DAGs of the page on alerts can be parsed, and alert."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import AirflowFailException
from airflow.serialization.serialized_objects import DagSerialization
from airflow.triggers.callback import CallbackTrigger

from airflow_delta.engine.errors import TableNotFoundError
from airflow_delta.hooks.failures import TableFailure
from airflow_delta.hooks.waits.version import VersionLook
from tests.airflow.failures import fails_for_good
from tests.airflow.test_docs import DOCS, code_of, example
from tests.log_builder import add, write_table

PAGE = DOCS / "how-to" / "alerts.md"
DAG_IDS = ["sales_upkeep", "sales_are_fresh", "sales_optimize", "lake_health", "lake_check"]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The subjects and texts of the e-mails that notifiers send."""
    found: list[tuple[str, str]] = []
    notifier = "airflow.providers.smtp.notifications.smtp.SmtpNotifier"

    def notify(self: Any, _context: Any) -> None:
        found.append((self.subject, self.html_content))

    async def async_notify(self: Any, context: Any) -> None:
        notify(self, context)

    monkeypatch.setattr(f"{notifier}.notify", notify)
    monkeypatch.setattr(f"{notifier}.async_notify", async_notify)
    return found


def test_each_dag_of_the_page_is_one_for_airflow(tmp_path: Path) -> None:
    for number, code in enumerate(code_of(PAGE)):
        (tmp_path / f"airflow_{number}.py").write_text(code, encoding="utf-8")
    bag = DagBag(dag_folder=tmp_path)
    assert bag.import_errors == {}
    assert sorted(bag.dags) == sorted(DAG_IDS)
    for dag in bag.dags.values():
        assert DagSerialization.to_dict(dag)["dag"]["dag_id"] == dag.dag_id


def test_the_alert_of_a_failure_has_the_error(sent: list[tuple[str, str]]) -> None:
    for error, text in (
        (TableFailure("s3://lake/sales: the log is <damaged>"), "s3://lake/sales: the log is &lt;"),
        (None, "The task was killed."),
    ):
        # Each task has a process of its own, so a notifier sends one message.
        checkpoint = example(PAGE)["checkpoint"]
        context = {"dag": checkpoint.dag, "ti": checkpoint, "task": checkpoint}
        (alert,) = checkpoint.on_failure_callback
        alert(context if error is None else {**context, "exception": error})
        subject, html = sent.pop()
        assert subject == "sales_upkeep.checkpoint failed"
        assert html.startswith(text)
    assert checkpoint.downstream_list[0].on_failure_callback == [alert]


def test_the_wait_continues_after_the_version_of_the_run_before(tmp_path: Path) -> None:
    code = code_of(PAGE)[1].replace("    TableVersionSensor(", "    wait = TableVersionSensor(")
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    wait = names["wait"]
    assert (wait.timeout, wait.dag.max_active_runs) == (10_800, 1)
    wait.table_uri = str(write_table(tmp_path / "t", [add("a")], [add("b")]))
    for seen, reached in (("1", False), ("0", True), ("-1", True)):
        wait.after_version = seen
        wait.begin()
        look: VersionLook = wait.look({})
        assert look.reached is reached


def test_the_alert_of_a_late_run_names_the_run(sent: list[tuple[str, str]]) -> None:
    alert = example(PAGE, 2)["RUN_IS_LATE"]
    run = {"dag_id": "sales_optimize", "dag_run_id": "manual__1"}
    context = {"dag_run": run, "deadline": {"id": "1", "deadline_time": "2026-01-31 12:00"}}
    # What the triggerer does when the scheduler finds the deadline missed.
    trigger = CallbackTrigger(alert.callback.path, {**alert.callback.kwargs, "context": context})

    async def states() -> list[Any]:
        return [event.payload["state"] async for event in trigger.run()]

    assert [str(state) for state in asyncio.run(states())] == ["running", "success"]
    assert sent == [("sales_optimize is late", "The run manual__1 was to end by 2026-01-31 12:00.")]


def task_of(number: int, name: str) -> Callable[[str], Any]:
    """The function of the task in a block."""
    function: Callable[[str], Any] = example(PAGE, number)[name].function
    return function


def test_the_numbers_are_sent_as_gauges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.observability import stats

    gauges: dict[str, tuple[float, Any]] = {}

    def gauge(name: str, value: float, *, tags: Any) -> None:
        gauges[name] = (value, tags)

    monkeypatch.setattr(stats, "gauge", gauge)
    table = str(write_table(tmp_path / "t", [add("a", size=10)], [add("b", size=10)]))
    task_of(3, "report_health")(table)
    numbers = {name: value for name, (value, _) in gauges.items()}
    assert {*numbers} == {f"delta.{name}" for name in example(PAGE, 3)["NUMBERS"]}
    assert (numbers["delta.small_files"], numbers["delta.commits_since_checkpoint"]) == (2, 2)
    assert numbers["delta.files_with_deleted_rows"] == 0
    assert {tags["table"] for _, tags in gauges.values()} == {table}
    with fails_for_good(TableNotFoundError):
        task_of(3, "report_health")(str(tmp_path / "nothing"))


def test_the_check_fails_for_errors_and_names_them(tmp_path: Path) -> None:
    table = write_table(tmp_path / "t", [add("a")], [add("b")], [add("c")])
    task_of(4, "check")(str(table))
    (table / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(AirflowFailException, match=rf"(?s)^{table}: .*\ncommit-missing: .*put"):
        task_of(4, "check")(str(table))
