"""A vacuum of every golden table, when everything has grown old: what is live stays, and all else goes.

The tables were written by other engines, with their own ideas of names, folders and deletion vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.deletion_vectors.read import get_relative_path
from airflow_delta.engine.errors import (
    InvalidTableError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from airflow_delta.engine.maintenance.vacuum.plan import plan_vacuum
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.model.paths import resolve
from tests.conftest import NO_GOLDEN, golden_manifest
from tests.vacuum_world import NOW_MS

CASES = [case["name"] for case in golden_manifest() if case["expect"] != "error"]


def live_files(table: DeltaTable) -> set[str]:
    """What the newest version reads, as whole paths."""
    snapshot = table.snapshot()
    vectors = snapshot.files(["deletionVector"])["deletionVector"].to_pylist()
    descriptors = [DeletionVectorDescriptor.from_json(v, "dv") for v in vectors if v is not None]
    inside = {get_relative_path(d) for d in descriptors if d.storage_type == "u"}
    whole = {resolve("/", d.path_or_inline_dv) for d in descriptors if d.storage_type == "p"}
    return {*snapshot.file_uris()} | {f"{table.uri}/{path}" for path in inside} | whole


def others(root: Path) -> set[str]:
    """All files that aren't hidden."""
    found = set()
    for file in root.rglob("*"):
        parts = file.relative_to(root).parts
        shown = parts[1:] if parts[0] == "_change_data" else parts
        if file.is_file() and not any(part.startswith(("_", ".")) for part in shown):
            found.add(str(file))
    return found


@pytest.mark.skipif(not CASES, reason=NO_GOLDEN)
def test_there_is_something_to_look_at(golden_case: Callable[[str], Path]) -> None:
    deleted = {"full": 0, "lite": 0}
    for name in ("snapshot-data2-deleted", "dat-deletion_vectors", "cdf-table-simple"):
        for mode in deleted:
            deleted[mode] += len(planned(golden_case(name), mode))
    assert min(deleted.values()) > 2


def planned(root: Path, mode: Any) -> set[str]:
    table = DeltaTable(str(root))
    plan = plan_vacuum(
        table.storage,
        CommitOwners(),
        mode=mode,
        retention_hours=0,
        enforce_retention=False,
        now_ms=NOW_MS,
    )
    return {f"{root}/{path}" for path in plan.files["path"].to_pylist()}


@pytest.mark.filterwarnings("ignore::airflow_delta.engine.errors.DeltaWarning")
@pytest.mark.parametrize("name", CASES)
def test_live_files_stay_and_all_others_are_deleted(
    name: str, golden_case: Callable[[str], Path]
) -> None:
    root = golden_case(name)
    try:
        full = planned(root, "full")
    except (InvalidTableError, UnsupportedFeatureError):
        return  # the engine doesn't write the table, and says so
    live = live_files(DeltaTable(str(root)))
    assert full == others(root) - live
    with suppress(VersionNotFoundError):
        assert planned(root, "lite") & others(root) <= full
