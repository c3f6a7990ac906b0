"""When to backfill: the words of the configuration, and what they mean."""

from __future__ import annotations

import pytest

from airflow_delta.engine.commit.backfill_policy import BackfillPolicy
from airflow_delta.engine.errors import InvalidTableError


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


@pytest.mark.parametrize(
    "value", ["", "0", "-1", "01", "1.0", " 1", "١", "never", "Direct", "9" * 19]
)
def test_other_words_are_refused(value: str) -> None:
    with pytest.raises(InvalidTableError, match="expected a whole number above 0") as caught:
        BackfillPolicy.of({"backfill": value}, table="s3://b/t")
    assert caught.value.table == "s3://b/t"
    assert caught.value.property == "delta.managedCommit.commitOwnerConf"
    assert caught.value.value == value
    for expected in ("'on-request'", "'direct'", repr(value)):
        assert expected in str(caught.value)
