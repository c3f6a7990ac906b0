"""Check the ``add`` of a file against its rows."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Collection
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from airflow_delta.engine import DeltaTable, Snapshot
from airflow_delta.engine.deletion_vectors.write import write_deletion_vectors
from airflow_delta.engine.features.column_mapping import mapping_mode, physical_name

__all__ = ["check_statistics", "data_files", "rows_by_file"]


def rows_by_file(snapshot: Snapshot) -> dict[str, pa.Table]:
    """The rows of each file, by its path: a scan of just that file."""
    found = {}
    for add in snapshot.files().to_pylist():
        scan = snapshot.scan()
        rows = scan._rows
        numbers = {path: n for n, path in enumerate(rows._adds["path"].to_pylist())}
        parts = rows.split(numbers[add["path"]])
        batches = [batch for part in parts for batch in rows.run(part)]
        found[add["path"]] = pa.Table.from_batches(batches, scan.schema)
    return found


def check_statistics(snapshot: Snapshot, paths: Collection[str]) -> None:
    """The statistics of files are those of their rows, with tight bounds."""
    mode = mapping_mode(snapshot.protocol, snapshot.metadata, table=snapshot.table)
    adds = {add["path"]: add for add in snapshot.files().to_pylist()}
    for path, rows in rows_by_file(snapshot).items():
        if path not in paths:
            continue
        statistics = json.loads(adds[path]["stats"])
        assert statistics["numRecords"] == rows.num_rows
        assert statistics["tightBounds"] is True
        for field in snapshot.schema:
            physical = physical_name(field, mode)
            column = rows[field.name]
            if field.name in snapshot.metadata.partition_columns:
                assert all(physical not in statistics[kind] for kind in ("minValues", "nullCount"))
                continue
            if not isinstance(statistics["nullCount"].get(physical), int):
                continue
            assert statistics["nullCount"][physical] == column.null_count
            expected = _bounds(column)
            low, high = (statistics[kind].get(physical) for kind in ("minValues", "maxValues"))
            if expected is None:
                assert (low, high) == (None, None), field.name
            else:
                assert _same(low, expected[0], is_max=False), (field.name, low, expected)
                assert _same(high, expected[1], is_max=True), (field.name, high, expected)


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any] | None:
    if pa.types.is_boolean(column.type) or pa.types.is_binary(column.type):
        return None
    values = [value for value in column.to_pylist() if value is not None]
    if not values or any(isinstance(v, float) and not math.isfinite(v) for v in values):
        return None
    found = pc.min_max(column).as_py()
    return found["min"], found["max"]


def _same(stated: Any, value: Any, *, is_max: bool) -> bool:
    if isinstance(value, str):
        return (
            bool(stated == value)
            if len(value) <= 32
            else stated[:32] == value[:32] and (not is_max or stated > value)
        )
    if isinstance(value, dt.datetime):
        milliseconds = value.replace(microsecond=value.microsecond // 1000 * 1000)
        text = milliseconds.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return bool(stated == text + ("Z" if value.tzinfo else ""))
    if isinstance(value, dt.date):
        return bool(stated == value.isoformat())
    if isinstance(value, Decimal):
        return Decimal(str(stated)) == value
    return bool(stated == value)


def data_files(root: Path) -> set[str]:
    """The Parquet files in the directory of a table, but for the log."""
    return {
        str(path.relative_to(root))
        for path in root.rglob("*.parquet")
        if "_delta_log" not in path.parts
    }


def delete_in_log(root: Path, num_rows: int, *, cardinality: int) -> None:
    """Give each file of the newest commit a deletion vector of its first rows, of any cardinality."""
    table = DeltaTable(str(root))
    version = table.latest_version()
    (descriptor,), _ = write_deletion_vectors(table.storage, [BitMap64(range(num_rows))])
    vector = descriptor.to_json() | {"cardinality": cardinality}
    commit = root / f"_delta_log/{version:020}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            action["add"]["deletionVector"] = vector
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    commit.with_suffix(".crc").unlink(missing_ok=True)
