"""Which of several checkpoints is read, shown by their contents.

Each checkpoint holds one file named after it, which no commit has: what is read shows which one was
taken. A real log's checkpoints agree, so that a wrong choice would not show.
"""

from __future__ import annotations

import pytest

from airflow_delta.engine.errors import DeltaWarning, UnsupportedFeatureError
from tests.log_builder import PROTOCOL, add, metadata
from tests.table_builder import (
    Action,
    Files,
    MemoryTable,
    State,
    classic_checkpoint,
    commit_file,
    commits,
    hint,
    multipart_checkpoint,
    replay,
    v2_checkpoint,
)

V2: Action = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["v2Checkpoint"],
        "writerFeatures": ["v2Checkpoint"],
    }
}
UNKNOWN: Action = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["v2Checkpoint", "fromTheFuture"],
        "writerFeatures": ["v2Checkpoint", "fromTheFuture"],
    }
}
LAST = 11
COMMITS = commits([[V2, metadata(), add("commits")], *([[{}]] * LAST)])


def marked(mark: str, protocol: Action = V2) -> State:
    return replay([[protocol, metadata(), add(mark)]])


def classic(version: int, mark: str, protocol: Action = V2) -> Files:
    return classic_checkpoint(marked(mark, protocol), version)


def parts(version: int, mark: str, count: int = 2) -> Files:
    return multipart_checkpoint(marked(mark), version, parts=count)


def v2(version: int, mark: str, protocol: Action = V2, form: str = "json") -> Files:
    return v2_checkpoint(marked(mark, protocol), version, form=form, sidecars=0)


def emptied(files: Files) -> Files:
    return dict.fromkeys(files, b"")


def but_the_last(files: Files) -> Files:
    return dict([*files.items()][:-1])


CHOICES: dict[str, tuple[Files, str]] = {
    "a complete set beside an empty file": (
        emptied(classic(10, "classic")) | parts(10, "parts") | v2(9, "v2"),
        "parts",
    ),
    "an older one rather than a part": (
        but_the_last(parts(10, "parts")) | classic(8, "classic"),
        "classic",
    ),
    "V2 rather than classic": (classic(8, "classic") | v2(8, "v2"), "v2"),
    "V2 in Parquet rather than classic": (
        classic(8, "classic") | v2(8, "v2", form="parquet"),
        "v2",
    ),
    "V2 rather than parts": (parts(8, "parts") | v2(8, "v2"), "v2"),
    "parts rather than classic": (parts(8, "parts") | classic(8, "classic"), "parts"),
    "V2 content in a classic name": (v2(9, "named classic", form="classic"), "named classic"),
    "a newer one": (v2(8, "v2") | classic(9, "classic"), "classic"),
    "an empty one alone": (emptied(classic(10, "classic")), "commits"),
    "a part alone": (but_the_last(parts(10, "parts", count=3)), "commits"),
    "an empty part": (
        parts(10, "parts") | emptied(dict([*parts(10, "parts").items()][:1])),
        "commits",
    ),
    "newer than the last commit": (classic(LAST + 1, "classic"), "classic"),
}


@pytest.mark.parametrize("hinted", [None, 8, 10])
@pytest.mark.parametrize("case", CHOICES)
def test_which_checkpoint_is_read(case: str, hinted: int | None) -> None:
    checkpoints, expected = CHOICES[case]
    files = COMMITS | checkpoints | ({} if hinted is None else hint(hinted))
    with MemoryTable(files) as table:
        assert table.delta().snapshot().files(["path"])["path"].to_pylist() == [expected]


@pytest.mark.parametrize("kind", [classic, v2])
def test_a_damaged_checkpoint_gives_way_to_older_ones_and_at_last_to_the_commits(kind) -> None:
    files = COMMITS | dict.fromkeys(kind(10, "x"), b"PAR1 nonsense PAR1")
    expected = [(classic(8, "eight"), "eight"), ({}, "commits")]
    for older, mark in expected:
        with MemoryTable(files | older) as table:
            path = next(iter(kind(10, "x")))
            with pytest.warns(DeltaWarning, match=path):
                found = table.delta().snapshot().files(["path"])["path"].to_pylist()
            assert found == [mark]


@pytest.mark.parametrize("form", ["json", "parquet", "classic"])
@pytest.mark.parametrize("with_commits", [False, True])
def test_a_protocol_that_is_not_known_is_refused_and_not_read_around(
    form: str, with_commits: bool
) -> None:
    """The newest checkpoint tells of a feature; an older one without it is no way out."""
    newest = v2(10, "future", UNKNOWN, form=form)
    log = COMMITS if with_commits else {commit_file(10): COMMITS[commit_file(10)]}
    log |= {commit_file(LAST): COMMITS[commit_file(LAST)]}
    older = classic_checkpoint(replay([[PROTOCOL, metadata(), add("old")]]), 8)
    for pointed in ({}, hint(8), hint(10)):
        with (
            MemoryTable({**log, **newest, **older, **pointed}) as table,
            pytest.raises(UnsupportedFeatureError, match="fromTheFuture") as caught,
        ):
            table.delta().snapshot()
        assert caught.value.features == ("fromTheFuture",)
