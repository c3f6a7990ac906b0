"""Pruning by the leaves of ``stats_parsed``: when they answer, and that nothing else is read then."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.arrow.parquet.source import ParquetSource
from airflow_delta.engine.arrow.statistics.columns import StatisticsColumns
from airflow_delta.engine.model.schema import TIMESTAMP
from tests.engine.scan.rows import adds, checkpoint, kept_of_checkpoint, schema, stats

INNER = {
    "type": "struct",
    "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}],
}
COLUMNS = schema(a="long", b="long", ts="timestamp", s=INNER)
a, b, ts = pc.field("a"), pc.field("b"), pc.field("ts")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The columns that are decoded."""
    columns_read: set[str] = set()
    batches = ParquetSource.batches

    def noted(
        self: ParquetSource, group: int, columns: Sequence[str], **options: Any
    ) -> Iterator[Any]:
        columns_read.update(columns)
        return batches(self, group, columns, **options)

    monkeypatch.setattr(ParquetSource, "batches", noted)
    return columns_read


def ranges(*bounds: tuple[int, int]) -> pa.Table:
    return adds(*(stats(low={"a": x}, high={"a": y}, nulls={"a": 0}) for x, y in bounds))


def struct(**bounds: pa.DataType) -> pa.StructType:
    """A type of ``stats_parsed`` with bounds of these types."""
    both = pa.struct([*bounds.items()])
    counts = pa.struct([(name, pa.int64()) for name in bounds])
    parts = [("minValues", both), ("maxValues", both), ("nullCount", counts)]
    return pa.struct([("numRecords", pa.int64()), *parts])


def test_only_the_leaves_of_the_predicate_are_read(read: set[str]) -> None:
    file = checkpoint(ranges((1, 2), (3, 4)), COLUMNS, text=True)
    assert kept_of_checkpoint(a > 4, file, COLUMNS) == []
    assert read == {
        f"add.stats_parsed.{leaf}"
        for leaf in ("numRecords", "nullCount.a", "minValues.a", "maxValues.a")
    }


def test_the_wanted_columns_are_read_where_a_file_is_kept(read: set[str]) -> None:
    file = checkpoint(ranges((1, 2), (3, 4), (5, 6)), COLUMNS, text=True)
    assert kept_of_checkpoint(a == 3, file, COLUMNS) == [1]
    assert "add.path" in read
    assert "add.stats" not in read


def test_leaves_inside_a_struct() -> None:
    files = adds(*(stats(low={"s": {"x": n}}, high={"s": {"x": n}}) for n in range(5)))
    predicate = pc.field("s", "x") >= 3
    assert kept_of_checkpoint(predicate, checkpoint(files, COLUMNS), COLUMNS) == [3, 4]


@pytest.mark.parametrize("text", [True, False])
def test_the_text_answers_where_a_leaf_is_of_an_older_type(text: bool, read: set[str]) -> None:
    """The column was an integer when the checkpoint was written; later files aren't in it."""
    file = checkpoint(ranges((1, 2), (3, 4)), COLUMNS, text=text, stats_type=struct(a=pa.int32()))
    assert kept_of_checkpoint(a > 2, file, COLUMNS) == [1]
    assert ("add.stats" in read) == text
    assert not any(column.startswith("add.stats_parsed.") for column in read)


def test_a_wider_integer_than_needed_is_no_older_type(read: set[str]) -> None:
    narrow = schema(a="short")
    file = checkpoint(ranges((1, 2), (3, 4)), narrow, text=True, stats_type=struct(a=pa.int32()))
    assert kept_of_checkpoint(a > 2, file, narrow) == [1]
    assert "add.stats" not in read


def test_a_leaf_that_is_missing_is_unknown() -> None:
    files = adds(stats(low={"a": 1, "b": 1}, high={"a": 2, "b": 2}, nulls={"a": 0, "b": 0}))
    file = checkpoint(files, COLUMNS, stats_type=struct(a=pa.int64()))
    assert kept_of_checkpoint(b > 2, file, COLUMNS) == [0]
    assert kept_of_checkpoint((b > 2) & (a > 2), file, COLUMNS) == []


def test_a_leaf_that_is_missing_is_looked_for_in_the_text() -> None:
    files = adds(stats(low={"a": 1, "b": 1}, high={"a": 2, "b": 2}))
    file = checkpoint(files, COLUMNS, text=True, stats_type=struct(a=pa.int64()))
    assert kept_of_checkpoint(b > 2, file, COLUMNS) == []


def test_adds_without_statistics_are_kept() -> None:
    file = checkpoint(adds(None, stats(high={"a": 1}), "{}", None), COLUMNS)
    assert kept_of_checkpoint(a > 5, file, COLUMNS) == [0, 2, 3]


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (ts > pa.scalar("2024-01-01T00:00:00.002500Z").cast(pa.timestamp("us", "UTC")), [0]),
        (ts > pa.scalar("2024-01-01T00:00:00.003001Z").cast(pa.timestamp("us", "UTC")), []),
        (ts < pa.scalar("2024-01-01T00:00:00.002000Z").cast(pa.timestamp("us", "UTC")), []),
    ],
)
def test_timestamps_are_as_coarse_as_in_the_text(predicate: Any, expected: list[int]) -> None:
    """What the struct holds was cut to milliseconds, too."""
    moment = {"ts": "2024-01-01T00:00:00.002Z"}
    file = checkpoint(adds(stats(low=moment, high=moment)), COLUMNS)
    assert kept_of_checkpoint(predicate, file, COLUMNS) == expected


def test_the_end_of_time_does_not_wrap_around() -> None:
    last = pa.scalar(2**63 - 1, pa.int64()).cast(pa.timestamp("us", "UTC"))
    bounds = pa.array([{"ts": last.value}], pa.struct([("ts", pa.int64())]))
    bounds = bounds.cast(pa.struct([("ts", last.type)]))
    parsed = pa.StructArray.from_arrays([bounds, bounds], ["minValues", "maxValues"])
    known = StatisticsColumns([(("ts",), TIMESTAMP)]).read(parsed)[("ts",)]
    assert known.maximum[0] == last
    assert pc.less_equal(known.minimum, known.maximum)[0].as_py()


@pytest.mark.parametrize("properties", [{}, {"delta.checkpoint.writeStatsAsJson": "false"}])
@pytest.mark.parametrize(
    "predicate", [a >= 7, (a < 3) | (a == 11), a.is_null(), pc.field("p") == 1]
)
def test_a_snapshot_prunes_alike_with_and_without_checkpoint(
    tmp_path: Path, properties: dict[str, str], predicate: Any
) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    columns = [
        {"name": name, "type": "long", "nullable": True, "metadata": {}} for name in ("a", "p")
    ]
    metadata = {
        "id": "11111111-2222-3333-4444-555555555555",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": columns}),
        "partitionColumns": ["p"],
        "configuration": {"delta.checkpoint.writeStatsAsStruct": "true", **properties},
    }
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": metadata},
    ]
    for version in range(12):
        text = stats(low={"a": version}, high={"a": version}, nulls={"a": version % 2})
        add = {"path": f"f{version}", "partitionValues": {"p": str(version % 3)}, "size": 1}
        actions.append({"add": {**add, "modificationTime": 1, "dataChange": True, "stats": text}})
        lines = "".join(json.dumps(action) + "\n" for action in actions)
        (log / f"{version:020}.json").write_text(lines)
        actions = []
    # The tail takes a file of the checkpoint out again.
    removed = {"path": "f2", "deletionTimestamp": 1, "dataChange": True}
    (log / f"{12:020}.json").write_text(json.dumps({"remove": removed}))
    table = DeltaTable(str(tmp_path))
    without = table.snapshot().files(["path"], predicate)
    table.checkpoint(9)
    snapshot = table.snapshot()
    assert snapshot.segment.checkpoint is not None
    pruned = snapshot.files(["path"], predicate)
    assert sorted(pruned["path"].to_pylist()) == sorted(without["path"].to_pylist())
    assert 0 < pruned.num_rows < 11
    assert pruned.column_names == ["path"]
