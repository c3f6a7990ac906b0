"""Compactions of random tables: rows, row ids and everything else stay as they were."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import LONG, STRING, AddFile, DeltaTable, StructField, StructType
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


@pytest.mark.parametrize(
    ("old", "new"),
    [("zstd", "zstd"), ("none", "zstd"), ("zstd", "uncompressed")],
    ids=["same", "smaller", "larger"],
)
def test_files_have_the_requested_size(tmp_path: Path, old: str, new: str) -> None:
    """Whatever the codec does to the sizes: twice the size if files grow, else hardly more than it."""
    most = 256 << 10
    schema = StructType((StructField("id", LONG), StructField("text", STRING)))
    properties = {"delta.parquet.compression.codec": new}
    table = DeltaTable.create(str(tmp_path), schema, properties=properties)
    chosen = random.Random(0)
    transaction = table.transaction("WRITE")
    for number in range(60):
        # Half of each text can be compressed.
        texts = [f"{chosen.getrandbits(256):064x}" for _ in range(chosen.randrange(200, 600))]
        rows = pa.table({"id": [chosen.getrandbits(62) for _ in texts], "text": texts})
        path = tmp_path / f"{number}.parquet"
        pq.write_table(rows, path, compression=old)
        stats = json.dumps({"numRecords": len(texts)})
        add = AddFile(path.name, {}, path.stat().st_size, 1, data_change=True, stats=stats)
        transaction.add_file(add)
    transaction.commit()
    before = table.snapshot().to_arrow().sort_by("id")
    done = table.optimize(max_file_size=most, min_file_size=most // 2)
    sizes = sorted(table.snapshot().files()["size"].to_pylist())
    assert done.num_removed == 60
    assert table.snapshot().to_arrow().sort_by("id").equals(before)
    assert sizes[-1] <= most * (2 if new == "uncompressed" else 1.25), sizes
    # All but the last one.
    assert sizes[1] >= most // 2, sizes
    assert table.optimize(max_file_size=most, min_file_size=most // 2).num_commits == 0
