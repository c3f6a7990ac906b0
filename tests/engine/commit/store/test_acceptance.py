"""A log that is behind its commit store: no version is claimed, and lost commits can be given up."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from airflow_delta.engine.commit.owner import OwnerStatus, Standing
from airflow_delta.engine.commit.store.owner import StoreBackedOwner
from airflow_delta.engine.errors import CommitOwnerError, CorruptLogError, DeltaError
from airflow_delta.engine.log.files import commit_path
from tests.engine.commit.store.test_owner import HOWS, POLICIES, World, texts
from tests.faulty_commit_store import FaultyCommitStore
from tests.faulty_storage import Crash, Fault, How
from tests.owned_tables import (
    OWNER,
    commit_text,
    fresh_storage,
    handing_over,
    in_log,
    managed,
    unbackfilled_files,
)

CHECKPOINT = f"_delta_log/{6:020}.checkpoint.parquet"


def set_back(world: World, version: int) -> None:
    """Restore an older state of the table's directory, of a version."""
    for info in [*world.inner.walk("_delta_log")]:
        if int(info.name.partition(".")[0]) > version:
            world.inner.delete([info.path])


def lose(world: World, *versions: int) -> None:
    """Lose the un-backfilled files of versions."""
    paths = unbackfilled_files(world.inner)
    world.inner.delete(
        path for path in paths if int(path.split("/")[-1].partition(".")[0]) in versions
    )


def made(policy: str, latest: int) -> World:
    world = World.owned(policy)
    for version in range(2, latest + 1):
        world.make(version)
    return world


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("version", [None, 2, 5, 6])
def test_a_backfill_does_not_claim_what_the_log_does_not_have(
    policy: str, version: int | None
) -> None:
    world = made(policy, 6)
    world.owner().backfill_to_version(world.table())
    set_back(world, 3)
    with pytest.raises(CorruptLogError, match="the newest version in the log is 3") as caught:
        world.owner().backfill_to_version(world.table(), version)
    error = caught.value
    assert (error.version, error.path, error.found) == (6, commit_path(6), 3)
    assert (error.table, error.owner, error.latest) == (world.inner.root, OWNER, 6)
    assert repr(OWNER) in str(error)
    assert "ratified is 6" in str(error)
    assert "accept_log" in str(error)
    assert sorted(in_log(world.inner)) == [0, 1, 2, 3]


def test_commits_are_not_copied_behind_a_gap() -> None:
    world = made("3", 8)
    world.inner.delete([commit_path(version) for version in (5, 6)])
    with pytest.raises(CorruptLogError, match="the newest version in the log is 4"):
        world.owner().backfill_to_version(world.table())
    assert sorted(in_log(world.inner)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("proof", [commit_path(7), CHECKPOINT])
def test_a_backfilled_version_may_be_cleaned_up(proof: str) -> None:
    """Where a later version is there, or a checkpoint of that one."""
    world = made("1", 6)
    if proof == CHECKPOINT:
        world.inner.create(CHECKPOINT, b"checkpoint")
    else:
        world.make(7)
        world.restore(replace(world.entry(), latest_version=6, backfilled_version=6))
    world.inner.delete([commit_path(version) for version in range(7)])
    assert world.owner().backfill_to_version(world.table(), 4) == 6
    assert world.owner().backfill_to_version(world.table()) == 6


def test_a_ratified_file_that_a_restored_commit_store_tracks_may_be_cleaned_up() -> None:
    world = made("on-request", 3)
    backup = world.entry()
    world.owner().backfill_to_version(world.table())
    world.make(4)
    world.owner().backfill_to_version(world.table())
    world.inner.delete([*unbackfilled_files(world.inner), *map(commit_path, range(4))])
    world.restore(backup)
    assert world.owner().backfill_to_version(world.table()) == 3
    assert world.make(5).commit is not None


@pytest.mark.parametrize("policy", POLICIES)
def test_a_table_that_was_set_back_goes_on_from_there(policy: str) -> None:
    world = made(policy, 6)
    world.owner().backfill_to_version(world.table())
    set_back(world, 3)
    for version in (2, 4, 6):
        with pytest.raises(
            CommitOwnerError, match=r"that is version 3, because .*6\.json isn't"
        ) as caught:
            world.owner().accept_log(world.table(), version)
        assert "versions 4 to 6" in str(caught.value)
        assert (caught.value.expected, caught.value.latest) == (3, 6)
    assert world.owner().accept_log(world.table(), 3, dry_run=True) == 6
    assert world.status().latest_version == 6
    assert world.owner().accept_log(world.table(), 3) == 6
    assert world.status() == OwnerStatus(Standing.ACTIVE, 3, 3, 0)
    assert world.make(4, by="anew").commit is not None
    world.owner().backfill_to_version(world.table())
    assert [*in_log(world.inner).values()][2:] == [*texts((2, 3)), commit_text("anew")]


@pytest.mark.parametrize("lost", [4, 6])
def test_commits_before_one_that_is_lost_are_kept(lost: int) -> None:
    world = made("on-request", 6)
    world.inner.create(commit_path(2), texts([2])[0])
    lose(world, lost)
    with pytest.raises(CorruptLogError, match=f"{lost}.*is gone.*ratified is 6.*accept_log") as one:
        world.owner().backfill_to_version(world.table())
    assert (one.value.owner, one.value.latest, one.value.version) == (OWNER, 6, lost)
    assert world.owner().accept_log(world.table(), lost - 1) == 6
    assert world.status() == OwnerStatus(Standing.ACTIVE, lost - 1, lost - 1, 0)
    assert [*in_log(world.inner).values()][2:] == texts(range(2, lost))
    assert world.make(lost, by="anew").commit is not None
    assert world.history()[2:] == [*texts(range(2, lost)), commit_text("anew")]


def test_a_commit_that_is_damaged_is_lost() -> None:
    world = made("on-request", 3)
    world.inner.replace(unbackfilled_files(world.inner)[1], b"half")
    assert world.owner().accept_log(world.table(), 2) == 3
    assert world.status() == OwnerStatus(Standing.ACTIVE, 2, 2, 0)


def test_the_other_commit_in_the_log_may_be_taken_for_the_version() -> None:
    world = made("on-request", 3)
    for version in (2, 3, 4):
        world.inner.create(commit_path(version), commit_text(f"foreign {version}"))
    with pytest.raises(CorruptLogError, match=r"ratified is 3\. .*accept_log"):
        world.make(4)
    with pytest.raises(
        CommitOwnerError, match=r"that is version 4, because .*2\.json isn't what"
    ) as error:
        world.owner().accept_log(world.table(), 3)
    assert "versions 2 to 3" in str(error.value)
    assert world.owner().accept_log(world.table(), 4) == 3
    assert world.make(5).latest_table_version == 5
    assert len(in_log(world.inner)) == 5


def test_a_release_that_is_lost_is_given_up() -> None:
    world = made("1", 3)
    world.make(4, releases=True)
    set_back(world, 3)
    assert world.status().standing is Standing.RELEASED
    assert world.owner().accept_log(world.table(), 3) == 4
    assert world.make(4).commit is not None


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_is_given_up_where_nothing_is_missing(policy: str) -> None:
    world = made(policy, 5)
    for version in (1, 4, 5):
        with pytest.raises(CommitOwnerError, match=r"nothing is missing .* up to version 5"):
            world.owner().accept_log(world.table(), version)
    # Neither if the log is ahead of the commit store, nor for versions that were cleaned up.
    world.owner().backfill_to_version(world.table())
    world.inner.create(commit_path(6), commit_text("foreign"))
    world.inner.delete([*unbackfilled_files(world.inner), *map(commit_path, range(5))])
    with pytest.raises(CommitOwnerError, match="nothing is missing"):
        world.owner().accept_log(world.table(), 6)
    assert world.make(7).latest_table_version == 7


def test_a_copy_gives_up_nothing_of_the_original() -> None:
    world = made("1", 3)
    copied = replace(world, inner=fresh_storage())
    for info in world.inner.walk(""):
        copied.inner.create(info.path, world.inner.read(info.path))
    set_back(copied, 2)
    with pytest.raises(CommitOwnerError, match="relocate"):
        copied.owner().accept_log(copied.table(), 2)
    assert world.status().latest_version == 3


def test_a_log_that_the_table_was_not_handed_over_in_is_not_accepted() -> None:
    world = made("1", 3)
    set_back(world, 0)
    with pytest.raises(CommitOwnerError, match="the log doesn't have version 1, which handed"):
        world.owner().accept_log(world.table(), 0)
    for version in (1, 2):
        world.inner.create(commit_path(version), commit_text("of another table"))
    with pytest.raises(CommitOwnerError, match="or has another commit there"):
        world.owner().accept_log(world.table(), 2)
    proposed = World({"tableId": "ours"})
    proposed.owner().propose(proposed.table(), 0)
    with pytest.raises(CommitOwnerError, match="agreed to own it from version 0"):
        proposed.owner().accept_log(proposed.table(), 0)


@pytest.mark.parametrize("is_cleaned_up", [False, True])
def test_a_dry_run_records_nothing_not_even_a_hand_over(is_cleaned_up: bool) -> None:
    world = World(dict(managed(fresh_storage()).conf))
    world.owner().propose(world.table(), 1)
    newest = 3 if is_cleaned_up else 1
    world.inner.create(commit_path(newest), handing_over(world.conf))
    proposed = world.entry()
    for dry_run in (True, False):
        # The answer of the dry run is what the other one says.
        with pytest.raises(CommitOwnerError, match=f"nothing is missing .* up to version {newest}"):
            world.owner().accept_log(world.table(), newest, dry_run=dry_run)
        if dry_run:
            foreseen = world.status()
            assert world.entry() == proposed
    assert world.entry().standing is Standing.ACTIVE
    assert world.status() == foreseen == OwnerStatus(Standing.ACTIVE, newest, newest, 0)


def test_commits_that_are_ratified_concurrently_are_not_given_up() -> None:
    world = made("on-request", 4)
    lose(world, 3)
    meanwhile = Fault("accept", 1, meanwhile=lambda: world.make(5))
    with pytest.raises(CommitOwnerError, match=r"has recorded changed .* nothing was given up"):
        world.owner(meanwhile).accept_log(world.table(), 2)
    assert [commit.version for commit in world.entry().commits] == [3, 4, 5]


@pytest.mark.parametrize("how", HOWS)
def test_commits_are_given_up_once_whatever_goes_wrong(how: How) -> None:
    for nth in itertools.count(1):
        world = made("on-request", 4)
        lose(world, 3)
        fault = Fault("*", nth, how)
        commit_store = FaultyCommitStore(world.commit_store, fault)
        try:
            StoreBackedOwner(commit_store).accept_log(world.table(), 2)
        except (DeltaError, Crash):
            if world.status().latest_version == 4:
                assert world.owner().accept_log(world.table(), 2) == 4
        assert world.status() == OwnerStatus(Standing.ACTIVE, 2, 2, 0)
        if nth > len(commit_store.calls):
            break
    assert nth > 2
