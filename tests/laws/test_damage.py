"""Damage that the fuzz of `test_corruption` found, each as small as it can be."""

from __future__ import annotations

import pytest

from airflow_delta.engine.errors import CorruptLogError, DeltaWarning
from tests.log_builder import PROTOCOL, add, metadata
from tests.table_builder import (
    Action,
    Files,
    MemoryTable,
    classic_checkpoint,
    commits,
    compaction,
    file_rows,
    hint,
    parquet,
    small_rows,
    state_of,
    states,
    v2_checkpoint,
)

V2 = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["v2Checkpoint"],
        "writerFeatures": ["v2Checkpoint"],
    }
}
HISTORY: list[list[Action]] = [
    [V2, metadata(), add("a"), add("b")],
    [add("c"), add("d")],
    [add("e"), add("f"), add("a-file-with-a-longer-name")],
]
SIDECAR = "_delta_log/_sidecars/{0:020}.checkpoint.{1:010}.00000000-0000-0000-0000-{0:012}.parquet"
TOP = "_delta_log/{0:020}.checkpoint.00000000-0000-0000-0000-{0:012}.json"


def with_v2(version: int, *, sidecars: int = 2) -> Files:
    """All commits and a V2 checkpoint."""
    state = states(HISTORY)[version]
    return {
        **commits(HISTORY),
        **v2_checkpoint(state, version, form="json", sidecars=sidecars),
    }


def test_a_sidecar_of_another_size_than_its_checkpoint_says_is_damage() -> None:
    """The sidecar action tells the size: one sidecar in the place of another shows."""
    files = with_v2(2)
    files[SIDECAR.format(2, 0)] = with_v2(1)[SIDECAR.format(1, 0)]
    assert len(files[SIDECAR.format(2, 0)]) != len(with_v2(2)[SIDECAR.format(2, 0)])
    with MemoryTable(files) as table, pytest.warns(DeltaWarning, match="checkpoint"):
        assert state_of(table.delta().snapshot()) == states(HISTORY)[2]


def test_a_sidecar_that_is_named_twice_is_damage() -> None:
    files = with_v2(2)
    top = files[TOP.format(2)]
    files[TOP.format(2)] = top + top.splitlines(keepends=True)[-1]
    with MemoryTable(files) as table, pytest.warns(DeltaWarning, match="checkpoint"):
        assert state_of(table.delta().snapshot()) == states(HISTORY)[2]


def test_a_file_that_a_checkpoint_in_json_names_twice_is_there_once() -> None:
    files = with_v2(2, sidecars=0)
    top = files[TOP.format(2)]
    files[TOP.format(2)] = top + top.splitlines(keepends=True)[-1]
    with MemoryTable(files) as table, pytest.warns(DeltaWarning, match="checkpoint"):
        assert state_of(table.delta().snapshot()) == states(HISTORY)[2]


def test_protocol_and_files_are_of_one_checkpoint() -> None:
    """The files of this checkpoint are damaged, and its metadata is not what the log says."""
    files = with_v2(2)
    files[TOP.format(2)] = files[TOP.format(2)].replace(b"11111111-", b"99999999-")
    files[SIDECAR.format(2, 0)] = b"PAR1 nonsense PAR1"
    with MemoryTable(files) as table:
        snapshot = table.delta().snapshot()
        # The metadata has been told already: only an error is left.
        assert snapshot.metadata.id.startswith("99999999-")
        with (
            pytest.warns(DeltaWarning, match="checkpoint"),
            pytest.raises(CorruptLogError, match="_sidecars"),
        ):
            snapshot.files()


@pytest.mark.parametrize("content", [b"{", b"PAR1 nonsense PAR1", None, b""], ids=str)
@pytest.mark.parametrize(
    "extra",
    [
        classic_checkpoint(states(HISTORY)[1], 1),
        v2_checkpoint(states(HISTORY)[2], 2, form="json", sidecars=1),
        v2_checkpoint(states(HISTORY)[2], 2, form="parquet", sidecars=1),
        compaction(states(HISTORY)[1], 1, expired=True),
        {**classic_checkpoint(states(HISTORY)[1], 1), **hint(1)},
    ],
    ids=["classic", "v2 in JSON", "v2 in Parquet", "compaction", "hint"],
)
@pytest.mark.filterwarnings("ignore::airflow_delta.engine.errors.DeltaWarning")
def test_damage_outside_the_commits_costs_nothing(extra: Files, content: bytes | None) -> None:
    """Whatever else there is can be told from the commits, where these are all there."""
    for path in extra:
        files = {**commits(HISTORY), **extra}
        if content is None:
            del files[path]
        else:
            files[path] = content
        with MemoryTable(files) as table:
            assert state_of(table.delta().snapshot()) == states(HISTORY)[2]


def test_a_damaged_compaction_is_named_by_its_own_name() -> None:
    history = [[PROTOCOL, metadata(), add("a")], [add("b")]]
    damaged = next(iter(compaction(states(history)[1], 1, expired=True)))
    files = {**commits(history), damaged: b"{"}
    with MemoryTable(files) as table, pytest.warns(DeltaWarning, match=r"\d\.compacted\.json"):
        assert state_of(table.delta().snapshot()) == states(history)[1]


def test_a_checkpoint_with_an_action_that_is_none_is_left_out() -> None:
    files = with_v2(2)
    files[TOP.format(2)] += b'{"txn":{"appId":"app","version":"seven"}}\n'
    with MemoryTable(files) as table, pytest.warns(DeltaWarning, match=TOP.format(2)):
        assert state_of(table.delta().snapshot()) == states(HISTORY)[2]


@pytest.mark.parametrize("missing", ["protocol", "metaData"])
def test_a_checkpoint_without_protocol_or_metadata_is_refused_by_name(missing: str) -> None:
    """As the corpus has it: nothing is read around a checkpoint that is whole for all one can tell."""
    state = states(HISTORY)[2]
    rows = [row for row in [*small_rows(state), *file_rows(state)] if missing not in row]
    path = "_delta_log/00000000000000000002.checkpoint.parquet"
    files = {**commits(HISTORY), path: parquet(rows)}
    with (
        MemoryTable(files) as table,
        pytest.raises(CorruptLogError, match=f"no {missing} action.*{path} lacks it") as caught,
    ):
        table.delta().snapshot()
    assert caught.value.path == path
