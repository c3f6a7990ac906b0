"""High water marks of identity columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import ConstraintViolationError, UnsupportedFeatureError
from tests.engine.transaction.prepare.attempts import (
    attempt,
    file,
    mapped,
    schema,
    table,
    with_properties,
    write,
)
from tests.log_builder import add, write_commit

FEATURE = ("identityColumns",)
MARK = "delta.identity.highWaterMark"


def identity_table(root: Path, **marks: Any) -> Path:
    columns = schema(key="long", name="string")
    columns["fields"][0]["metadata"] = {
        "comment": "kept",
        "delta.identity.start": 1,
        "delta.identity.step": 2,
        "delta.identity.allowExplicitInsert": True,
        **{f"delta.identity.{name}": value for name, value in marks.items()},
    }
    return table(root, FEATURE, schema=columns)


def key_metadata(root: Path) -> Any:
    field = DeltaTable(str(root)).snapshot().schema.field("key")
    assert field is not None
    return field.metadata


def test_an_insert_moves_the_mark_in_the_metadata(tmp_path: Path) -> None:
    identity_table(tmp_path)
    prepared = attempt(tmp_path, adds=(file(),), identity_marks={"key": 8}, enforced=FEATURE)
    written = write(tmp_path, prepared)
    assert len(written["metaData"]) == 1
    assert key_metadata(tmp_path)[MARK] == 9
    assert key_metadata(tmp_path)["comment"] == "kept"
    assert prepared.tags == {"delta.identity.schemaUpdate": "true"}
    assert prepared.context.metadata == DeltaTable(str(tmp_path)).snapshot().metadata


def far(lowest: int, highest: int) -> str:
    bounds = {"minValues": {"key": lowest}, "maxValues": {"key": highest}}
    return json.dumps({"numRecords": 2, **bounds})


def test_values_that_only_statistics_tell_of_move_the_mark_too(tmp_path: Path) -> None:
    identity_table(tmp_path)
    adds = (file("a", stats=far(1, 500)), file("b", stats=far(2, 30)), file("c"))
    prepared = attempt(tmp_path, adds=adds, enforced=FEATURE)
    write(tmp_path, prepared)
    assert key_metadata(tmp_path)[MARK] == 501  # the first on the grid of odd numbers
    assert prepared.tags == {"delta.identity.schemaUpdate": "true"}
    # The writer may know of more, or of less.
    for reported, mark in ((700, 701), (3, 501)):
        given = attempt(tmp_path, adds=adds, enforced=FEATURE, identity_marks={"key": reported})
        metadata = given.actions.metadata
        assert (metadata is None) == (mark == 501)
        assert metadata is None or f'"{MARK}":{mark}' in metadata.schema_string.replace(" ", "")


def test_descending_values_go_by_their_least(tmp_path: Path) -> None:
    identity_table(tmp_path, step=-2)
    write(tmp_path, attempt(tmp_path, adds=(file(stats=far(-8, 90)),), enforced=FEATURE))
    assert key_metadata(tmp_path)[MARK] == -9


def test_files_that_bring_no_new_values_move_no_mark(tmp_path: Path) -> None:
    identity_table(tmp_path)
    again = file("a", stats=far(1, 500), data_change=False)
    write_commit(tmp_path, 1, add("a"))
    assert attempt(tmp_path, adds=(again,)).actions.metadata is None


def test_statistics_of_mapped_columns_go_by_physical_names(tmp_path: Path) -> None:
    columns = schema(key="long")
    columns["fields"][0]["metadata"] = {"delta.identity.start": 0, "delta.identity.step": 1}
    mapping = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}
    features = ("identityColumns", "columnMapping")
    table(tmp_path, features, schema=mapped(columns), configuration=mapping)
    stats = '{"numRecords":1,"maxValues":{"c1":7,"key":99}}'
    write(tmp_path, attempt(tmp_path, adds=(file(stats=stats),), enforced=FEATURE))
    assert key_metadata(tmp_path)[MARK] == 7


def test_a_mark_that_stays_changes_nothing(tmp_path: Path) -> None:
    identity_table(tmp_path, highWaterMark=9)
    for furthest in (9, 8, 3, -5):
        prepared = attempt(
            tmp_path, adds=(file(),), identity_marks={"key": furthest}, enforced=FEATURE
        )
        assert prepared.actions.metadata is None
        assert prepared.tags == {}


def test_marks_and_other_changes_of_the_metadata_go_together(tmp_path: Path) -> None:
    identity_table(tmp_path)
    staged = with_properties(tmp_path, mine="x")
    prepared = attempt(
        tmp_path, metadata=staged, adds=(file(),), identity_marks={"key": 3}, enforced=FEATURE
    )
    write(tmp_path, prepared)
    assert key_metadata(tmp_path)[MARK] == 3
    assert DeltaTable(str(tmp_path)).snapshot().metadata.configuration == {"mine": "x"}
    # More than the marks has changed.
    assert prepared.tags == {}


def test_rows_of_a_writer_that_made_no_values_are_refused(tmp_path: Path) -> None:
    identity_table(tmp_path)
    with pytest.raises(UnsupportedFeatureError, match="identityColumns"):
        attempt(tmp_path, adds=(file(),), identity_marks={"key": 3})


def test_values_must_be_of_identity_columns(tmp_path: Path) -> None:
    identity_table(tmp_path)
    with pytest.raises(ConstraintViolationError, match=r"which are \['key'\]"):
        attempt(tmp_path, identity_marks={"name": 3})
    table(tmp_path / "other", ("domainMetadata",))
    with pytest.raises(ConstraintViolationError, match="lacks the feature identityColumns"):
        attempt(tmp_path / "other", identity_marks={"id": 3})


def test_a_mark_beyond_64_bits_is_refused(tmp_path: Path) -> None:
    identity_table(tmp_path)
    attempt(tmp_path, identity_marks={"key": 2**63 - 1})  # on the grid of odd numbers
    with pytest.raises(ConstraintViolationError, match="64-bit integer"):
        attempt(tmp_path, identity_marks={"key": 2**63})
    columns = schema(key="long")
    columns["fields"][0]["metadata"] = {"delta.identity.start": 0, "delta.identity.step": 2}
    table(tmp_path / "even", FEATURE, schema=columns)
    with pytest.raises(ConstraintViolationError, match="no values left"):
        attempt(tmp_path / "even", identity_marks={"key": 2**63 - 1})
