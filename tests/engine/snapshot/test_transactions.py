"""The search for the commit that set a transaction identifier, over cleaned and damaged logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_delta.engine.errors import DeltaWarning
from tests.faulty_storage import FaultyStorage
from tests.log_builder import PROTOCOL, add, metadata
from tests.table_builder import MemoryTable, classic_checkpoint, commit_file, commits, states


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
