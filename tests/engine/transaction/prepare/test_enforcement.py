"""Rules about rows: who writes the rows says that it enforced them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine.errors import ConstraintViolationError, UnsupportedFeatureError
from tests.engine.transaction.prepare.attempts import (
    VECTOR,
    attempt,
    counted,
    file,
    mapped,
    schema,
    table,
    tombstone,
    with_properties,
)
from tests.log_builder import add

MAPPING = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}


def ruled(key: str, value: Any) -> dict[str, Any]:
    columns = schema(id="long", part="string")
    columns["fields"][0]["metadata"] = {key: value}
    return columns


IDENTITY = {"delta.identity.start": 1, "delta.identity.step": 1}
RULES: list[tuple[str, dict[str, Any]]] = [
    (
        "invariants",
        {"schema": ruled("delta.invariants", '{"expression":{"expression":"id > 3"}}')},
    ),
    ("checkConstraints", {"configuration": {"delta.constraints.positive": "id > 0"}}),
    ("generatedColumns", {"schema": ruled("delta.generationExpression", "1 + 1")}),
    ("allowColumnDefaults", {"schema": ruled("CURRENT_DEFAULT", "7")}),
    ("identityColumns", {"schema": schema(id="long", part="string")}),
    ("icebergCompatV1", {"configuration": {**MAPPING, "delta.enableIcebergCompatV1": "true"}}),
    ("icebergCompatV2", {"configuration": {**MAPPING, "delta.enableIcebergCompatV2": "true"}}),
]
RULES[4][1]["schema"]["fields"][0]["metadata"] = IDENTITY


def ruled_table(root: Path, feature: str, options: dict[str, Any]) -> Path:
    features = (feature,)
    if feature.startswith("iceberg"):
        features = ("columnMapping", feature)
        options = {**options, "schema": mapped(schema(id="long", part="string"))}
    return table(root, features, add("old", stats=counted(1)), **options)


@pytest.mark.parametrize(("feature", "options"), RULES, ids=[name for name, _ in RULES])
def test_files_need_a_writer_that_enforced_the_rule(
    tmp_path: Path, feature: str, options: dict[str, Any]
) -> None:
    ruled_table(tmp_path, feature, options)
    new = file("new", stats=counted(1))
    for declared in ((), ("deletionVectors",)):
        with pytest.raises(UnsupportedFeatureError, match=feature) as caught:
            attempt(tmp_path, adds=(new,), enforced=declared)
        assert caught.value.features == (feature,)
    assert attempt(tmp_path, adds=(new,), enforced=[feature]).actions.adds == (new,)


@pytest.mark.parametrize(("feature", "options"), RULES, ids=[name for name, _ in RULES])
def test_commits_without_new_rows_need_nobody(
    tmp_path: Path, feature: str, options: dict[str, Any]
) -> None:
    ruled_table(tmp_path, feature, options)
    attempt(tmp_path, removes=(tombstone("old"),))
    attempt(tmp_path, metadata=with_properties(tmp_path, mine="1"))


@pytest.mark.parametrize(("feature", "options"), RULES, ids=[name for name, _ in RULES])
def test_a_file_that_is_committed_again_brings_no_new_rows(
    tmp_path: Path, feature: str, options: dict[str, Any]
) -> None:
    ruled_table(tmp_path, feature, options)
    again = file("old", stats=counted(1), data_change=False)
    assert attempt(tmp_path, adds=(again,)).actions.adds == (again,)
    with pytest.raises(UnsupportedFeatureError, match=feature):
        attempt(tmp_path, adds=(again, file("new", stats=counted(1))))


def test_a_feature_that_nobody_knows_stops_every_commit(tmp_path: Path) -> None:
    table(tmp_path, ("fromTheFuture",), add("old"))
    for actions in ({"adds": (file(),)}, {"removes": (tombstone("old"),)}):
        with pytest.raises(UnsupportedFeatureError, match="fromTheFuture"):
            attempt(tmp_path, **actions, enforced=["fromTheFuture"])


def nulls(**counts: Any) -> str:
    return json.dumps({"numRecords": 5, "nullCount": counts})


def without_nulls() -> dict[str, Any]:
    """``id`` and ``s.x`` have no nulls; ``s.y`` may have, and ``t.x`` is null where ``t`` is."""
    columns = schema(id="long", s=schema(x="long", y="long"), t=schema(x="long"))
    columns["fields"][0]["nullable"] = False
    columns["fields"][1]["nullable"] = False
    for struct in columns["fields"][1:]:
        struct["type"]["fields"][0]["nullable"] = False
    return columns


@pytest.mark.parametrize(
    ("stats", "column"),
    [
        (nulls(id=1), "id"),
        (nulls(s={"x": 5}), r"s\.x"),
        (nulls(id=0, s={"x": 0, "y": 3}, t={"x": 3}), None),
        (nulls(), None),
        (None, None),
    ],
)
def test_statistics_that_show_nulls_are_refused(
    tmp_path: Path, stats: str | None, column: str | None
) -> None:
    table(tmp_path, ("invariants",), schema=without_nulls())
    if column is None:
        attempt(tmp_path, adds=(file(stats=stats),))
    else:
        with pytest.raises(
            ConstraintViolationError, match=f"nulls in the column {column}, which is"
        ):
            attempt(tmp_path, adds=(file(stats=stats),))


def test_nulls_may_be_among_the_rows_that_are_deleted(tmp_path: Path) -> None:
    on = {"delta.enableDeletionVectors": "true"}
    features = ("invariants", "deletionVectors")
    table(tmp_path, features, schema=without_nulls(), configuration=on)
    attempt(tmp_path, adds=(file(stats=nulls(id=1), deletion_vector=VECTOR),))
