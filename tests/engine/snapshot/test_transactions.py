"""The search for the commit that set a transaction identifier, over cleaned and damaged logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import DeltaWarning
from tests.faulty_storage import FaultyStorage
from tests.log_builder import PROTOCOL, add, metadata
from tests.table_builder import (
    MemoryTable,
    classic_checkpoint,
    commit_file,
    commits,
    lines,
    states,
)


def txn(version: int, app: str = "app") -> dict[str, Any]:
    return {"txn": {"appId": app, "version": version}}


HISTORY = [
    [PROTOCOL, metadata(), txn(1)],
    [txn(2), txn(9, "other")],
    [add("a")],
    [txn(1)],
    [add("b")],
]
LAST = len(HISTORY) - 1


@pytest.fixture
def table() -> Iterator[MemoryTable]:
    files = {**commits(HISTORY), **classic_checkpoint(states(HISTORY)[LAST], LAST)}
    with MemoryTable(files) as table:
        yield table


def found(table: MemoryTable, version: int, app: str = "app") -> int | None:
    return table.delta().version_of_transaction(app, version)


def test_the_newest_commit_that_set_it_is_found(table: MemoryTable) -> None:
    assert found(table, 1) == 3
    assert found(table, 2) == 1
    assert found(table, 3) is None
    assert found(table, 9) is None
    assert found(table, 9, "other") == 1


def test_an_application_that_the_state_does_not_know_costs_no_commit(table: MemoryTable) -> None:
    delta = table.delta()
    delta.storage = storage = FaultyStorage(table.storage)
    assert delta.version_of_transaction("unknown", 1) is None
    assert storage.count("read_many") == 0
    assert storage.count("read", ".json") == 0


def test_an_action_of_another_kind_is_not_taken_for_one(table: MemoryTable) -> None:
    files = {commit_file(2): b'{"add":{"path":"\\"txn\\"","size":1,"appId":"app","version":2}}\n'}
    table.put(files)
    assert found(table, 2) == 1


def test_cleanup_leaves_the_oldest_version_that_holds_it(table: MemoryTable) -> None:
    table.storage.delete([commit_file(version) for version in (0, 1)])
    assert found(table, 1) == 3
    assert found(table, 9, "other") == 2
    assert found(table, 2) is None


def test_a_commit_that_is_missing_below_the_checkpoint_ends_the_search(table: MemoryTable) -> None:
    table.storage.delete([commit_file(2)])
    assert found(table, 9, "other") == 3
    assert found(table, 2) is None


@pytest.mark.parametrize("content", [b"", b'{"txn":broken\n', b'{"txn":7}\n'])
def test_damage_below_the_checkpoint_is_tolerated(table: MemoryTable, content: bytes) -> None:
    table.put({commit_file(2): content})
    assert found(table, 1) == 3
    # The state holds it, and no commit after the damaged one set it.
    assert found(table, 9, "other") == 2
    with pytest.warns(DeltaWarning, match=commit_file(2)):
        assert found(table, 2) == 1
    with pytest.warns(DeltaWarning, match=commit_file(2)):
        assert found(table, 3) is None


def test_a_commit_that_vanishes_during_the_search_ends_it(table: MemoryTable) -> None:
    class Vanishing(FaultyStorage):
        def read_many(self, paths: Any) -> list[bytes | None]:
            contents = super().read_many(paths)
            return [
                None if path == commit_file(2) else data
                for path, data in zip(paths, contents, strict=True)
            ]

    for version, app, expected in ((1, "app", 3), (9, "other", 3), (2, "app", None)):
        delta = table.delta()
        delta.storage = Vanishing(table.storage)
        assert delta.version_of_transaction(app, version) == expected


# Searching again


@pytest.fixture
def followed(table: MemoryTable) -> tuple[DeltaTable, FaultyStorage]:
    """The table after a search through all of it."""
    delta = table.delta()
    delta.storage = storage = FaultyStorage(table.storage)
    assert delta.version_of_transaction("app", 3) is None
    assert searched(storage) == [*range(LAST + 1)]
    return delta, storage


def searched(storage: FaultyStorage) -> list[int]:
    """The commits that were read since the last time, ascending."""
    asked = [call.path for call in storage.calls if call.operation == "read_many"]
    storage.calls.clear()
    known = {commit_file(version): version for version in range(LAST + 10)}
    return sorted(known[path] for paths in asked for path in paths.split(","))


def test_a_commit_that_was_searched_is_not_read_again(
    table: MemoryTable, followed: tuple[DeltaTable, FaultyStorage]
) -> None:
    delta, storage = followed
    answers = [(1, "app", 3), (2, "app", 1), (3, "app", None), (9, "other", 1), (8, "other", None)]
    for version, app, expected in answers:
        assert delta.version_of_transaction(app, version) == expected
    assert searched(storage) == []
    table.put({commit_file(LAST + 1): lines([txn(3)]), commit_file(LAST + 2): lines([txn(1)])})
    for version, app, expected in [(4, "app", None), (1, "app", LAST + 2), (3, "app", LAST + 1)]:
        assert delta.version_of_transaction(app, version) == expected
    # Those after the checkpoint are read to open the table, too.
    assert min(searched(storage)) == LAST + 1


def test_a_checkpoint_meanwhile_does_not_matter(
    table: MemoryTable, followed: tuple[DeltaTable, FaultyStorage]
) -> None:
    delta, storage = followed
    table.put({commit_file(LAST + 1): lines([txn(3)]), commit_file(LAST + 2): lines([add("c")])})
    table.delta().checkpoint()
    assert delta.version_of_transaction("app", 5) is None
    assert searched(storage) == [LAST + 1, LAST + 2]
    assert delta.version_of_transaction("app", 2) == 1


def test_what_was_cleaned_up_is_still_known(
    table: MemoryTable, followed: tuple[DeltaTable, FaultyStorage]
) -> None:
    delta, _ = followed
    table.storage.delete([commit_file(version) for version in range(LAST)])
    assert delta.version_of_transaction("app", 2) == 1
    assert found(table, 2) is None


def test_of_another_log_nothing_is_known(
    table: MemoryTable, followed: tuple[DeltaTable, FaultyStorage]
) -> None:
    delta, storage = followed
    taken_back = {
        commit_file(1): lines([txn(7)]),
        commit_file(LAST): lines([add("longer", size=77)]),
    }
    table.put(taken_back)
    assert delta.version_of_transaction("app", 2) is None
    assert searched(storage) == [*range(LAST + 1)]
    assert delta.version_of_transaction("app", 7) == 1


def test_an_identifier_of_another_type_is_none(table: MemoryTable) -> None:
    strange = {"txn": {"appId": "app", "version": {"a": 1}}}
    table.put({commit_file(2): lines([strange])})
    assert found(table, 2) == 1
