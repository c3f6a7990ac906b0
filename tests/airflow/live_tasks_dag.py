"""DAGs of `test_live_tasks`: what Airflow offers around tasks, and jobs and tasks that hang."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pendulum
from airflow.sdk import DAG, task

from airflow_delta.operators.checkpoint import CheckpointOperator
from airflow_delta.operators.convert import ConvertToDeltaOperator
from airflow_delta.operators.delete import DeleteOperator
from airflow_delta.operators.restore import RestoreOperator
from airflow_delta.operators.time_travel_snapshot import TimeTravelSnapshotOperator
from airflow_delta.operators.vacuum import VacuumOperator

ROOT = Path(os.environ["TEST_LIVE_TABLES"])
TABLES = [str(ROOT / name) for name in ("a", "b", "missing")]


def note(context: Any, name: str) -> None:
    """Write down that a callback was called, for which task."""
    task_instance = context["task_instance"]
    with (ROOT / "callbacks").open("a") as file:
        file.write(f"{name} {task_instance.task_id} {task_instance.map_index}\n")


def succeeded(context: Any) -> None:
    """Note a success."""
    note(context, "success")


def failed(context: Any) -> None:
    """Note a failure."""
    note(context, "failure")


def tried_again(context: Any) -> None:
    """Note a failure that is followed by another try."""
    note(context, "retry")


CALLBACKS: dict[str, Any] = {
    "on_success_callback": succeeded,
    "on_failure_callback": failed,
    "on_retry_callback": tried_again,
}


def fail_to_commit(context: Any) -> None:
    """Have the store fail when the first try commits."""
    if context["ti"].try_number > 1:
        return
    from airflow_delta.engine import OptimisticTransaction
    from airflow_delta.engine.errors import StorageError

    def fail(*_: Any, **__: Any) -> None:
        raise StorageError("the store failed")

    OptimisticTransaction.commit = fail  # type: ignore[method-assign, assignment]


with DAG("around_tasks", schedule=None, start_date=pendulum.datetime(2026, 1, 1)):
    make = ConvertToDeltaOperator(task_id="make", table_uri=TABLES[0], **CALLBACKS).as_setup()

    @task
    def append() -> None:
        """Commit a version that the end of the run takes back."""
        import pyarrow as pa
        from deltalake import write_deltalake

        write_deltalake(TABLES[0], pa.table({"id": [2]}), mode="append")

    vacuum = VacuumOperator.partial(
        task_id="vacuum", pool="delta", dry_run=True, retries=2, **CALLBACKS
    ).expand(table_uri=TABLES)
    checkpoint = CheckpointOperator(
        task_id="checkpoint",
        table_uri=TABLES[0],
        pool="delta",
        trigger_rule="all_done",
        **CALLBACKS,
    )
    # It takes place although a mapped task has failed.
    undo = RestoreOperator(
        task_id="undo",
        table_uri=TABLES[0],
        version=make.output["version"],
        write_checkpoint=False,
        pre_execute=fail_to_commit,
        retries=1,
        retry_delay=timedelta(0),
        **CALLBACKS,
    ).as_teardown(setups=make)
    make >> append() >> vacuum >> checkpoint >> undo

with DAG("each_day", schedule="@daily", start_date=pendulum.datetime(2026, 1, 1), catchup=False):
    TimeTravelSnapshotOperator(
        task_id="pin",
        table_uri=str(ROOT / "history"),
        timestamp="{{ logical_date.isoformat() }}",
    )

# Both jobs hang.
with DAG("failed_task", schedule=None, start_date=pendulum.datetime(2026, 1, 1)):
    DeleteOperator(
        task_id="delete",
        table_uri=str(ROOT / "kept"),
        condition="id = 0",
        spark_conf={"spark.pyspark.driver.python": str(ROOT / "hanging-driver")},
        retries=2,
    )

with DAG("failed_run", schedule=None, start_date=pendulum.datetime(2026, 1, 1)):
    TimeTravelSnapshotOperator(
        task_id="copy",
        table_uri=str(ROOT / "kept"),
        target_uri=str(ROOT / "copy"),
        spark_conn_id="stand_in",
        retries=2,
    )

# The driver goes on after the worker's process is killed.
with DAG("killed_worker", schedule=None, start_date=pendulum.datetime(2026, 1, 1)):
    DeleteOperator(
        task_id="outlived",
        table_uri=str(ROOT / "outlived"),
        condition="id = 0",
        spark_conf={"spark.pyspark.driver.python": str(ROOT / "outliving-driver")},
        retries=1,
        retry_delay=timedelta(0),
    )


def hang(step: str) -> Callable[[Any], None]:
    """A function that has the process of the first try hang before or after its commit.

    The process writes its id to a file then.
    """

    def patch(context: Any) -> None:
        if context["ti"].try_number > 1:
            return
        from airflow_delta.engine import OptimisticTransaction

        commit = OptimisticTransaction.commit

        def commit_and_hang(*arguments: Any, **named: Any) -> None:
            if step == "after":
                commit(*arguments, **named)
            written = ROOT / f"process {step}.new"
            written.write_text(str(os.getpid()))
            written.rename(ROOT / f"process {step}")
            threading.Event().wait()

        OptimisticTransaction.commit = commit_and_hang  # type: ignore[assignment, method-assign]

    return patch


with DAG("killed_tasks", schedule=None, start_date=pendulum.datetime(2026, 1, 1)):
    for name in ("before", "after"):
        RestoreOperator(
            task_id=f"restore_{name}",
            table_uri=str(ROOT / f"killed {name}"),
            version=0,
            pre_execute=hang(name),
            retries=1,
            retry_delay=timedelta(0),
        )
