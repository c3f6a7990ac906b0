from __future__ import annotations

import pytest

from airflow_delta.engine.errors import InvalidArgumentError, TableNotFoundError
from airflow_delta.engine.log.last_checkpoint import LastCheckpointHint
from airflow_delta.engine.log.newest import find_latest_version
from tests.engine.log.logs import Counting, classic, commits, make_log

READ_HINT = ("read", "_delta_log/_last_checkpoint")


def kinds(storage: Counting) -> list[str]:
    return [call for call, _ in storage.calls]


def with_hint(names: list[str], version: int) -> Counting:
    storage = make_log(names)
    text = LastCheckpointHint(version, 1).to_json()
    storage.replace("_delta_log/_last_checkpoint", text.encode())
    return Counting(storage)


def test_a_poll_with_nothing_new_is_one_request():
    storage = Counting(make_log(commits(0, 5)))
    assert find_latest_version(storage, 5) == 5
    assert storage.calls == [("head", "_delta_log/00000000000000000006.json")]


def test_a_poll_finds_what_is_new():
    storage = Counting(make_log(commits(0, 7)))
    assert find_latest_version(storage, 5) == 7
    assert kinds(storage) == ["head"] * 3


@pytest.mark.parametrize("ahead", [7, 8, 9, 500])
def test_far_behind_a_listing_takes_over(ahead):
    storage = Counting(make_log(commits(0, ahead)))
    assert find_latest_version(storage, 0) == ahead
    assert len(storage.calls) <= 9
    assert kinds(storage).count("list") == (ahead >= 8)


def test_a_known_version_that_cleanup_took_is_noticed_where_asked_for():
    storage = Counting(make_log([*commits(20, 25), classic(20)]))
    assert find_latest_version(storage, 5) == 5
    assert find_latest_version(storage, 5, confirm=True) == 25


def test_confirming_costs_one_request_where_nothing_happened():
    storage = Counting(make_log(commits(0, 5)))
    assert find_latest_version(storage, 5, confirm=True) == 5
    assert kinds(storage) == ["head", "head"]


def test_without_a_known_version_the_hint_saves_the_start_of_the_log():
    storage = with_hint([*commits(0, 40), classic(30)], 30)
    assert find_latest_version(storage) == 40
    assert storage.calls == [READ_HINT, ("list", "00000000000000000030")]
    assert storage.listed <= 13


def test_a_hint_past_the_end_of_the_log_is_no_answer():
    storage = with_hint(commits(0, 4), 99)
    assert find_latest_version(storage) == 4
    assert kinds(storage) == ["read", "list", "list"]


def test_a_checkpoint_alone_proves_its_version():
    assert find_latest_version(make_log([classic(10)])) == 10


@pytest.mark.parametrize("confirm", [True, False])
@pytest.mark.parametrize("names", [[], ["7.json"]])
def test_no_table(names, confirm):
    with pytest.raises(TableNotFoundError, match="no Delta table"):
        find_latest_version(make_log(names), confirm=confirm)


def test_a_table_that_is_gone_is_noticed_where_asked_for():
    with pytest.raises(TableNotFoundError, match="no Delta table"):
        find_latest_version(make_log([]), 5, confirm=True)


def test_what_is_no_version():
    with pytest.raises(InvalidArgumentError, match="no version -1"):
        find_latest_version(make_log(commits(0, 4)), -1)
