"""When to backfill: the words of the configuration, and what they mean."""

from __future__ import annotations

import pytest

from airflow_delta.engine.commit.store.backfill_policy import (
    BackfillPolicy,
    check_conf,
    is_same_conf,
)
from airflow_delta.engine.errors import InvalidArgumentError, InvalidTableError


@pytest.mark.parametrize(
    ("conf", "due", "direct"),
    [
        ({}, [0, 1, 2, 3, 4, 5, 6], False),
        ({"backfill": "1"}, [0, 1, 2, 3, 4, 5, 6], False),
        ({"backfill": "3", "endpoint": "x"}, [0, 3, 6], False),
        ({"backfill": "100"}, [0], False),
        ({"backfill": "on-request"}, [], False),
        ({"backfill": "direct"}, [], True),
    ],
)
def test_policies(conf: dict[str, str], due: list[int], direct: bool) -> None:
    policy = BackfillPolicy.of(conf, table="t")
    assert [version for version in range(7) if policy.is_due(version)] == due
    assert policy.direct is direct


NO_POLICIES = ["", "0", "-1", "01", "1.0", " 1", "١", "never", "Direct", "9" * 19]


@pytest.mark.parametrize("value", NO_POLICIES)
def test_other_words_are_refused(value: str) -> None:
    with pytest.raises(InvalidTableError, match="expected a whole number above 0") as caught:
        BackfillPolicy.of({"backfill": value}, table="s3://b/t")
    assert caught.value.table == "s3://b/t"
    assert caught.value.property == "delta.managedCommit.commitOwnerConf"
    assert caught.value.value == value
    for expected in ("'on-request'", "'direct'", repr(value)):
        assert expected in str(caught.value)


@pytest.mark.parametrize("value", NO_POLICIES)
def test_at_the_hand_over_other_words_are_a_wrong_argument(value: str) -> None:
    with pytest.raises(InvalidArgumentError, match="expects a whole number above 0") as caught:
        check_conf({"backfill": value, "tableId": "t"}, owner="sql", table="s3://b/t")
    assert (caught.value.table, caught.value.option, caught.value.value) == (
        "s3://b/t",
        "backfill",
        value,
    )
    for expected in ("conf['backfill']", "'on-request'", "'direct'", repr(value)):
        assert expected in str(caught.value)


@pytest.mark.parametrize("conf", [{}, {"backfill": "7"}, {"tableId": "t", "backfill": "direct"}])
def test_at_the_hand_over_a_policy_is_taken(conf: dict[str, str]) -> None:
    check_conf(conf, owner="sql", table="t")


def test_at_the_hand_over_unknown_keys_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"conf\['backfil'\].*'sql'.*than 'backfill'"):
        check_conf({"backfil": "3", "tableId": "t"}, owner="sql", table="t")


def test_what_goes_without_saying_may_be_said() -> None:
    assert is_same_conf({}, {"backfill": "1"})
    assert is_same_conf({"backfill": "1"}, {})
    assert is_same_conf({"backfill": "on-request"}, {"backfill": "on-request"})
    assert not is_same_conf({}, {"backfill": "2"})
    assert not is_same_conf({"backfill": "1"}, {"backfill": "direct"})
    assert not is_same_conf({"endpoint": "x"}, {})
