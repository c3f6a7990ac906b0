"""Append-only tables: PROTOCOL.md, "Append-only Tables"."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_delta.engine.errors import ConstraintViolationError
from tests.engine.transaction.prepare.attempts import (
    attempt,
    file,
    table,
    tombstone,
    with_properties,
)
from tests.log_builder import add


def test_an_append_only_table_loses_no_rows(tmp_path: Path) -> None:
    table(tmp_path, ("appendOnly",), add("f"), configuration={"delta.appendOnly": "true"})
    with pytest.raises(ConstraintViolationError, match=r"delta\.appendOnly=true"):
        attempt(tmp_path, removes=(tombstone("f"),))
    attempt(tmp_path, adds=(file("g"),))
    rearranged = {
        "removes": (tombstone("f", data_change=False),),
        "adds": (file("g", data_change=False),),
    }
    attempt(tmp_path, **rearranged)


def test_the_commit_that_lifts_the_rule_may_remove_rows_already(tmp_path: Path) -> None:
    table(tmp_path, ("appendOnly",), add("f"), configuration={"delta.appendOnly": "true"})
    off = with_properties(tmp_path, delta_appendOnly="false")
    attempt(tmp_path, metadata=off, removes=(tombstone("f"),))
