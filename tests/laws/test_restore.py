"""The law of restoring: afterwards a table is what it was, but for what only goes forward.

Random histories, one of their versions brought back, and then another one. What must come of it is told
by `replay`, with dictionaries.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_delta.engine.errors import ConstraintViolationError
from tests.laws.histories import histories
from tests.laws.test_histories import SMALL
from tests.table_builder import Action, Key, MemoryTable, State, commits, state_of, states

ROW_IDS = {"baseRowId": None, "defaultRowCommitVersion": None}


def brought_back(now: State, then: State) -> State:
    """What a restore makes of a table; see ``maintenance/restore/definition.py``."""
    assert now.protocol is not None
    assert then.protocol is not None
    features = [
        (a or set()) | (b or set()) for a, b in zip(now.protocol, then.protocol, strict=True)
    ][2:]
    domains = {name: text for name, text in then.domains.items() if name == "two"}
    domains |= {name: text for name, text in now.domains.items() if name != "two"}
    # A file that is in both versions stays as it is, with the statistics that it has got since.
    files = {key: now.files.get(key, file) for key, file in then.files.items()}
    return replace(
        now,
        files=files,
        domains=domains,
        protocol=(*now.protocol[:2], *features),
        metadata=then.metadata,
    )


def without_ids(files: dict[Key, Action]) -> dict[Key, Action]:
    """The tables of the histories don't track rows, and lose ids that mean nothing."""
    return {key: {**file, **ROW_IDS} for key, file in files.items()}


def size_of(state: State, keys: set[Key]) -> int:
    return sum(state.files[key]["size"] for key in keys)


@SMALL
@given(histories(), st.data())
def test_a_restore_brings_a_version_back(history: list[list[Action]], data: st.DataObject) -> None:
    past = states(history)
    with MemoryTable(commits(history)) as table:
        delta = table.delta()
        for _ in range(2):
            version = data.draw(st.integers(0, len(past) - 2))
            now, then = past[-1], past[version]
            gone, back = now.files.keys() - then.files, then.files.keys() - now.files
            assert now.metadata is not None
            if gone and now.metadata["configuration"].get("delta.appendOnly") == "true":
                with pytest.raises(ConstraintViolationError, match="append-only"):
                    delta.restore(version, ignore_missing_files=True)
                return

            result = delta.restore(version, ignore_missing_files=True)

            assert result.version == len(past)
            assert result.plan.metrics == {
                "tableSizeAfterRestore": size_of(then, {*then.files}),
                "numOfFilesAfterRestore": len(then.files),
                "numRemovedFiles": len(gone),
                "numRestoredFiles": len(back),
                "removedFilesSize": size_of(now, gone),
                "restoredFilesSize": size_of(then, back),
            }
            snapshot = delta.snapshot()
            found, expected = state_of(snapshot), brought_back(now, then)
            assert without_ids(dict(found.files)) == without_ids(dict(expected.files))
            assert gone <= found.tombstones.keys()
            assert replace(found, files={}, tombstones={}) == replace(
                expected, files={}, tombstones={}, removed_domains=frozenset()
            )
            # What there was before is still there to be read, and to be restored.
            assert state_of(delta.snapshot(version)).files == then.files
            past.append(found)
