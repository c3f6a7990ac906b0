"""The OpenLineage events of every operator and sensor, for success, failure, retry and deferred waits.

All tasks run in one DAG run, each on a table of its own. Spark is replaced: its jobs make the commits.
"""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.change_feeds.progress import FeedProgress, transaction_identifiers
from airflow_delta.change_feeds.request import FeedRequest
from airflow_delta.copies.source import CopySource
from airflow_delta.engine import DeltaTable, OptimisticTransaction
from airflow_delta.engine.maintenance.restore.clone_definition import stage_clone_definition
from airflow_delta.engine.model.schema import LONG, StructField, StructType
from airflow_delta.operators import table_commits
from airflow_delta.provider import get_provider_info
from airflow_delta.sensors.table_wait import TableWait
from airflow_delta.triggers import table_poll
from airflow_delta.version_compat import AirflowException, PokeReturnValue
from tests.airflow.dag_runs import DagRun, new_dag, run_of
from tests.airflow.expiring_tables import expire, write_v2_table
from tests.airflow.feed_runs import grow
from tests.airflow.lineage.captured_events import CapturedEvents, EventFile, capture_events
from tests.airflow.managed_tables import commit, hand_over, use_owner
from tests.engine.maintenance.convert.parquet_folders import write_parquet

pytestmark = pytest.mark.deep

SCHEMA = StructType((StructField("id", LONG),))
METRICS = {
    "write": {"numFiles": 2, "numOutputRows": 30, "numOutputBytes": 900},
    "delete": {"numAddedFiles": 1, "numAddedBytes": 90, "numCopiedRows": 8},
    "update": {"numAddedFiles": 1, "numAddedBytes": 90, "numUpdatedRows": 2, "numCopiedRows": 8},
    "merge": {"numTargetFilesAdded": 1, "numTargetBytesAdded": 90, "numOutputRows": 10},
}
"""The metrics of the jobs that change rows."""

CHANGES = {"insert": 3, "delete": 0, "update_preimage": 0, "update_postimage": 0}
CLAUSES = [{"when": "matched", "then": "delete"}, {"when": "not_matched", "then": "insert"}]
WAIT = {"timeout": 0.01, "poke_interval": 0.01, "deferrable": False}
DEFERRED = {"timeout": 60, "deferrable": True}

Datasets = list[dict[str, Any]]
Lineage = tuple[Datasets, Datasets]
"""Inputs and outputs."""


def operators() -> Iterator[type[Any]]:
    """All operators and sensors of the provider."""
    info = get_provider_info()
    for kind in ("operators", "sensors"):
        for name in info[kind][0]["python-modules"]:
            module = importlib.import_module(name)
            exported = [getattr(module, one) for one in module.__all__]
            yield from (one for one in exported if isinstance(one, type))


KINDS = {kind.__name__: kind for kind in operators()}


def planned(table: Path, version: int | None = None) -> dict[str, Any]:
    """A table of which at most the version is known."""
    facets: dict[str, Any] = {"storage": {"storageLayer": "delta", "fileFormat": "parquet"}}
    if version is not None:
        facets["version"] = {"datasetVersion": str(version)}
    return {"namespace": "file", "name": str(table), "facets": facets}


def known(
    table: Path, version: int, *, change: str | None = None, is_partitioned: bool = False
) -> dict[str, Any]:
    """A table of which the version and the columns are known."""
    found = planned(table, version)
    fields = [{"name": "id", "type": "long"}, {"name": "part", "type": "string"}]
    found["facets"]["schema"] = {"fields": fields if is_partitioned else fields[:1]}
    if change is not None:
        found["facets"]["lifecycleStateChange"] = {"lifecycleStateChange": change}
    return found


def written(dataset: dict[str, Any], **statistics: int) -> dict[str, Any]:
    """An output with its statistics."""
    return {**dataset, "outputFacets": {"outputStatistics": statistics}}


def copied(dataset: dict[str, Any], *sources: Path, is_changed: bool = False) -> dict[str, Any]:
    """An output whose column comes from other tables, or a former version, perhaps also changed."""
    subtypes = ["TRANSFORMATION", "IDENTITY"] if is_changed else ["IDENTITY"]
    origins = [
        {
            "namespace": "file",
            "name": str(source),
            "field": "id",
            "transformations": [{"type": "DIRECT", "subtype": subtype} for subtype in subtypes],
        }
        for source in sources
    ]
    lineage = {"fields": {"id": {"inputFields": origins}}}
    return {**dataset, "facets": {**dataset["facets"], "columnLineage": lineage}}


def added(table: Path, version: int) -> dict[str, int]:
    """The number and the bytes of the files that a commit has added."""
    file = table / "_delta_log" / f"{version:020}.json"
    actions = map(json.loads, file.read_text().splitlines() if file.exists() else ())
    sizes = [action["add"]["size"] for action in actions if "add" in action]
    return {"fileCount": len(sizes), "size": sum(sizes)}


class Jobs:
    """Takes the place of Spark: makes the commits of the jobs. Those on a missing table fail."""

    def run(self, job: str, parameters: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Run a job."""
        uri = parameters["table_uri"]
        if "missing" in uri:
            raise AirflowException("the driver was lost")
        if job in METRICS:
            transaction = DeltaTable(uri).transaction(job.upper())
            transaction.set_transaction(parameters["app_id"], parameters["app_version"])
            version = transaction.commit(operation_metrics=METRICS[job]).version
            return {"table_uri": uri, "version": version, "committed": True, "repeated": False}
        if job == "row_rule":
            return self._add_rule(uri, parameters)
        if job == "materialize":
            self._clone(DeltaTable(uri), parameters)
            return {"num_rows": 25, "num_files": 3, "committed_version": 0}
        assert job == "change_feed"
        version = self._append(DeltaTable(uri), parameters)
        return {"appended": True, "counts": CHANGES, "committed_version": version}

    def _clone(self, table: DeltaTable, parameters: dict[str, Any]) -> None:
        source = CopySource(table, table.snapshot(parameters["version"]))
        target = DeltaTable(parameters["target_uri"])
        transaction = OptimisticTransaction(target.storage, None, "CLONE")
        for app_id in source.app_ids(None):
            transaction.set_transaction(app_id, source.snapshot.version)
        transaction.set_transaction(parameters["app_id"], parameters["app_version"])
        stage_clone_definition(transaction, source.snapshot)
        transaction.commit()

    def _append(self, source: DeltaTable, parameters: dict[str, Any]) -> int:
        target = DeltaTable.create(parameters["target_uri"], SCHEMA)
        start, end = parameters["start"], parameters["end"]
        request = FeedRequest(parameters["table_uri"], start, end, target.uri, "delta")
        transaction = target.transaction("WRITE")
        source_id = source.snapshot(end).metadata.id
        for mark in transaction_identifiers(request, FeedProgress(), source_id).items():
            transaction.set_transaction(*mark)
        return transaction.commit().version

    def _add_rule(self, uri: str, parameters: dict[str, Any]) -> dict[str, Any]:
        alter, txn = DeltaTable(uri).alter, (parameters["app_id"], parameters["app_version"])
        if "column" in parameters:
            done = alter.set_not_null(parameters["column"], txn=txn)
        else:
            done = alter.add_constraint(parameters["name"], parameters["expression"], txn=txn)
        return {"table_uri": uri, "version": done.version, "repeated": done.repeated}


@dataclass
class Case:
    """The tasks of an operator, and what is expected of their events.

    Attributes:
        arguments: the arguments of both, without the table.
        planned: what is in the event of the start, and in that of the failure.
        done: what is in the event of the success.
        commits: whether a task that succeeds makes a commit.
        found: what is in the event of a retry that finds the commit, if it isn't the same.
    """

    arguments: dict[str, Any]
    planned: Lineage
    done: Lineage
    commits: bool = True
    found: Lineage | None = None


def case_of(name: str, table: Path, sales: Path, target: Path) -> Case:
    """The case of an operator.

    Args:
        name: the operator.
        table: the table of the task: with the versions 0 to 3, unless `make_table` makes another.
        sales: another table like it.
        target: where the task copies to.
    """

    def reads(version: int, planned_version: int | None = None, /, **arguments: Any) -> Case:
        planned_inputs = [planned(table, planned_version)]
        return Case(arguments, (planned_inputs, []), ([known(table, version)], []), commits=False)

    def alters(version: int, /, **arguments: Any) -> Case:
        done = [known(table, version, change="ALTER")]
        return Case(arguments, ([], [planned(table)]), ([], done))

    def changes(
        output: dict[str, Any],
        /,
        *,
        has_source: bool = False,
        found: dict[str, Any] | None = None,
        **arguments: Any,
    ) -> Case:
        before, after = ([planned(sales, 2)], [known(sales, 2)]) if has_source else ([], [])
        again = None if found is None else (after, [found])
        return Case(arguments, (before, [planned(table)]), (after, [output]), found=again)

    query: dict[str, Any] = {
        "source_tables": {"orders": (str(sales), 2)},
        "source_query": "SELECT * FROM orders",
    }
    match name:
        case "BackfillOperator":
            return reads(6)
        case "BackfillSensor" | "TableVersionSensor":
            return reads(3, **WAIT)
        case "CheckpointOperator" | "MetadataCleanupOperator":
            return reads(3)
        case "LogCompactionOperator":
            return reads(2, start=0, end=2)
        case "TableProfileOperator":
            return reads(1, 1, version=1, columns=[])
        case "TruncationSensor":
            done = [known(table, 2, is_partitioned=True)]
            arguments = {"feature": "v2Checkpoint", **WAIT}
            return Case(arguments, ([planned(table)], []), (done, []), commits=False)
        case "VacuumOperator":
            return reads(3, dry_run=True)
        case "AddConstraintOperator":
            return alters(1, name="few", expression="id < 99")
        case "SetNotNullOperator":
            return alters(1, column="id")
        case "DropFeatureOperator":
            done = [known(table, 6, change="ALTER", is_partitioned=True)]
            return Case({"feature": "v2Checkpoint"}, ([], [planned(table)]), ([], done))
        case "EnableRowTrackingOperator":
            return alters(6)
        case "ConvertToManagedCommitOperator":
            return alters(4)
        case "ConvertToFileSystemOperator":
            return alters(5)
        case "ConvertToDeltaOperator":
            output = known(table, 0, change="CREATE")
            return changes(written(output, rowCount=2, **added(table, 0)), found=output)
        case "DeleteOperator":
            output = copied(known(table, 4), table)
            output = written(output, rowCount=8, size=90, fileCount=1)
            return changes(output, condition="id < 9")
        case "UpdateOperator":
            output = copied(known(table, 4), table, is_changed=True)
            output = written(output, rowCount=10, size=90, fileCount=1)
            return changes(output, set={"id": "id + 1"}, condition="id < 9")
        case "MergeOperator":
            output = copied(known(table, 4), table, sales)
            output = written(output, rowCount=10, size=90, fileCount=1)
            rule = {"on": "target.id = source.id", "clauses": CLAUSES}
            return changes(output, has_source=True, **query, **rule)
        case "WriteOperator":
            output = copied(known(table, 4, change="OVERWRITE"), sales)
            output = written(output, rowCount=30, size=900, fileCount=2)
            return changes(output, has_source=True, **query, mode="overwrite")
        case "OptimizeOperator":
            before, output = [known(table, 3)], copied(known(table, 4), table)
            return Case(
                {},
                ([planned(table)], [planned(table)]),
                (before, [written(output, **added(table, 4))]),
                found=(before, [output]),
            )
        case "RestoreOperator":
            output = copied(known(table, 4, change="OVERWRITE"), table)
            output = written(output, **added(table, 4))
            before = [planned(table, 0)], [planned(table)]
            return Case({"version": 0}, before, ([known(table, 0)], [output]))
        case "TimeTravelSnapshotOperator":
            output = copied(known(target, 0, change="CREATE"), table)
            arguments = {"version": 2, "target_uri": str(target)}
            before = [planned(table, 2)], [planned(target)]
            after = [known(table, 2)], [written(output, rowCount=25, fileCount=3)]
            # What takes the place of Spark has copied no files.
            found = [known(table, 2)], [written(output, rowCount=0, fileCount=0)]
            return Case(arguments, before, after, found=found)
        case "ChangeFeedOperator":
            read, output = [known(table, 2)], copied(known(target, 1), table)
            return Case(
                {"target_uri": str(target)},
                ([planned(table)], [planned(target)]),
                (read, [written(output, rowCount=3)]),
                found=(read, [output]),
            )
    raise AssertionError(f"{name} has no case: add one, with the expected events written out")


def make_table(name: str, table: Path, sales: Path, *, owner: Path) -> None:
    """Make the table of the task of an operator that succeeds.

    Args:
        name: the operator.
        table: where the table is made.
        sales: a table to copy.
        owner: the database of the commit owner.
    """
    match name:
        case "DropFeatureOperator":
            write_v2_table(table)
        case "TruncationSensor":
            write_v2_table(table)
            DeltaTable(table).drop_feature("v2Checkpoint", truncate_history=True)
            expire(table)
        case "AddConstraintOperator" | "SetNotNullOperator":
            # Only Spark adds a rule to a table that has rows.
            DeltaTable.create(str(table), SCHEMA)
        case "ChangeFeedOperator":
            for number in range(3):
                grow(str(table), number)
        case "ConvertToDeltaOperator":
            for number in (1, 2):
                write_parquet(table / f"{number}.parquet", {"id": [number]})
        case _:
            shutil.copytree(sales, table)
    if name == "BackfillOperator":
        commit(table, hand_over(table, owner), 2)
    elif name == "ConvertToFileSystemOperator":
        hand_over(table, owner)


COMMITTING = [
    name for name in KINDS if case_of(name, Path("table"), Path("sales"), Path("target")).commits
]
"""The operators that commit."""

SENSORS = [name for name, kind in KINDS.items() if issubclass(kind, TableWait)]


@dataclass
class Finished:
    """The run of all tasks.

    Attributes:
        sales: a table that is a source.
        folder: where everything else is.
        events: the events of the run.
        run: the run.
    """

    sales: Path
    folder: Path
    events: CapturedEvents
    run: DagRun = field(init=False)

    def table(self, task_id: str) -> Path:
        """The table of a task."""
        return Path("/missing" if task_id.startswith("failed") else self.folder) / task_id

    def case(self, task_id: str) -> Case:
        """The case of a task, whose id ends with the name of its operator."""
        name = task_id.rpartition("_")[2]
        target = self.folder / f"target of {task_id}"
        return case_of(name, self.table(task_id), self.sales, target)

    def add(self, task_id: str, **arguments: Any) -> None:
        """Add a task to the DAG, and make its table.

        Args:
            task_id: its id.
            arguments: arguments in addition to those of its case.
        """
        name, table = task_id.rpartition("_")[2], self.table(task_id)
        if not task_id.startswith("failed"):
            make_table(name, table, self.sales, owner=self.folder / "owner.db")
        given = self.case(task_id).arguments | arguments
        KINDS[name](task_id=task_id, table_uri=str(table), **given)


@pytest.fixture(scope="module")
def finished(
    airflow_database: Path, sales: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Finished]:
    """The tasks of each operator have run.

    One is on its table, and one on a table that is missing. The operators that commit have one whose first
    try fails before the commit, and the second one after it. The sensors have one that is deferred.
    """
    folder = tmp_path_factory.mktemp("lineage")
    found = Finished(sales, folder, EventFile(folder / "events.json"))
    with pytest.MonkeyPatch.context() as patch:
        use_owner(patch, folder / "owner.db")
        patch.setattr("airflow_delta.hooks.spark.job.SparkJobHook", lambda *_, **__: Jobs())
        patch.setattr(table_commits, "record_task_run", lose_tries(table_commits.record_task_run))
        patch.setattr(TableWait, "poke", defer_some(TableWait.poke))
        patch.setattr(table_poll, "FIRST_LOOK_SECONDS", 0)
        with new_dag() as dag:
            for name in KINDS:
                found.add(f"done_{name}")
                found.add(f"failed_{name}")
            for name in COMMITTING:
                found.add(f"retried_{name}", retries=2, retry_delay=timedelta(0))
            for name in SENSORS:
                found.add(f"deferred_{name}", **DEFERRED)
        with capture_events(found.events, patch):
            found.run = run_of(dag)
        yield found


def lose_tries(record_task_run: Any) -> Any:
    """Have the first try of some tasks fail before the commit, and the second one after it."""

    @contextmanager
    def recorded(context: Mapping[str, Any]) -> Iterator[None]:
        instance = context["ti"]
        lost = instance.try_number if instance.task_id.startswith("retried") else 0
        if lost == 1:
            raise ConnectionError("the worker has lost the store before the commit")
        with record_task_run(context):
            yield
        if lost == 2:
            raise ConnectionError("the worker has lost the store after the commit")

    return recorded


def defer_some(poke: Any) -> Any:
    """Have the first check of some sensors find nothing, so that they are deferred."""

    def poked(self: TableWait, context: Any) -> PokeReturnValue:
        if self.task_id.startswith("deferred"):
            return PokeReturnValue(is_done=False)
        found: PokeReturnValue = poke(self, context)
        return found

    return poked


@pytest.mark.parametrize("name", KINDS)
def test_the_events_of_a_task_that_succeeds(finished: Finished, name: str) -> None:
    assert finished.run.states[f"done_{name}"] == "success"
    case = finished.case(f"done_{name}")
    assert finished.events.of(f"done_{name}") == [
        event("START", case.planned),
        event("COMPLETE", case.done),
    ]


@pytest.mark.parametrize("name", KINDS)
def test_the_events_of_a_task_that_fails(finished: Finished, name: str) -> None:
    assert finished.run.states[f"failed_{name}"] == "failed"
    case = finished.case(f"failed_{name}")
    assert finished.events.of(f"failed_{name}") == [
        event("START", case.planned),
        event("FAIL", case.planned),
    ]


@pytest.mark.parametrize("name", COMMITTING)
def test_the_events_of_a_task_whose_third_try_finds_the_commit(
    finished: Finished, name: str
) -> None:
    assert finished.run.states[f"retried_{name}"] == "success"
    case = finished.case(f"retried_{name}")
    assert finished.events.of(f"retried_{name}") == [
        event("START", case.planned),
        event("FAIL", case.planned),
        event("START", case.planned),
        event("FAIL", case.planned),
        event("START", case.planned),
        event("COMPLETE", case.found or case.done),
    ]


@pytest.mark.parametrize("name", SENSORS)
def test_the_events_of_a_sensor_that_is_deferred(finished: Finished, name: str) -> None:
    assert finished.run.states[f"deferred_{name}"] == "success"
    case = finished.case(f"deferred_{name}")
    # Airflow reports the start again when the task resumes.
    assert finished.events.of(f"deferred_{name}") == [
        event("START", case.planned),
        event("START", case.planned),
        event("COMPLETE", case.done),
    ]
    assert len({one["run"]["runId"] for one in finished.events.all_of(f"deferred_{name}")}) == 1


def event(kind: str, lineage: Lineage) -> dict[str, Any]:
    """An event with its datasets."""
    return {"type": kind, "inputs": lineage[0], "outputs": lineage[1]}
