"""Compactions of random tables: rows, row ids and everything else stay as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.deep import deep_but_for
from tests.engine.maintenance.optimize.files_of_rows import check_statistics, data_files
from tests.row_tables import bag, random_table

LAYOUTS: dict[str, dict[str, Any]] = {
    "none": {},
    "name, tracked": {"mode": "name", "partition_by": ("p",), "tracked": True},
    "id": {"mode": "id", "partition_by": ("q", "p")},
    "partitioned": {"partition_by": ("q",), "tracked": True},
    "id, tracked": {"mode": "id", "tracked": True},
}


@pytest.mark.parametrize("layout", deep_but_for(LAYOUTS, "none", "name, tracked", "id"))
@pytest.mark.parametrize("seed", deep_but_for(range(4), 2))
def test_rows_stay_as_they_were(tmp_path: Path, layout: str, seed: int) -> None:
    options = LAYOUTS[layout]
    made = random_table(tmp_path / "t", seed, num_files=8, **options)
    tracked = options.get("tracked", False)
    table = made.table
    before = table.snapshot()
    planned = table.optimize(max_file_size=1 << 20, dry_run=True)
    assert (planned.num_commits, table.latest_version()) == (0, before.version)
    done = table.optimize(max_file_size=1 << 20)
    after = table.snapshot()
    assert bag(after.to_arrow(with_row_tracking=tracked).to_pylist()) == bag(made.rows)
    assert (after.metadata, after.protocol) == (before.metadata, before.protocol)
    assert done.num_removed == len(planned.plan.files) > 0
    assert done.num_added <= planned.plan.num_bins
    assert after.num_files == before.num_files - done.num_removed + done.num_added
    rewritten = {add["path"] for add in after.files().to_pylist() if add["tags"]}
    assert len(rewritten) == done.num_added
    assert table.optimize(max_file_size=1 << 20).plan.num_bins == 0
    assert len(data_files(made.path)) == before.num_files + done.num_added


@pytest.mark.parametrize("layout", deep_but_for(LAYOUTS, "name, tracked"))
@pytest.mark.parametrize("seed", deep_but_for(range(4), 3))
def test_statistics_are_those_of_the_rows(tmp_path: Path, layout: str, seed: int) -> None:
    table = random_table(tmp_path / "t", seed, num_files=6, **LAYOUTS[layout]).table
    done = table.optimize(max_file_size=1 << 20)
    rewritten = [add["path"] for add in table.snapshot().files().to_pylist() if add["tags"]]
    assert len(rewritten) == done.num_added > 0
    check_statistics(table.snapshot(), rewritten)
