from __future__ import annotations

import itertools
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_delta.engine.errors import (
    CorruptLogError,
    DeltaError,
    InvalidArgumentError,
    TableNotFoundError,
    VersionNotFoundError,
)
from airflow_delta.engine.log import listing as listing_module
from airflow_delta.engine.log.completeness import earliest_version
from airflow_delta.engine.log.files import (
    Checkpoint,
    ClassicCheckpoint,
    MultipartCheckpoint,
    UnbackfilledCommit,
    V2Checkpoint,
    checkpoint_rank,
    unbackfilled_commit_path,
)
from airflow_delta.engine.log.last_checkpoint import LastCheckpointHint
from airflow_delta.engine.log.listing import list_log
from airflow_delta.engine.log.segment import LogSegment, load_segment
from airflow_delta.engine.storage.base import FileInfo
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.engine.log.logs import (
    OTHER_UUID,
    UUID,
    Counting,
    Hiding,
    classic,
    commit,
    commits,
    compacted,
    crc,
    make_log,
    multipart,
    part,
    v2,
)


def hint(storage: MemoryStorage, version: int) -> MemoryStorage:
    text = LastCheckpointHint(version, 1).to_json()
    storage.replace("_delta_log/_last_checkpoint", text.encode())
    return storage


def versions(segment: LogSegment) -> list[int]:
    return [found.version for found in segment.commits]


def chosen(segment: LogSegment) -> str | None:
    return None if segment.checkpoint is None else segment.checkpoint.path.split("/")[1]


def test_a_log_of_commits():
    segment = load_segment(make_log(commits(0, 3)))
    assert (segment.version, segment.checkpoint, versions(segment)) == (3, None, [0, 1, 2, 3])
    assert segment.checkpoint_commit is None
    assert segment.last_commit == segment.commits[-1]


def test_a_checkpoint_replaces_the_commits_up_to_it():
    segment = load_segment(make_log([*commits(0, 12), classic(10), crc(12), crc(11)]))
    assert (segment.version, chosen(segment), versions(segment)) == (12, classic(10), [11, 12])
    assert segment.checkpoint_commit is not None
    assert segment.checkpoint_commit.version == 10
    assert segment.checksum is not None
    assert segment.checksum.version == 12


def test_a_checkpoint_at_the_target_leaves_no_commits():
    segment = load_segment(make_log([*commits(0, 10), classic(10)]), version=10)
    assert (chosen(segment), versions(segment)) == (classic(10), [])
    assert segment.last_commit == segment.checkpoint_commit
    assert segment.last_commit is not None


def test_a_checkpoint_newer_than_the_target_is_ignored():
    storage = make_log([*commits(0, 12), classic(5), classic(10), crc(12)])
    segment = load_segment(storage, version=8)
    assert (segment.version, chosen(segment), versions(segment)) == (8, classic(5), [6, 7, 8])
    assert segment.checksum is None


@pytest.mark.parametrize(
    ("names", "empty", "expected"),
    [
        # A zero-byte classic one, a complete multi-part set, and an older V2 one.
        ([*multipart(10, 2), v2(9)], [classic(10)], multipart(10, 2)[0]),
        ([part(10, 1, 2), classic(8)], [], classic(8)),
        ([classic(8), v2(8)], [], v2(8)),
        ([*multipart(8, 2), *multipart(8, 3), classic(8)], [], multipart(8, 3)[0]),
        ([v2(8, OTHER_UUID), v2(8, UUID)], [], v2(8, UUID)),
        ([part(10, 2, 2)], [classic(10)], None),
    ],
)
def test_choice_of_checkpoint(names, empty, expected):
    assert chosen(load_segment(make_log([*commits(0, 11), *names], empty=empty))) == expected


def test_an_excluded_checkpoint_gives_way_to_the_next_best_and_at_last_to_the_commits():
    storage = hint(make_log([*commits(0, 11), *multipart(10, 2), v2(10), classic(4)]), 10)
    excluded: list[str] = []
    found = []
    for _ in range(4):
        segment = load_segment(storage, excluded_checkpoints=excluded)
        found.append((chosen(segment), versions(segment)))
        if segment.checkpoint is not None:
            excluded.append(segment.checkpoint.path)
    assert found == [
        (v2(10), [11]),
        (multipart(10, 2)[0], [11]),
        (classic(4), list(range(5, 12))),
        (None, list(range(12))),
    ]


def test_without_commits_a_checkpoint_is_enough():
    segment = load_segment(make_log([classic(10)]))
    assert (segment.version, chosen(segment), versions(segment)) == (10, classic(10), [])
    assert segment.last_commit is None
    assert segment.checkpoint_commit is None


def test_a_table_after_cleanup():
    storage = make_log([*commits(10, 12), classic(10)])
    assert versions(load_segment(storage)) == [11, 12]
    with pytest.raises(VersionNotFoundError, match=r"version 9 .* versions 10 to 12") as caught:
        load_segment(storage, version=9)
    assert (caught.value.version, caught.value.earliest, caught.value.latest) == (9, 10, 12)


def test_what_a_cleanup_cut_short_leaves_behind_is_not_called_a_gap():
    storage = make_log([*commits(0, 1), *commits(8, 12), classic(10)])
    with pytest.raises(VersionNotFoundError, match="versions 10 to 12"):
        load_segment(storage, version=9)


@pytest.mark.parametrize("version", [3, 5, 2**63 - 1])
def test_a_version_that_is_yet_to_come(version):
    with pytest.raises(VersionNotFoundError, match=rf"version {version} .* versions 0 to 2") as got:
        load_segment(make_log(commits(0, 2)), version=version)
    assert (got.value.earliest, got.value.latest) == (0, 2)


@pytest.mark.parametrize("version", [-1, True, False, 1.0, "1", 2**63])
def test_what_is_no_version(version):
    with pytest.raises(InvalidArgumentError, match="version"):
        load_segment(make_log(commits(0, 2)), version=version)


@pytest.mark.parametrize(
    "names", [[], [crc(0)], [part(3, 1, 2)], ["_commits/x.json"], ["7.json"], ["_sidecars/x"]]
)
@pytest.mark.parametrize("version", [None, 0, 4])
@pytest.mark.parametrize("pointed_to", [None, 3])
def test_no_table(names, version, pointed_to):
    storage = make_log(names)
    if pointed_to is not None:
        hint(storage, pointed_to)
    with pytest.raises(TableNotFoundError, match="no Delta table"):
        load_segment(storage, version=version)


@pytest.mark.parametrize(
    ("names", "version", "message"),
    [
        ([*commits(0, 1), *commits(3, 4)], None, "commit 2 is missing"),
        ([*commits(0, 1), *commits(5, 6)], None, "commits 2 to 4 are missing"),
        ([*commits(0, 1), *commits(3, 4)], 2, "commit 2 is missing"),
        ([*commits(0, 5), *commits(7, 8), classic(5)], None, "commit 6 is missing"),
        ([classic(5), *commits(7, 8)], None, "commit 6 is missing"),
        # Only the commits tell; a compaction over the hole doesn't fill it.
        ([*commits(0, 1), commit(4), compacted(0, 3)], None, "commits 2 to 3 are missing"),
    ],
)
def test_gaps_are_named(names, version, message):
    with pytest.raises(CorruptLogError, match=message) as caught:
        load_segment(make_log(names), version=version)
    assert caught.value.version == int(message.split()[1])


def test_versions_before_a_gap_can_be_loaded():
    assert versions(load_segment(make_log([*commits(0, 1), commit(3)]), version=1)) == [0, 1]


@pytest.mark.parametrize("version", [None, 5, 7])
@pytest.mark.parametrize("extra", [[], [part(5, 1, 2)], [compacted(0, 7)]])
def test_a_truncated_log_is_not_an_absent_one(version, extra):
    with pytest.raises(CorruptLogError, match=r"truncated.*first commit is version 5"):
        load_segment(make_log([*commits(5, 7), *extra]), version=version)


def test_a_truncated_log_says_which_checkpoints_were_unreadable():
    storage = make_log([*commits(5, 7), classic(5)])
    with pytest.raises(CorruptLogError, match=f"not counting _delta_log/{classic(5)}"):
        load_segment(storage, excluded_checkpoints=[f"_delta_log/{classic(5)}"])


def test_a_commit_of_zero_bytes_is_an_error_where_it_is_needed():
    storage = make_log(commits(0, 2), empty=[commit(3)])
    with pytest.raises(CorruptLogError, match=f"{commit(3)} has zero bytes") as caught:
        load_segment(storage)
    assert caught.value.version == 3
    assert versions(load_segment(storage, version=2)) == [0, 1, 2]


def always(storage, *names):
    return Hiding(storage, *names, times=float("inf"))


@pytest.mark.parametrize("version", [None, 4])
@pytest.mark.parametrize(
    ("extra", "hidden", "message"),
    [
        ([], [commit(3)], "commit 3 is missing"),
        ([], commits(1, 3), "commits 1 to 3 are missing"),
        ([], commits(0, 3), "truncated"),
        ([classic(2)], [commit(3)], "commit 3 is missing"),
    ],
)
@pytest.mark.parametrize("pointed_to", [None, 2])
def test_what_one_listing_misses_is_damage_only_if_the_next_one_misses_it(
    extra, hidden, message, version, pointed_to
):
    """A directory that others add to may give a name and not the one that was made before it."""
    storage = make_log([*commits(0, 4), *extra])
    if pointed_to is not None:
        hint(storage, pointed_to)
    assert load_segment(Hiding(storage, *hidden), version=version) == load_segment(storage)
    with pytest.raises(CorruptLogError, match=message):
        load_segment(always(storage, *hidden), version=version)


def test_a_checkpoint_of_the_next_version_is_ignored_when_a_second_listing_shows_it():
    """Only the second listing goes beyond the version."""
    storage = make_log([*commits(0, 6), classic(5)])
    segment = load_segment(Hiding(storage, commit(3)), version=4)
    assert (segment.version, chosen(segment), versions(segment)) == (4, None, [0, 1, 2, 3, 4])


def test_a_checkpoint_made_while_its_commits_are_cleaned_up():
    storage = make_log([*commits(4, 6), classic(5)])
    segment = load_segment(Hiding(storage, classic(5)))
    assert (segment.version, chosen(segment)) == (6, classic(5))
    with pytest.raises(CorruptLogError, match="truncated"):
        load_segment(always(storage, classic(5)))


class Growing(Hiding):
    """A storage in which commits are made during each listing, which shows some of them."""

    def __init__(self, storage, newest, shown):
        super().__init__(storage)
        self.newest = newest
        self._shown = shown

    def list(self, directory, *, start_after=""):
        found = [*self._storage.list(directory, start_after=start_after)]
        for shown in self._shown.pop(0) if self._shown else ():
            self.newest += 1
            self._storage.replace(f"_delta_log/{commit(self.newest)}", b"{}")
            found += [FileInfo(f"_delta_log/{commit(self.newest)}", 2, 0)] if shown else []
        return iter(found)


@settings(max_examples=50, deadline=None)
@given(
    newest=st.integers(0, 3),
    shown=st.lists(st.lists(st.booleans(), max_size=4), max_size=5),
    wanted=st.none() | st.integers(0, 9),
    pointed_to=st.none() | st.integers(0, 3),
    start_after=st.booleans(),
)
@example(0, [[False, True], [False, True]], None, None, True)
@example(1, [[False, True], [False, False, True]], 4, 0, True)
def test_whoever_reads_while_others_append_is_told_a_version_of_that_time(
    newest, shown, wanted, pointed_to, start_after
):
    storage = make_log([*commits(0, newest), classic(0)])
    if pointed_to is not None:
        hint(storage, pointed_to)
    growing = Growing(storage, newest, shown)
    try:
        segment = load_segment(Counting(growing, start_after=start_after), version=wanted)
    except VersionNotFoundError:
        assert wanted is not None
        assert wanted > newest
        return
    assert versions(segment) == list(range(1, segment.version + 1))
    assert newest <= segment.version <= growing.newest or segment.version == wanted


def test_only_usable_compactions_are_taken():
    names = [compacted(0, 2), compacted(2, 4), compacted(0, 9)]
    segment = load_segment(make_log([*commits(0, 6), *names]))
    assert [(found.start, found.end) for found in segment.compactions] == [(0, 2)]
    assert [file.path.split("/")[1] for file in segment.plan()] == [
        compacted(0, 2),
        *commits(3, 6),
    ]


def test_a_compaction_that_reaches_over_the_checkpoint_is_unusable():
    segment = load_segment(make_log([*commits(0, 6), compacted(0, 4), classic(3)]))
    assert segment.compactions == ()
    assert segment.plan() == segment.commits


def unbackfilled(version: int, size: int = 1) -> UnbackfilledCommit:
    return UnbackfilledCommit(version, UUID, unbackfilled_commit_path(version, UUID), size, 0)


def test_a_segment_carried_on_by_unbackfilled_commits():
    segment = load_segment(make_log([*commits(0, 4), classic(3), crc(4)]))
    extended = segment.extended([unbackfilled(5), unbackfilled(6)])
    assert (extended.version, versions(extended)) == (6, [4, 5, 6])
    assert extended.checkpoint == segment.checkpoint
    assert extended.checksum is None
    assert segment.extended([]) == segment


@pytest.mark.parametrize(
    ("following", "message"),
    [
        ([unbackfilled(6)], "commit 5 is missing"),
        ([unbackfilled(5), unbackfilled(7)], "commit 6 is missing"),
        ([unbackfilled(5, size=0)], "zero bytes"),
    ],
)
def test_a_segment_is_carried_on_without_a_gap_only(following, message):
    segment = load_segment(make_log(commits(0, 4)))
    with pytest.raises(CorruptLogError, match=message):
        segment.extended(following)


class TestRequests:
    """How much of a store is asked for."""

    def test_the_latest_version_takes_the_hint_and_one_listing_from_there(self):
        storage = Counting(hint(make_log([*commits(0, 40), classic(30)]), 30))
        assert load_segment(storage).version == 40
        assert storage.calls == [
            ("read", "_delta_log/_last_checkpoint"),
            ("list", "00000000000000000030"),
        ]
        assert storage.listed <= 13

    @pytest.mark.parametrize("pointed_to", [20, 99])
    def test_a_hint_to_nothing_costs_one_more_listing(self, pointed_to):
        storage = Counting(hint(make_log([*commits(0, 40), classic(10)]), pointed_to))
        assert chosen(load_segment(storage)) == classic(10)
        assert [call for call, _ in storage.calls] == ["read", "list", "list"]

    def test_an_old_version_is_found_backwards_in_windows(self):
        names = [*commits(0, 3500), classic(100), classic(3400)]
        storage = Counting(hint(make_log(names), 3400))
        segment = load_segment(storage, version=1150)
        assert (chosen(segment), len(segment.commits)) == (classic(100), 1050)
        assert [start for call, start in storage.calls if call == "list"] == [
            "00000000000000000151",
            "",
        ]
        assert storage.listed <= 1160

    def test_a_store_without_late_starts_is_listed_once(self):
        storage = Counting(make_log([*commits(0, 20), classic(10)]), start_after=False)
        assert chosen(load_segment(storage, version=15)) == classic(10)
        assert [call for call, _ in storage.calls] == ["read", "list"]


# A log as a set of files of versions 0 to 6, in any state that crashes and cleanups leave behind.
LOGS = st.fixed_dictionaries(
    {
        "commits": st.sets(st.integers(0, 6)),
        "checkpoints": st.sets(
            st.sampled_from(
                [
                    name
                    for version in range(7)
                    for name in [classic(version), v2(version), *multipart(version, 2)]
                ]
            ),
            max_size=5,
        ),
    }
)


@settings(max_examples=50, deadline=None)
@given(log=LOGS, wanted=st.none() | st.integers(0, 7), pointed_to=st.none() | st.integers(0, 8))
def test_every_way_to_a_segment_leads_to_what_the_files_allow(log, wanted, pointed_to):
    """Against a definition by brute force, and with every means of listing less."""
    names = [*map(commit, log["commits"]), *log["checkpoints"]]
    storage = make_log(names)
    if pointed_to is not None:
        hint(storage, pointed_to)
    listed = list_log(storage)
    target = listed.latest if wanted is None else wanted
    usable = [
        found for found in listed.checkpoints if target is not None and found.version <= target
    ]
    starts = {-1, *(found.version for found in usable)}
    possible = (
        target is not None
        and (bool(usable) or 0 in log["commits"])
        and any(set(range(start + 1, target + 1)) <= log["commits"] for start in starts)
    )
    best = max(usable, key=checkpoint_rank, default=None)

    outcomes: set[object] = set()
    ways = itertools.product([True, False], [True, False], [2, 1000])
    for use_hint, start_after, window in ways:
        counting = Counting(storage, start_after=start_after)
        with patch.object(listing_module, "_WINDOW", window):
            try:
                outcomes.add(load_segment(counting, version=wanted, use_hint=use_hint))
            except DeltaError as error:
                outcomes.add((type(error), str(error)))

    (outcome,) = outcomes
    assert isinstance(outcome, LogSegment) == possible
    if isinstance(outcome, LogSegment):
        assert outcome.version == target
        assert outcome.checkpoint == best
        first = 0 if best is None else best.version + 1
        assert versions(outcome) == list(range(first, outcome.version + 1))


@settings(max_examples=50, deadline=None)
@given(log=LOGS)
def test_from_the_earliest_version_on_every_version_can_be_loaded(log):
    storage = make_log([*map(commit, log["commits"]), *log["checkpoints"]])
    listing = list_log(storage)

    def loads(version: int) -> bool:
        try:
            load_segment(storage, version=version)
        except DeltaError:
            return False
        return True

    reached = None
    if listing.latest is not None:
        for version in range(listing.latest, -1, -1):
            if not loads(version):
                break
            reached = version
    assert earliest_version(listing) == reached


def test_kinds_of_checkpoint_have_their_types():
    def kind(*names: str) -> type[Checkpoint]:
        return type(load_segment(make_log([commit(0), *names])).checkpoint)

    assert kind(classic(0)) is ClassicCheckpoint
    assert kind(*multipart(0, 2)) is MultipartCheckpoint
    assert kind(v2(0, kind="parquet")) is V2Checkpoint
