"""Statistics of clustering columns: PROTOCOL.md, "Clustered Table"."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine.errors import ConstraintViolationError, InvalidTableError
from airflow_delta.engine.features.clustering import clustering_domain
from tests.engine.transaction.prepare.attempts import (
    attempt,
    file,
    schema,
    table,
    tombstone,
    write,
)
from tests.log_builder import add

FEATURES = ("clustering", "domainMetadata")


def statistics(nulls: Any = 0, *, records: int | None = 3, **bounds: Any) -> str:
    """Statistics of the column ``s.x``."""
    recorded: dict[str, Any] = {} if records is None else {"numRecords": records}
    if nulls is not None:
        recorded["nullCount"] = {"s": {"x": nulls}}
    return json.dumps({**recorded, **{name: {"s": {"x": bound}} for name, bound in bounds.items()}})


def nested_table(root: Path, *actions: dict[str, Any], type_: str = "long") -> Path:
    return table(root, FEATURES, *actions, schema=schema(id="long", s=schema(x=type_)))


def by(*paths: list[str]) -> dict[str, Any]:
    return {"domainMetadata": clustering_domain([tuple(path) for path in paths]).to_json()}


BOUNDS = {"minValues": 1, "maxValues": 2}
CASES = [
    ("long", None, "numRecords"),
    ("long", statistics(records=None, **BOUNDS), "numRecords"),
    ("long", statistics(None, **BOUNDS), "nullCount"),
    ("long", statistics(minValues=1), "maxValues"),
    ("long", statistics(maxValues=1), "minValues"),
    ("long", statistics(nulls=2), "minValues"),
    ("long", statistics(nulls=3), None),
    ("long", statistics(**BOUNDS), None),
    ("double", statistics(), None),
    ("string", statistics(), None),
    # Days and times after the year 9999 have no form in JSON.
    ("date", statistics(), None),
    ("timestamp", statistics(), None),
    ("timestamp_ntz", statistics(), None),
    ("timestamp", statistics(None), "nullCount"),
    ("string", statistics(None), "nullCount"),
]


@pytest.mark.parametrize(("type_", "stats", "lacking"), CASES)
def test_a_clustered_table_gets_statistics_of_its_clustering_columns(
    tmp_path: Path, type_: str, stats: str | None, lacking: str | None
) -> None:
    nested_table(tmp_path, by(["s", "x"]), type_=type_)
    if lacking is None:
        attempt(tmp_path, adds=(file(stats=stats),))
    else:
        match = rf"lack {lacking} of the clustering column s\.x"
        with pytest.raises(ConstraintViolationError, match=match):
            attempt(tmp_path, adds=(file(stats=stats),))


def test_of_a_file_without_records_there_is_nothing_to_tell(tmp_path: Path) -> None:
    nested_table(tmp_path, by(["s", "x"]))
    attempt(tmp_path, adds=(file(stats='{"numRecords":0}'),))
    nested_table(tmp_path / "later", add("empty", stats='{"numRecords":0}'))
    changed = {"delta.clustering": clustering_domain([("s", "x")])}
    attempt(tmp_path / "later", domains=changed)
    nested_table(tmp_path / "missing", add("missing"))
    with pytest.raises(ConstraintViolationError, match="'missing' lack nullCount"):
        attempt(tmp_path / "missing", domains=changed)


def test_statistics_that_only_some_readers_take_for_json_are_none(tmp_path: Path) -> None:
    nested_table(tmp_path, by(["s", "x"]))
    recorded = statistics(minValues=1, maxValues=2)
    files = [file(f"f{number}", stats=recorded) for number in range(70)]
    attempt(tmp_path, adds=tuple(files))
    odd = file("odd", stats=f'{recorded[:-1]},"x":Inf}}')
    with pytest.raises(ConstraintViolationError, match=r"'odd' aren't JSON|'odd': expected a JSON"):
        attempt(tmp_path, adds=(*files, odd))


def test_a_table_clustered_by_nothing_asks_for_no_statistics(tmp_path: Path) -> None:
    nested_table(tmp_path)
    attempt(tmp_path, adds=(file(),))
    nested_table(tmp_path / "none", by())
    attempt(tmp_path / "none", adds=(file(),))


def test_a_file_keeps_the_name_of_what_clustered_it(tmp_path: Path) -> None:
    nested_table(tmp_path, by(["s", "x"]))
    clustered = file(stats=statistics(**BOUNDS), clustering_provider="liquid")
    assert write(tmp_path, attempt(tmp_path, adds=(clustered,)))["add"][0][
        "clusteringProvider"
    ] == ("liquid")


def test_new_clustering_columns_need_statistics_of_all_files(tmp_path: Path) -> None:
    recorded, missing = (
        add("recorded", stats=statistics(**BOUNDS)),
        add("missing", stats='{"numRecords":3}'),
    )
    nested_table(tmp_path, recorded, missing)
    domain = clustering_domain([("s", "x")])
    changed = {"delta.clustering": domain}
    with pytest.raises(ConstraintViolationError, match="'missing' lack nullCount"):
        attempt(tmp_path, domains=changed)
    again = file("missing", stats=statistics(**BOUNDS), data_change=False)
    attempt(tmp_path, domains=changed, adds=(again,))
    attempt(tmp_path, domains=changed, removes=(tombstone("missing"),))


def test_columns_that_are_no_longer_clustered_by_need_no_statistics(tmp_path: Path) -> None:
    nested_table(tmp_path, by(["s", "x"]))
    attempt(tmp_path, domains={"delta.clustering": clustering_domain([])}, adds=(file(),))


@pytest.mark.parametrize(
    ("paths", "problem"),
    [
        ([("y",)], "is no column"),
        ([("s",)], "is of the type struct<x:long>"),
        ([("id",), ("id",)], "is listed twice"),
    ],
)
def test_clustering_columns_are_columns(
    tmp_path: Path, paths: list[tuple[str, ...]], problem: str
) -> None:
    nested_table(tmp_path)
    with pytest.raises(InvalidTableError, match=problem):
        attempt(tmp_path, domains={"delta.clustering": clustering_domain(paths)})


def test_a_partitioned_table_is_not_clustered(tmp_path: Path) -> None:
    table(tmp_path, FEATURES, partition_columns=["part"])
    with pytest.raises(InvalidTableError, match=r"partitioned by \['part'\]"):
        attempt(tmp_path, domains={"delta.clustering": clustering_domain([("id",)])})
