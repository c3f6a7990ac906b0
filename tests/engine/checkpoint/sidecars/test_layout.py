from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from airflow_delta.engine.checkpoint.sidecars import layout as layout_module
from airflow_delta.engine.checkpoint.sidecars.layout import clustered, sidecar_layout
from airflow_delta.engine.model.actions import Metadata
from tests.engine.checkpoint.contents import (
    METADATA,
    PROTOCOL_V2,
    add_row,
    add_table,
    remove_row,
    remove_table,
)

SHUFFLED = random.Random(5)


@pytest.fixture(autouse=True)
def ten_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout_module, "SIDECAR_ROWS", 10)


def pieces(*files: tuple[str, pa.Table]) -> list[tuple[str, list[dict[str, Any]]]]:
    return [(rows.kind, rows.load().to_pylist()) for rows in clustered(files)]


def partitioned(*sizes: int) -> list[dict[str, Any]]:
    """Adds of some partitions, whose paths don't tell the partition, in any order."""
    rows = [
        add_row(0, path=f"{SHUFFLED.randrange(10**9):09}", partitionValues=[("p", f"v{n:02}")])
        for n, size in enumerate(sizes)
        for _ in range(size)
    ]
    SHUFFLED.shuffle(rows)
    return rows


def values(rows: list[dict[str, Any]]) -> list[str | None]:
    return [dict(row["partitionValues"])["p"] for row in rows]


def test_adds_are_sorted_by_partition_and_path() -> None:
    rows = partitioned(2, 5, 3)
    ((kind, found),) = pieces(("add", add_table(rows[:4])), ("add", add_table(rows[4:])))
    keys = [(dict(row["partitionValues"])["p"], row["path"]) for row in found]
    assert kind == "add"
    assert keys == sorted(keys)
    assert sorted(row["path"] for row in rows) == sorted(path for _, path in keys)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([10, 10], [10, 10]),
        ([8, 8, 8], [8, 8, 8]),  # each ends with a partition
        ([3, 4, 4, 4], [7, 8]),
        ([25], [9, 8, 8]),  # none ends near: evenly, so that no small one is left
        ([4, 20], [8, 8, 8]),  # too early to end
        ([7, 19], [7, 10, 9]),
        ([11], [6, 5]),
    ],
)
def test_sidecars_end_with_partitions_where_one_ends_near(
    sizes: list[int], expected: list[int]
) -> None:
    found = pieces(("add", add_table(partitioned(*sizes))))
    assert [len(rows) for _, rows in found] == expected


def test_several_partition_columns_sort_in_their_order_and_nulls_come_first() -> None:
    def row(day: str | None, region: str) -> dict[str, Any]:
        return add_row(0, path=f"{region}{day}", partitionValues=[("day", day), ("r", region)])

    rows = [row("2", "a"), row("1", "b"), row(None, "z"), row("1", "a")]
    ((_, found),) = pieces(("add", add_table(rows)))
    assert [tuple(v for _, v in r["partitionValues"]) for r in found] == [
        (None, "z"),
        ("1", "a"),
        ("1", "b"),
        ("2", "a"),
    ]


def test_unpartitioned_adds_are_sorted_by_path() -> None:
    rows = [add_row(0, path=path, partitionValues=[]) for path in ("b", "ü", "a")]
    ((_, found),) = pieces(("add", add_table(rows)))
    assert [row["path"] for row in found] == ["a", "b", "ü"]


def test_removes_are_sorted_by_time() -> None:
    times = [*range(15), None]
    SHUFFLED.shuffle(times)
    rows = [remove_row(n, deletionTimestamp=time) for n, time in enumerate(times)]
    found = pieces(("remove", remove_table(rows)))
    assert [len(rows) for _, rows in found] == [8, 8]
    deleted = [row["deletionTimestamp"] or 0 for _, rows in found for row in rows]
    assert deleted == sorted(time or 0 for time in times)


def test_kinds_are_apart_and_empty_tables_make_nothing() -> None:
    empty = add_table([])
    found = pieces(
        ("add", empty),
        ("remove", remove_table([remove_row(1)])),
        ("add", add_table([add_row(1)])),
        ("remove", remove_table([remove_row(2)])),
    )
    assert [(kind, len(rows)) for kind, rows in found] == [("add", 1), ("remove", 2)]


def test_runs_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sorted together is bounded, and nothing gets lost between the runs."""
    tables = [add_table([add_row(n)]) for n in range(9)]
    monkeypatch.setattr(layout_module, "_RUN_BYTES", 2 * tables[0].nbytes)
    found = pieces(*[("add", table) for table in tables])
    assert [len(rows) for _, rows in found] == [2, 2, 2, 2, 1]
    assert sorted(r["size"] for _, rows in found for r in rows) == [100 + n for n in range(9)]


def form(**configuration: str) -> str:
    properties = {f"delta.checkpoint.{name}": value for name, value in configuration.items()}
    metadata = Metadata.from_json({**METADATA.to_json(), "configuration": properties}, "test")
    return sidecar_layout(PROTOCOL_V2, metadata, table="t").stats_form


def test_the_form_of_statistics_tells_all_layouts_apart() -> None:
    forms = [
        form(),
        form(writeStatsAsStruct="true"),
        form(writeStatsAsStruct="true", writeStatsAsJson="false"),
        form(writeStatsAsJson="false"),
    ]
    assert len(set(forms)) == 4
    assert form(writeStatsAsJson="true") == forms[0]
    assert form(writeStatsAsStruct="true") == forms[1]


def test_another_type_of_a_column_is_another_form_where_it_is_typed() -> None:
    text = METADATA.schema_string
    assert text is not None

    def of(schema: str, struct: str) -> str:
        obj = {
            **METADATA.to_json(),
            "schemaString": schema,
            "configuration": {"delta.checkpoint.writeStatsAsStruct": struct},
        }
        return sidecar_layout(PROTOCOL_V2, Metadata.from_json(obj, "test"), table="t").stats_form

    other = text.replace('"long"', '"double"')
    assert other != text
    assert of(text, "true") != of(other, "true")
    assert of(text, "false") == of(other, "false")
