"""Golden tables, optimized: their rows stay, or the engine refuses by a typed error and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_delta.engine import DeltaTable, Snapshot
from airflow_delta.engine.errors import DeltaError
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.features.statistics_columns import (
    columns_with_statistics,
    has_bounds,
    leaf_columns,
)
from tests.conftest import golden_manifest
from tests.deep import deep_but_for
from tests.row_tables import bag

CASES = [
    case["name"]
    for case in golden_manifest()
    if case["expect"] != "error" and not case.get("data_files_missing")
]
MANY = 100_000
KEPT = [
    "data-reader-nested-struct",
    "column-mapping-id",
    "partitioned-table-with-dv-large",
    "type-widening",
    "table-with-dv-small",
]


@pytest.mark.parametrize("name", deep_but_for(CASES, *(name for name in KEPT if name in CASES)))
def test_rows_stay(golden_copy: Callable[[str], Path], name: str) -> None:
    root = golden_copy(name)
    table = DeltaTable(str(root))
    try:
        before = table.snapshot()
        rows = before.to_arrow()
    except DeltaError:  # A variant, or metadata without a schema and without files.
        assert is_refused_or_idle(table)
        return
    try:
        done = [table.optimize(), table.optimize(purge=True)]
    except DeltaError:
        assert table.latest_version() == before.version
        assert multiset(table.snapshot().to_arrow()) == multiset(rows)
        return
    after = table.snapshot()
    assert after.version == before.version + sum(each.num_commits for each in done)
    assert multiset(after.to_arrow()) == multiset(rows)
    assert (after.schema, after.metadata) == (before.schema, before.metadata)
    again = [table.optimize(), table.optimize(purge=True)]
    assert [each.num_commits for each in again] == [0, 0]


@pytest.mark.parametrize("name", deep_but_for(CASES, *(name for name in KEPT[:1] if name in CASES)))
def test_rows_stay_when_they_are_sorted(golden_copy: Callable[[str], Path], name: str) -> None:
    table = DeltaTable(str(golden_copy(name)))
    try:
        before = table.snapshot()
        rows = before.to_arrow()
        columns = columns_to_sort(before)
    except DeltaError:
        assert is_refused_or_idle(table)
        return
    try:
        done = table.optimize(z_order_by=columns or ["none"])
    except DeltaError:
        assert name not in KEPT
        assert table.latest_version() == before.version
        assert multiset(table.snapshot().to_arrow()) == multiset(rows)
        return
    assert done.num_commits or name not in KEPT
    after = table.snapshot()
    assert after.version == before.version + done.num_commits
    assert multiset(after.to_arrow()) == multiset(rows)
    assert (after.schema, after.metadata) == (before.schema, before.metadata)
    assert table.optimize(z_order_by=columns).num_commits == 0


@pytest.mark.deep
def test_the_laws_above_are_about_many_tables(golden_copy: Callable[[str], Path]) -> None:
    """Plans count the tables that the laws rewrite: they would hold of none at all, too."""
    rewritten = {"packed": 0, "sorted": 0}
    for name in CASES:
        table = DeltaTable(str(golden_copy(name)))
        with suppress(DeltaError):
            plans = [table.optimize(dry_run=True), table.optimize(purge=True, dry_run=True)]
            rewritten["packed"] += any(each.plan.num_bins for each in plans)
        with suppress(DeltaError):
            columns = columns_to_sort(table.snapshot())
            plan = table.optimize(z_order_by=columns or ["none"], dry_run=True).plan
            rewritten["sorted"] += bool(plan.num_bins)
    assert all(count > len(CASES) // 4 for count in rewritten.values()), rewritten


def columns_to_sort(snapshot: Snapshot) -> list[SchemaPath]:
    """Up to four columns by which the rows can be sorted."""
    leaves = leaf_columns(snapshot.schema)
    return sorted(
        path
        for path in columns_with_statistics(leaves, snapshot.properties)
        if has_bounds(leaves[path]) and path[0] not in snapshot.metadata.partition_columns
    )[:4]


def multiset(rows: pa.Table) -> Any:
    """Rows in a form that is equal for equal rows in any order.

    Two of the tables have a million rows, of plain columns: as Python values they would take minutes.
    """
    if rows.num_rows < MANY:
        return bag(rows.to_pylist())
    return rows.sort_by([(name, "ascending") for name in rows.column_names])


def is_refused_or_idle(table: DeltaTable) -> bool:
    try:
        return table.optimize().num_commits == 0
    except DeltaError:
        return True
