"""Runs of a change feed's task, without Spark: what Airflow keeps of them, and what they submit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from airflow_delta.operators.change_feed import ChangeFeedOperator
from tests.airflow.managed_tables import in_log
from tests.airflow.run_context import context_of
from tests.airflow.task_state import AssetStates, TaskState
from tests.log_builder import metadata

__all__ = [
    "COUNTS",
    "Runs",
    "Submissions",
    "begun",
    "broken",
    "feed",
    "grow",
    "made_range",
    "three_versions",
    "versions",
]

COUNTS = {"insert": 2, "delete": 1, "update_preimage": 0, "update_postimage": 0}


def grow(uri: str, number: int) -> None:
    feed = {"delta.enableChangeDataFeed": "true"}
    rows = pa.table({"id": [number]})
    write_deltalake(uri, rows, mode="append", configuration=None if number else feed)


def three_versions(tmp_path: Path) -> str:
    """A table with versions 0 to 2, each with a row more."""
    uri = str(tmp_path / "table")
    for number in range(3):
        grow(uri, number)
    return uri


class Runs:
    """The runs of one task, in the order in which they are executed, and what Airflow keeps of them."""

    def __init__(self) -> None:
        self.assets = AssetStates("airflow_delta_change_feeds")
        self.states: dict[tuple[int, int], TaskState] = {}
        self.newest = 0

    def attempt(
        self, operator: ChangeFeedOperator, run: int = 1, index: int = -1, **entries: Any
    ) -> dict[str, Any]:
        """A try in a run, of which there were others perhaps, with more entries in its context."""
        context = context_of("feed", run=run)
        context["ti"].map_index = index
        context["task_state_store"] = self.states.setdefault((run, index), TaskState())
        context["asset_state_store"] = self.assets
        context.update(entries)
        return operator.execute(context)

    def run(self, operator: ChangeFeedOperator, index: int = -1) -> dict[str, Any]:
        """A try in a run of its own."""
        self.newest += 1
        return self.attempt(operator, self.newest, index)


class Submissions:
    """Takes the place of Spark: keeps what is submitted, and answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[dict[str, Any]] = []
        self.answer: dict[str, Any] = {"appended": True, "counts": COUNTS, "committed_version": 5}
        monkeypatch.setattr("airflow_delta.hooks.spark.job.SparkJobHook", lambda *_, **__: self)

    def run(self, job: str, parameters: dict[str, Any], **environment: Any) -> dict[str, Any]:
        assert job == "change_feed"
        self.taken.append(parameters)
        self.environment = environment
        self.in_log = in_log(Path(parameters["table_uri"]))
        return self.answer


def feed(table: str, **arguments: Any) -> ChangeFeedOperator:
    return ChangeFeedOperator(task_id="feed", table_uri=table, **arguments)


def versions(found: dict[str, Any]) -> tuple[int, int]:
    return found["start_version"], found["end_version"]


def broken(*_: Any, **__: Any) -> None:
    raise OSError("the store fails")


def begun(table_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Protocol and metadata of a table with a change data feed."""
    action = metadata(configuration={"delta.enableChangeDataFeed": "true"})
    action["metaData"]["id"] = table_id
    return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}}, action


def made_range(target: Path, table_id: object, start: int = 0, end: int = 2) -> None:
    """A range of a directory, as the job leaves it."""
    folder = target / f"change_versions={start:020}-{end:020}"
    folder.mkdir(parents=True)
    marker = {"table_id": str(table_id), "counts": COUNTS}
    (folder / "_airflow_delta_changes.json").write_text(json.dumps(marker))
