"""Commits that drop features: what of the table they find in their way."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine.errors import ConstraintViolationError
from airflow_delta.engine.model.actions import Protocol
from airflow_delta.engine.transaction.intent import DropFeatures
from airflow_delta.engine.transaction.prepare import Prepared
from tests.engine.transaction.prepare.attempts import VECTOR, attempt, table
from tests.log_builder import add


def removed_with_vector(path: str) -> dict[str, Any]:
    """A removed file that no vacuum takes yet."""
    now = time.time_ns() // 1_000_000
    vector = VECTOR.to_json()
    return {
        "remove": {
            "path": path,
            "dataChange": True,
            "deletionTimestamp": now,
            "deletionVector": vector,
        }
    }


def drop_vectors(root: Path) -> Prepared:
    dropped = DropFeatures(frozenset({"deletionVectors"}), hides_history=False)
    return attempt(root, protocol=Protocol(1, 1), purpose=dropped)


@pytest.mark.parametrize("spelling", ["f.parquet", "file://{}/f.parquet"])
def test_a_file_with_the_path_of_a_removed_one_with_a_vector(tmp_path: Path, spelling: str) -> None:
    gone = removed_with_vector(spelling.format(tmp_path))
    table(
        tmp_path,
        ("deletionVectors",),
        add(f"{tmp_path}/f.parquet" if ":" in spelling else "f.parquet"),
        gone,
    )
    with pytest.raises(ConstraintViolationError, match="deletionVectors, but 1 data files need it"):
        drop_vectors(tmp_path)


def test_removed_files_with_vectors_alone_are_no_obstacle(tmp_path: Path) -> None:
    table(tmp_path, ("deletionVectors",), add("f.parquet"), removed_with_vector("g.parquet"))
    assert drop_vectors(tmp_path).actions.protocol == Protocol(1, 1)
