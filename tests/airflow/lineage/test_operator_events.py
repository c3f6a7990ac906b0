"""The OpenLineage events of every operator and sensor: of a task that succeeds, and of one that fails.

All tasks run in one DAG run, each on a table of its own. Spark is replaced: its jobs make the commits.
"""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.model.schema import LONG, StructField, StructType
from airflow_delta.provider import get_provider_info
from airflow_delta.version_compat import AirflowException
from tests.airflow.dag_runs import DagRun, new_dag, run_of
from tests.airflow.expiring_tables import expire, write_v2_table
from tests.airflow.feed_runs import three_versions
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
CLAUSES = [{"when": "matched", "then": "delete"}]
WAIT = {"timeout": 0.01, "poke_interval": 0.01, "deferrable": False}

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


def copied(dataset: dict[str, Any], source: Path) -> dict[str, Any]:
    """An output whose column comes from another table."""
    origin = {"namespace": "file", "name": str(source), "field": "id"}
    transformations = [{"type": "DIRECT", "subtype": "IDENTITY"}]
    lineage = {"fields": {"id": {"inputFields": [{**origin, "transformations": transformations}]}}}
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
        target = DeltaTable.create(parameters["target_uri"], SCHEMA)
        if job == "materialize":
            return {"num_rows": 25, "num_files": 3, "committed_version": 0}
        assert job == "change_feed"
        version = target.alter.set_properties({"changes": "appended"}).version
        return {"appended": True, "counts": CHANGES, "committed_version": version}

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
    """

    arguments: dict[str, Any]
    planned: Lineage
    done: Lineage


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
        return Case(arguments, (planned_inputs, []), ([known(table, version)], []))

    def alters(version: int, /, **arguments: Any) -> Case:
        done = [known(table, version, change="ALTER")]
        return Case(arguments, ([], [planned(table)]), ([], done))

    def changes(output: dict[str, Any], /, *, has_source: bool = False, **arguments: Any) -> Case:
        inputs = ([planned(sales, 2)], [known(sales, 2)]) if has_source else ([], [])
        return Case(arguments, (inputs[0], [planned(table)]), (inputs[1], [output]))

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
            return Case(arguments, ([planned(table)], []), (done, []))
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
            return changes(written(output, rowCount=2, **added(table, 0)))
        case "DeleteOperator":
            output = written(known(table, 4), rowCount=8, size=90, fileCount=1)
            return changes(output, condition="id < 9")
        case "UpdateOperator":
            output = written(known(table, 4), rowCount=10, size=90, fileCount=1)
            return changes(output, set={"id": "0"}, condition="id < 9")
        case "MergeOperator":
            output = written(known(table, 4), rowCount=10, size=90, fileCount=1)
            rule = {"on": "target.id = source.id", "clauses": CLAUSES}
            return changes(output, has_source=True, **query, **rule)
        case "WriteOperator":
            output = copied(known(table, 4, change="OVERWRITE"), sales)
            output = written(output, rowCount=30, size=900, fileCount=2)
            return changes(output, has_source=True, **query, mode="overwrite")
        case "OptimizeOperator":
            output = written(known(table, 4), **added(table, 4))
            return Case({}, ([planned(table)], [planned(table)]), ([known(table, 3)], [output]))
        case "RestoreOperator":
            output = written(known(table, 4, change="OVERWRITE"), **added(table, 4))
            before = [planned(table, 0)], [planned(table)]
            return Case({"version": 0}, before, ([known(table, 0)], [output]))
        case "TimeTravelSnapshotOperator":
            output = copied(known(target, 0, change="CREATE"), table)
            output = written(output, rowCount=25, fileCount=3)
            arguments = {"version": 2, "target_uri": str(target)}
            before = [planned(table, 2)], [planned(target)]
            return Case(arguments, before, ([known(table, 2)], [output]))
        case "ChangeFeedOperator":
            output = written(copied(known(target, 1), table), rowCount=3)
            before = [planned(table)], [planned(target)]
            return Case({"target_uri": str(target)}, before, ([known(table, 2)], [output]))
    raise AssertionError(f"{name} has no case: add one, with the expected events written out")


def make_table(name: str, folder: Path, sales: Path) -> Path:
    """Make the table of the task of an operator that succeeds."""
    table, owner = folder / name, folder / "owner.db"
    match name:
        case "DropFeatureOperator":
            return write_v2_table(table)
        case "TruncationSensor":
            write_v2_table(table)
            DeltaTable(table).drop_feature("v2Checkpoint", truncate_history=True)
            expire(table)
            return table
        case "AddConstraintOperator" | "SetNotNullOperator":
            # Only Spark adds a rule to a table that has rows.
            return Path(DeltaTable.create(str(table), SCHEMA).uri)
        case "ChangeFeedOperator":
            table.mkdir()
            return Path(three_versions(table))
        case "ConvertToDeltaOperator":
            for number in (1, 2):
                write_parquet(table / f"{number}.parquet", {"id": [number]})
            return table
    shutil.copytree(sales, table)
    if name == "BackfillOperator":
        commit(table, hand_over(table, owner), 2)
    elif name == "ConvertToFileSystemOperator":
        hand_over(table, owner)
    return table


@dataclass
class Finished:
    """The run of all tasks.

    Attributes:
        folder: where everything is.
        tables: the table of each operator's task that has succeeded.
        run: the run.
        events: its events.
    """

    folder: Path
    tables: dict[str, Path]
    run: DagRun
    events: CapturedEvents

    def case(self, name: str, table: Path, sales: Path) -> Case:
        """The case of an operator with this table."""
        return case_of(name, table, sales, self.folder / f"target of {name}")


@pytest.fixture(scope="module")
def finished(
    airflow_database: Path, sales: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Finished]:
    """Two tasks of each operator have run: one on its table, and one on a table that is missing."""
    folder = tmp_path_factory.mktemp("lineage")
    events = EventFile(folder / "events.json")
    with pytest.MonkeyPatch.context() as patch:
        use_owner(patch, folder / "owner.db")
        patch.setattr("airflow_delta.hooks.spark.job.SparkJobHook", lambda *_, **__: Jobs())
        tables = {name: make_table(name, folder, sales) for name in KINDS}
        found = Finished(folder, tables, DagRun.__new__(DagRun), events)
        with new_dag() as dag:
            for name, kind in KINDS.items():
                for start, table in (("done", tables[name]), ("failed", missing(name))):
                    arguments = found.case(name, table, sales).arguments
                    kind(task_id=f"{start}_{name}", table_uri=str(table), **arguments)
        with capture_events(events, patch):
            found.run = run_of(dag)
        yield found


def missing(name: str) -> Path:
    """The table that an operator fails to find."""
    return Path("/missing") / name


@pytest.mark.parametrize("name", KINDS)
def test_the_events_of_a_task_that_succeeds(finished: Finished, sales: Path, name: str) -> None:
    assert finished.run.states[f"done_{name}"] == "success"
    case = finished.case(name, finished.tables[name], sales)
    (before, after), (inputs, outputs) = case.planned, case.done
    assert finished.events.of(f"done_{name}") == [
        {"type": "START", "inputs": before, "outputs": after},
        {"type": "COMPLETE", "inputs": inputs, "outputs": outputs},
    ]


@pytest.mark.parametrize("name", KINDS)
def test_the_events_of_a_task_that_fails(finished: Finished, sales: Path, name: str) -> None:
    assert finished.run.states[f"failed_{name}"] == "failed"
    inputs, outputs = finished.case(name, missing(name), sales).planned
    assert finished.events.of(f"failed_{name}") == [
        {"type": "START", "inputs": inputs, "outputs": outputs},
        {"type": "FAIL", "inputs": inputs, "outputs": outputs},
    ]
