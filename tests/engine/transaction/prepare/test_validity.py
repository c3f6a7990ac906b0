"""The rules that any commit must meet, whatever the features of its table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import (
    ConstraintViolationError,
    InvalidTableError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.model.actions import AddCdcFile, Protocol, Txn
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.intent import DropFeatures
from airflow_delta.engine.transaction.prepare import prepare
from airflow_delta.engine.transaction.staged import Actions
from tests.engine.transaction.prepare.attempts import (
    NOW,
    VECTOR,
    attempt,
    counted,
    file,
    first_attempt,
    mapped,
    schema,
    table,
    tombstone,
    with_properties,
)
from tests.log_builder import add


def current(root: Path) -> Any:
    return DeltaTable(str(root)).snapshot()


@pytest.mark.parametrize("missing", ["protocol", "metadata", "both"])
def test_the_first_version_has_both(tmp_path: Path, missing: str) -> None:
    like = current(table(tmp_path / "like", ()))
    both = {"protocol": like.protocol, "metadata": like.metadata}
    given = {name: value for name, value in both.items() if missing not in (name, "both")}
    context = CommitContext(str(tmp_path), 0, NOW, like.protocol, like.metadata)
    with pytest.raises(ConstraintViolationError, match="needs a protocol and a metaData"):
        prepare(Actions(**given), context)
    assert first_attempt(tmp_path, like.protocol, like.metadata).context.version == 0


def test_an_application_has_one_transaction(tmp_path: Path) -> None:
    table(tmp_path, ())
    attempt(tmp_path, transactions=(Txn("a", 1), Txn("b", 1)))
    with pytest.raises(ConstraintViolationError, match="'a' has 2 txn actions"):
        attempt(tmp_path, transactions=(Txn("a", 1), Txn("b", 1), Txn("a", 2)))


@pytest.mark.parametrize(
    ("actions", "kind"),
    [
        ({"adds": (file("x"), file("x", stats=counted(1)))}, "add"),
        ({"adds": (file("/elsewhere/x"), file("file:///elsewhere/x"))}, "add"),
        ({"removes": (tombstone("old"), tombstone("old", deletion_vector=VECTOR))}, "remove"),
        ({"cdc": (AddCdcFile("_change_data/x", {}, 1),) * 2}, "cdc"),
    ],
)
def test_a_file_has_one_action_of_a_kind(
    tmp_path: Path, actions: dict[str, Any], kind: str
) -> None:
    table(tmp_path, ("changeDataFeed",), add("old"))
    with pytest.raises(ConstraintViolationError, match=f"has 2 {kind} actions"):
        attempt(tmp_path, **actions)


def test_a_file_is_not_added_and_removed_as_it_is(tmp_path: Path) -> None:
    on = {"delta.enableDeletionVectors": "true"}
    table(tmp_path, ("deletionVectors",), add("x"), configuration=on)
    removed = (tombstone("x"),)
    with pytest.raises(ConstraintViolationError, match="added and removed with the same deletion"):
        attempt(tmp_path, removes=removed, adds=(file("x"),))
    masked = file("x", deletion_vector=VECTOR, stats=counted(30))
    attempt(tmp_path, removes=removed, adds=(masked,))


def test_a_path_must_be_an_address(tmp_path: Path) -> None:
    table(tmp_path, ())
    with pytest.raises(ConstraintViolationError, match="100%"):
        attempt(tmp_path, adds=(file("file:///100%"),))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Protocol(1, 7, None, frozenset({"appendOnly", "invariants"})), Protocol(1, 1)),
        (
            Protocol(1, 7, None, frozenset({"appendOnly", "domainMetadata"})),
            Protocol(1, 7, None, frozenset({"appendOnly"})),
        ),
    ],
)
@pytest.mark.parametrize("operation", ["WRITE", "DROP FEATURE"])
def test_a_protocol_does_not_shrink(
    tmp_path: Path, before: Protocol, after: Protocol, operation: str
) -> None:
    table(tmp_path, before.writer_features or ())
    with pytest.raises(InvalidTableError, match="lacks the features"):
        # What a commit calls itself is up to its maker, and gives no rights.
        attempt(tmp_path, protocol=after, operation=operation)


def test_a_table_keeps_its_id(tmp_path: Path) -> None:
    table(tmp_path, (), add("old"))
    other = replace(current(tmp_path).metadata, id="other")
    with pytest.raises(ConstraintViolationError, match=r"id changes from '11111111-.*' to 'other'"):
        attempt(tmp_path, metadata=other)
    with pytest.raises(ConstraintViolationError, match="id changes"):
        attempt(tmp_path, metadata=other, removes=(tombstone("old"),))


def test_a_protocol_that_the_engine_cannot_write_is_refused(tmp_path: Path) -> None:
    table(tmp_path, ())
    later = Protocol(3, 7, frozenset(), frozenset({"fromTheFuture"}))
    with pytest.raises(UnsupportedFeatureError, match="fromTheFuture"):
        attempt(tmp_path, protocol=later)


@pytest.mark.parametrize(
    ("types", "properties", "feature"),
    [
        ({"id": "long", "t": "timestamp_ntz"}, {}, "timestampNtz"),
        ({"id": "long"}, {"delta_enableRowTracking": "true"}, "rowTracking"),
        ({"id": "long"}, {"delta_enableDeletionVectors": "true"}, "deletionVectors"),
        ({"id": "long"}, {"delta_enableTypeWidening": "true"}, "typeWidening"),
    ],
)
def test_what_metadata_comes_to_use_the_protocol_supports(
    tmp_path: Path, types: dict[str, str], properties: dict[str, str], feature: str
) -> None:
    table(tmp_path / "like", ("timestampNtz",), schema=schema(**types))
    table(tmp_path, (), schema=schema(id="long"))
    changed = replace(
        with_properties(tmp_path, **properties),
        schema_string=current(tmp_path / "like").metadata.schema_string,
    )
    with pytest.raises(ConstraintViolationError, match=rf"uses the features \['{feature}'\]"):
        attempt(tmp_path, metadata=changed)


def test_a_preview_supports_what_it_is_the_preview_of(tmp_path: Path) -> None:
    table(tmp_path, ())
    preview = frozenset({"typeWidening-preview"})
    on = with_properties(tmp_path, delta_enableTypeWidening="true")
    attempt(tmp_path, protocol=Protocol(3, 7, preview, preview), metadata=on)


def test_a_property_that_meant_nothing_may_go_on_meaning_nothing(tmp_path: Path) -> None:
    table(tmp_path, (), configuration={"delta.enableChangeDataFeed": "true"})
    attempt(tmp_path, metadata=with_properties(tmp_path, mine="1"))


def test_the_highest_column_id_never_falls(tmp_path: Path) -> None:
    mapping = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "9"}
    columns = mapped(schema(id="long"))
    table(tmp_path, ("columnMapping",), schema=columns, configuration=mapping)
    for highest, fits in (("10", True), ("9", True), ("8", False), (None, False)):
        changes = {"delta_columnMapping.maxColumnId": highest}
        staged = with_properties(tmp_path, **changes)
        if fits:
            attempt(tmp_path, metadata=staged)
        else:
            with pytest.raises(ConstraintViolationError, match="decreases from 9 to"):
                attempt(tmp_path, metadata=staged)


def test_the_boundary_of_protected_checkpoints_never_falls(tmp_path: Path) -> None:
    name = "delta.requireCheckpointProtectionBeforeVersion"
    table(tmp_path, ("checkpointProtection",), configuration={name: "9"})
    for boundary in ("10", "9"):
        attempt(tmp_path, metadata=with_properties(tmp_path, **{name.replace(".", "_"): boundary}))
    for boundary in ("8", "0", None):
        staged = with_properties(tmp_path, **{name.replace(".", "_"): boundary})
        with pytest.raises(ConstraintViolationError, match=f"{name} decreases from 9 to"):
            attempt(tmp_path, metadata=staged)
    # It goes with the feature.
    attempt(
        tmp_path,
        protocol=Protocol(1, 1),
        metadata=with_properties(tmp_path, **{name.replace(".", "_"): None}),
        purpose=DropFeatures(frozenset({"checkpointProtection"}), hides_history=False),
    )


def test_partition_columns_are_columns(tmp_path: Path) -> None:
    table(tmp_path, ())
    metadata = replace(current(tmp_path).metadata, partition_columns=("other",))
    with pytest.raises(InvalidTableError, match="isn't a column"):
        attempt(tmp_path, metadata=metadata)


def test_a_table_that_keeps_changes_gets_no_columns_of_changes(tmp_path: Path) -> None:
    names = "names of the columns of a change"
    table(tmp_path, ("changeDataFeed",), schema=schema(id="long", _commit_version="long"))
    attempt(tmp_path, metadata=with_properties(tmp_path, mine="1"))
    with pytest.raises(InvalidTableError, match=rf"\['_commit_version'\] have {names}"):
        attempt(tmp_path, metadata=with_properties(tmp_path, delta_enableChangeDataFeed="true"))


def test_columns_of_changes_that_a_table_has_already_may_stay(tmp_path: Path) -> None:
    keeps = {"delta.enableChangeDataFeed": "true"}
    columns = schema(id="long", _Change_type="string")
    table(tmp_path, ("changeDataFeed",), schema=columns, configuration=keeps)
    attempt(tmp_path, metadata=with_properties(tmp_path, mine="1"))
    attempt(tmp_path, metadata=with_properties(tmp_path, delta_enableChangeDataFeed=None))
    more = json.dumps(schema(id="long", _Change_type="string", _commit_timestamp="timestamp"))
    staged = replace(current(tmp_path).metadata, schema_string=more)
    with pytest.raises(InvalidTableError, match=r"\['_commit_timestamp'\] have names"):
        attempt(tmp_path, metadata=staged)
