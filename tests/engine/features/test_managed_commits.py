from __future__ import annotations

import pytest

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.features.managed_commits import commit_owner
from airflow_delta.engine.model.properties import TableProperties

OWNED = TableProperties({"delta.managedCommit.commitOwner": "commit-owner-1"}, "tbl")
PLAIN = TableProperties({}, "tbl")


def test_feature_and_property_together_name_the_owner() -> None:
    assert commit_owner(frozenset({"managedCommit"}), OWNED) == "commit-owner-1"
    assert commit_owner(frozenset({"appendOnly"}), PLAIN) is None


def test_the_property_without_the_feature_is_invalid() -> None:
    with pytest.raises(InvalidTableError, match="'commit-owner-1', but the protocol lacks"):
        commit_owner(frozenset(), OWNED)


def test_the_feature_without_the_property_is_invalid() -> None:
    with pytest.raises(InvalidTableError, match=r"property delta\.managed.* is missing"):
        commit_owner(frozenset({"managedCommit"}), PLAIN)
