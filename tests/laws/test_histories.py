"""The law of the log: however the past is stored, a version is what its commits come to.

Random histories are laid out as commits, as checkpoints of every form with the older commits
deleted, and as compactions. Each layout must give, at every version it can still rebuild, the state
that `replay` finds with dictionaries, and refuse the others as not found.
"""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from airflow_delta.engine.errors import VersionNotFoundError
from tests.laws.histories import histories
from tests.table_builder import (
    Action,
    Files,
    MemoryTable,
    State,
    classic_checkpoint,
    commit_file,
    commits,
    compaction,
    hint,
    multipart_checkpoint,
    state_of,
    states,
    v2_checkpoint,
)

# Shrinking a history takes minutes; what fails is printed and short enough as it is.
SMALL = settings(
    max_examples=25, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)


def check(files: Files, expected: list[State], *, first: int = 0) -> None:
    """Compare every version with the model; those before ``first`` must be gone."""
    with MemoryTable(files) as table:
        delta = table.delta()
        assert delta.latest_version() == len(expected) - 1
        assert delta.snapshot().version == len(expected) - 1
        for version, state in enumerate(expected):
            if version < first:
                with pytest.raises(VersionNotFoundError, match=f"version {version}"):
                    delta.snapshot(version=version)
                continue
            snapshot = delta.snapshot(version=version)
            # Projected first: a later question for more columns must not depend on it.
            assert snapshot.files(columns=["path"]).num_rows == len(state.files)
            assert snapshot.num_files == len(state.files)
            assert snapshot.size_in_bytes == sum(add["size"] for add in state.files.values())
            assert state_of(snapshot) == state.visible()


def trimmed(history: list[list[Action]], first: int) -> Files:
    """The commits, those before a checkpoint's version deleted."""
    files = commits(history)
    return {path: content for path, content in files.items() if path >= commit_file(first)}


@SMALL
@given(histories())
def test_commits_alone_give_every_version(history: list[list[Action]]) -> None:
    check(commits(history), states(history))


@SMALL
@given(st.data(), histories())
def test_the_order_of_the_lines_of_a_commit_is_irrelevant(
    data: st.DataObject, history: list[list[Action]]
) -> None:
    expected = states(history)
    shuffled = [data.draw(st.permutations(actions)) for actions in history]
    check(commits(shuffled), expected)


@pytest.mark.deep
@SMALL
@given(st.data(), histories())
def test_our_checkpoints_and_the_commits_after_the_first(
    data: st.DataObject, history: list[list[Action]]
) -> None:
    expected = states(history)
    last = len(history) - 1
    with MemoryTable(commits(history)) as table:
        # In any order: an older checkpoint may be written after a newer one, and from it.
        versions = data.draw(st.lists(st.integers(0, last), min_size=1, max_size=3, unique=True))
        for version in versions:
            assert table.delta().checkpoint(version=version).written
        check(table.files(), expected)
        table.storage.delete([commit_file(version) for version in range(min(versions))])
        files = table.files()
    check(files, expected, first=min(versions))
    del files["_delta_log/_last_checkpoint"]
    check(files, expected, first=min(versions))


@pytest.mark.deep
@SMALL
@given(st.data(), histories(features={"v2Checkpoint"}))
def test_a_v2_checkpoint_and_the_commits_after_it(
    data: st.DataObject, history: list[list[Action]]
) -> None:
    expected = states(history)
    version = data.draw(st.integers(0, len(history) - 1))
    form = data.draw(st.sampled_from(["json", "parquet", "classic"]))
    sidecars = data.draw(st.integers(0, 3))
    files = trimmed(history, version)
    files |= v2_checkpoint(expected[version], version, form=form, sidecars=sidecars)
    if data.draw(st.booleans()):
        files |= hint(version)
    check(files, expected, first=version)


@pytest.mark.deep
@SMALL
@given(st.data(), histories(features={"v2Checkpoint"}))
def test_our_checkpoint_on_top_of_a_v2_checkpoint(
    data: st.DataObject, history: list[list[Action]]
) -> None:
    expected = states(history)
    version = data.draw(st.integers(0, len(history) - 2))
    ours = data.draw(st.integers(version + 1, len(history) - 1))
    files = trimmed(history, version)
    files |= v2_checkpoint(expected[version], version, form="json", sidecars=2)
    with MemoryTable(files) as table:
        assert table.delta().checkpoint(version=ours).written
        sidecars = [info.path for info in table.storage.walk("_delta_log/_sidecars")]
        table.storage.delete(sidecars + [commit_file(v) for v in range(ours)])
        files = {p: c for p, c in table.files().items() if f"{version:020}.checkpoint" not in p}
    check(files, expected, first=ours)


@pytest.mark.deep
@SMALL
@given(st.data(), histories())
def test_a_multipart_checkpoint_and_the_commits_after_it(
    data: st.DataObject, history: list[list[Action]]
) -> None:
    expected = states(history)
    version = data.draw(st.integers(0, len(history) - 1))
    parts = data.draw(st.integers(1, 4))
    files = trimmed(history, version)
    files |= multipart_checkpoint(expected[version], version, parts=parts)
    # Parts of another set that was never completed say nothing.
    files |= dict([*multipart_checkpoint(expected[0], version, parts=9).items()][:-1])
    if data.draw(st.booleans()):
        files |= hint(version, parts=parts)
    check(files, expected, first=version)


@pytest.mark.deep
@SMALL
@given(st.data(), histories())
def test_compactions_from_the_first_version_on(
    data: st.DataObject, history: list[list[Action]]
) -> None:
    expected = states(history)
    ends = data.draw(st.lists(st.integers(0, len(history) - 1), min_size=1, max_size=3))
    files = commits(history)
    for end in ends:
        # Writers are known that drop the tombstones that had expired.
        files |= compaction(expected[end], end, expired=data.draw(st.booleans()))
    check(files, expected)


@SMALL
@given(st.data(), histories())
def test_a_compaction_that_lost_tombstones_brings_nothing_back(
    data: st.DataObject, history: list[list[Action]]
) -> None:
    expected = states(history)
    last = len(history) - 1
    start = data.draw(st.integers(1, last))
    end = data.draw(st.integers(start, last))
    poisoned = states([history[0], *history[start : end + 1]])[-1]
    content = next(iter(compaction(poisoned, end, expired=False).values()))
    name = f"_delta_log/{start:020}.{end:020}.compacted.json"
    check({**commits(history), name: content}, expected)


@SMALL
@given(histories())
def test_all_forms_at_once(history: list[list[Action]]) -> None:
    expected = states(history)
    last = len(history) - 1
    files = {
        **commits(history),
        **classic_checkpoint(expected[0], 0),
        **multipart_checkpoint(expected[last // 2], last // 2, parts=2),
        **classic_checkpoint(expected[last], last),
        **compaction(expected[1], 1, expired=True),
    }
    check(files, expected)
