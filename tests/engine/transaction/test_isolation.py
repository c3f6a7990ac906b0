"""Isolation levels: which one a commit runs at, and what it makes of files added meanwhile."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.model.actions import (
    AddCdcFile,
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
)
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.transaction.isolation import (
    IsolationLevel,
    appends_matter,
    isolation_level,
)
from airflow_delta.engine.transaction.staged import Actions

MOVED = AddFile("f", {}, 1, 1, data_change=False)
NEW = AddFile("g", {}, 1, 1, data_change=True)
CLEARED = RemoveFile("h", data_change=False)
GONE = RemoveFile("i", data_change=True)


def level_of(level: str | None = None, **actions: Any) -> str:
    properties = {} if level is None else {"delta.isolationLevel": level}
    return isolation_level(Actions(**actions), TableProperties(properties, "t")).value


@pytest.mark.parametrize("level", [None, "Serializable", "WriteSerializable", "SnapshotIsolation"])
@pytest.mark.parametrize(
    "actions",
    [
        {"adds": (NEW,)},
        {"adds": (MOVED, NEW)},
        {"removes": (GONE, CLEARED)},
        {"adds": (MOVED,), "transactions": (Txn("a", 1),)},
        {"adds": (MOVED,), "domains": {"d": DomainMetadata("d", "{}")}},
        {"protocol": Protocol(1, 2)},
        {"metadata": Metadata("id", "{}", ())},
    ],
)
def test_a_commit_runs_at_the_level_of_the_table(level: str | None, actions: dict) -> None:
    # Without the property it is Serializable.
    assert level_of(level, **actions) == (level or "Serializable")


@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable"])
@pytest.mark.parametrize(
    "actions",
    [
        {"adds": (MOVED,), "removes": (CLEARED,)},
        {"adds": (MOVED,), "cdc": (AddCdcFile("_change_data/c", {}, 1),)},
        # Assigned ids are merged, in any order.
        {
            "adds": (MOVED,),
            "domains": {"delta.rowTracking": DomainMetadata("delta.rowTracking", "{}")},
        },
    ],
)
def test_what_only_rearranges_files_needs_a_snapshot(level: str, actions: dict) -> None:
    assert level_of(level, **actions) == "SnapshotIsolation"


def test_a_level_may_be_spelt_in_any_case() -> None:
    assert level_of("writeserializable", adds=(NEW,)) == "WriteSerializable"


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(InvalidTableError, match=r"delta\.isolationLevel: expected one of"):
        level_of("ReadUncommitted", adds=(NEW,))


def test_what_appends_matter() -> None:
    """When files that others add may be a conflict, by isolation level."""
    matter = {
        (level.value, blind, changed)
        for level, blind, changed in itertools.product(IsolationLevel, (False, True), (False, True))
        if appends_matter(level, blind=blind, metadata_changed=changed)
    }
    assert matter == {
        ("Serializable", False, False),
        ("Serializable", False, True),
        ("Serializable", True, False),
        ("Serializable", True, True),
        ("WriteSerializable", False, False),
        ("WriteSerializable", False, True),
        ("WriteSerializable", True, True),
        # What a change of the metadata says of rows is said of all of them.
        ("SnapshotIsolation", False, True),
        ("SnapshotIsolation", True, True),
    }
