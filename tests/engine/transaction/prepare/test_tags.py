"""The tags in ``commitInfo``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine.model.actions import Protocol
from tests.engine.transaction.prepare.attempts import (
    attempt,
    counted,
    file,
    schema,
    table,
    tombstone,
)
from tests.log_builder import add

PRESERVED = "delta.rowTracking.preserved"
TRACKED = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "_row-id",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-version",
}
NEW, GONE = file("new", stats=counted(1)), tombstone("old")
AGAIN = file("old", stats=counted(2), data_change=False)


@pytest.mark.parametrize(
    ("actions", "preserved"),
    [
        ({"adds": (NEW,)}, "true"),
        ({"removes": (GONE,)}, "true"),
        ({"adds": (AGAIN,)}, "true"),
        ({"adds": (NEW,), "removes": (GONE,)}, "false"),
        ({"adds": (NEW,), "removes": (GONE,), "enforced": ["rowTracking"]}, "true"),
    ],
)
def test_a_commit_says_whether_rows_kept_their_ids(
    tmp_path: Path, actions: dict[str, Any], preserved: str
) -> None:
    old = add("old", baseRowId=0, defaultRowCommitVersion=0, stats=counted(2))
    mark = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":1}'}
    table(
        tmp_path,
        ("rowTracking", "domainMetadata"),
        old,
        {"domainMetadata": {**mark, "removed": False}},
        configuration=TRACKED,
    )
    assert attempt(tmp_path, **actions).tags == {PRESERVED: preserved}


def test_a_table_whose_rows_are_not_tracked_says_nothing_of_them(tmp_path: Path) -> None:
    table(tmp_path, ("rowTracking", "domainMetadata"))
    assert attempt(tmp_path, adds=(NEW,)).tags == {}


def test_only_a_change_of_marks_alone_is_tagged(tmp_path: Path) -> None:
    columns = schema(key="long")
    columns["fields"][0]["metadata"] = {"delta.identity.start": 0, "delta.identity.step": 1}
    table(tmp_path, ("identityColumns",), schema=columns)
    marks = {"identity_marks": {"key": 3}}
    assert attempt(tmp_path, **marks).tags == {"delta.identity.schemaUpdate": "true"}
    grown = Protocol(3, 7, frozenset(), frozenset({"identityColumns", "domainMetadata"}))
    assert attempt(tmp_path, **marks, protocol=grown).tags == {}
