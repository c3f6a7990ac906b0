"""Append-only tables: PROTOCOL.md, "Append-only Tables"."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_delta.engine.errors import ConstraintViolationError
from tests.engine.transaction.prepare.attempts import (
    VECTOR,
    attempt,
    counted,
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


def test_new_data_do_not_stand_for_the_rows_of_files_that_go(tmp_path: Path) -> None:
    table(tmp_path, ("appendOnly",), add("f"), configuration={"delta.appendOnly": "true"})
    gone = (tombstone("f", data_change=False),)
    with pytest.raises(ConstraintViolationError, match=r"delta\.appendOnly=true"):
        attempt(tmp_path, removes=gone, adds=(file("g"),))
    with pytest.raises(ConstraintViolationError, match="adds no file that could contain its rows"):
        attempt(tmp_path, removes=gone)
    attempt(tmp_path, removes=gone, adds=(file("g"), file("h", data_change=False)))


def test_rows_are_not_deleted_by_a_vector_that_claims_to_change_nothing(tmp_path: Path) -> None:
    configuration = {"delta.appendOnly": "true", "delta.enableDeletionVectors": "true"}
    features = ("appendOnly", "deletionVectors")
    table(tmp_path, features, add("f", stats=counted(30)), configuration=configuration)
    gone = (tombstone("f", data_change=False),)
    masked = file("f", deletion_vector=VECTOR, stats=counted(30), data_change=False)
    with pytest.raises(ConstraintViolationError, match="adds no file that could contain its rows"):
        attempt(tmp_path, removes=gone, adds=(masked,))
    with pytest.raises(ConstraintViolationError, match=r"delta\.appendOnly=true"):
        attempt(tmp_path, removes=gone, adds=(masked, file("new")))
    # The rows may be in another file.
    attempt(tmp_path, removes=gone, adds=(masked, file("moved", data_change=False)))


def test_the_commit_that_lifts_the_rule_may_remove_rows_already(tmp_path: Path) -> None:
    table(tmp_path, ("appendOnly",), add("f"), configuration={"delta.appendOnly": "true"})
    off = with_properties(tmp_path, delta_appendOnly="false")
    attempt(tmp_path, metadata=off, removes=(tombstone("f"),))
