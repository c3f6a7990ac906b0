"""DAGs of a test's own, run as ``airflow dags test`` does."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any
from unittest.mock import patch

__all__ = ["DagRun", "new_dag", "run_by_event", "run_of"]

_NUMBERS = count()


@contextmanager
def new_dag(*, schedule: Any = None, **arguments: Any) -> Iterator[Any]:
    """A DAG to put tasks in."""
    from airflow.sdk import DAG

    with DAG(dag_id=f"a_test_{next(_NUMBERS)}", schedule=schedule, **arguments) as dag:
        yield dag


class DagRun:
    """A run that has ended.

    Attributes:
        state: ``success`` or ``failed``.
        states: by task, and for a mapped task by its index too, how it ended.
        results: by the same what each returned.
        tries: by the same how often each was tried.
    """

    def __init__(self, run: Any) -> None:
        self.state = str(run.state)
        instances = run.get_task_instances()
        self.tries = {_name(instance): instance.try_number for instance in instances}
        self.states = {_name(instance): str(instance.state) for instance in instances}
        self.results = {
            _name(instance): instance.xcom_pull(
                task_ids=instance.task_id, map_indexes=instance.map_index
            )
            for instance in instances
        }


def run_of(dag: Any, **params: Any) -> DagRun:
    """Run a DAG to its end."""
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session

    with create_session() as session:
        if session.get(DagBundleModel, "testing") is None:
            session.add(DagBundleModel(name="testing"))
    bag = DagBag(os.devnull)
    bag.bag_dag(dag)
    sync_bag_to_db(bag, "testing", None)
    return DagRun(dag.test(run_conf=params))


def run_by_event(dag: Any, asset: Any, extra: Mapping[str, Any]) -> DagRun:
    """Run a DAG, which is scheduled on an asset, as a new event of the asset starts it, to its end."""
    from airflow.models import dagrun
    from airflow.models.asset import AssetEvent, AssetModel
    from sqlalchemy import select

    create = dagrun.get_or_create_dagrun

    def create_with_event(*, session: Any, **arguments: Any) -> Any:
        run = create(session=session, **arguments)
        asset_id = session.scalar(select(AssetModel.id).where(AssetModel.name == asset.name))
        run.consumed_asset_events.append(AssetEvent(asset_id=asset_id, extra=dict(extra)))
        session.commit()
        return run

    with patch.object(dagrun, "get_or_create_dagrun", create_with_event):
        return run_of(dag)


def _name(instance: Any) -> str:
    index = instance.map_index
    return instance.task_id if index < 0 else f"{instance.task_id}[{index}]"
