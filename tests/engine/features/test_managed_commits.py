from __future__ import annotations

import json

import pytest

from airflow_delta.engine.errors import InvalidArgumentError, InvalidTableError
from airflow_delta.engine.features.managed_commits import (
    assign_owner,
    check_ownership,
    check_timestamps,
    commit_owner,
    remove_owner,
    unseen_commits,
)
from airflow_delta.engine.model.properties import TableProperties

OWNER, CONF = "delta.managedCommit.commitOwner", "delta.managedCommit.commitOwnerConf"
TIMESTAMPS = "delta.enableInCommitTimestamps"
FEATURE = frozenset({"managedCommit"})


def properties(**raw: str) -> TableProperties:
    return TableProperties(raw, "tbl")


OWNED = properties(**{OWNER: "commit-owner-1"})
PLAIN = properties()


def test_feature_and_property_together_name_the_owner() -> None:
    assert commit_owner(FEATURE, OWNED) == "commit-owner-1"
    assert commit_owner(frozenset({"appendOnly"}), PLAIN) is None


def test_the_property_without_the_feature_is_invalid() -> None:
    with pytest.raises(InvalidTableError, match="'commit-owner-1', but the protocol lacks"):
        commit_owner(frozenset(), OWNED)


def test_the_feature_without_the_property_is_invalid() -> None:
    with pytest.raises(InvalidTableError, match=r"property delta\.managed.* is missing"):
        commit_owner(FEATURE, PLAIN)


def test_the_reason_why_commits_may_be_unseen() -> None:
    assert unseen_commits(frozenset(), PLAIN) is None
    assert "'commit-owner-1' may have ratified" in (unseen_commits(FEATURE, OWNED) or "")
    later = unseen_commits(frozenset({"coordinatedCommits-preview"}), PLAIN)
    assert "coordinator may know of commits" in (later or "")


def test_a_table_is_given_away_and_taken_back() -> None:
    """As the example in the RFC managed-commits, "Managed Commit Enablement", with what the engine adds."""
    before = {"appendOnly": "true", TIMESTAMPS: "false"}
    conf = {"endpoint": "http://sample-url.com/commit", "authenticationMode": "oauth2"}
    made = assign_owner(before, "commit-owner-1", conf, table_id="t-1", table="tbl")
    assert json.loads(made[CONF]) == {**conf, "tableId": "t-1"}
    assert {**made, CONF: ""} == {
        "appendOnly": "true",
        TIMESTAMPS: "true",
        OWNER: "commit-owner-1",
        CONF: "",
    }
    assert commit_owner(FEATURE, TableProperties(made, "tbl")) == "commit-owner-1"
    assert remove_owner(made) == {"appendOnly": "true", TIMESTAMPS: "true"}


def test_a_table_gets_its_id_from_the_engine_and_its_owner_a_name() -> None:
    with pytest.raises(InvalidArgumentError, match=r"tbl: .*contains tableId='mine': omit it"):
        assign_owner({}, "owner", {"tableId": "mine"}, table_id="t-1", table="tbl")
    with pytest.raises(InvalidArgumentError, match=r"tbl: .*found an empty text"):
        assign_owner({}, "", {}, table_id="t-1", table="tbl")


@pytest.mark.parametrize(
    "name",
    [
        *(
            "password",
            "dbPassword",
            "passwd",
            "PWD",
            "secret",
            "client_secret",
            "token",
            "authToken",
        ),
        *("credential", "aws.credentials", "key", "API-Key", "accessKey", "account_key", "sas"),
    ],
)
def test_what_is_named_like_a_secret_does_not_get_into_a_table(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"'{name}' .* like a secret") as caught:
        assign_owner({}, "owner", {name: "hidden"}, table_id="t-1", table="tbl")
    assert (caught.value.table, caught.value.option) == ("tbl", name)
    assert "hidden" not in str(caught.value)


def test_a_url_with_a_password_does_not_get_into_a_table() -> None:
    for url in ("https://user:hidden@host/path", "postgresql+psycopg://:hidden@host"):
        with pytest.raises(InvalidArgumentError, match=r"'endpoint' .* with a password") as caught:
            assign_owner({}, "owner", {"endpoint": url}, table_id="t-1", table="tbl")
        assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("backfill", "1"),
        ("tableKey", "7"),
        ("keyspace", "tables"),
        ("authenticationMode", "oauth2"),
        ("compass", "north"),
        ("endpoint", "https://user@host:8443/commit?at=a:b@c"),
    ],
)
def test_what_is_no_secret_gets_into_a_table(name: str, value: str) -> None:
    made = assign_owner({}, "owner", {name: value}, table_id="t-1", table="tbl")
    assert properties(**made).commit_owner_conf[name] == value


@pytest.mark.parametrize("value", [None, "false"])
def test_a_managed_table_has_in_commit_timestamps(value: str | None) -> None:
    raw = {OWNER: "owner"} if value is None else {OWNER: "owner", TIMESTAMPS: value}
    with pytest.raises(InvalidTableError, match=rf"{TIMESTAMPS} is {value!r}: expected 'true'"):
        check_timestamps(FEATURE, TableProperties(raw, "tbl"), before=frozenset())
    check_timestamps(frozenset(), TableProperties(raw, "tbl"), before=frozenset())
    check_timestamps(
        FEATURE, TableProperties({**raw, TIMESTAMPS: "true"}, "tbl"), before=frozenset()
    )


ONE = {OWNER: "one", CONF: '{"tableId":"t-1","n":"1"}'}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {}),
        ({}, ONE),
        ({}, {OWNER: "one"}),
        (ONE, {}),
        (ONE, {**ONE, "delta.appendOnly": "true"}),
        # The same, spelled in another way.
        (ONE, {**ONE, CONF: '{"n": "1", "tableId": "t-1"}'}),
        ({OWNER: "one"}, {OWNER: "one"}),
        # What another engine has left behind keeps nobody from anything.
        ({CONF: "{}"}, {CONF: "{}"}),
        ({CONF: "{}"}, {}),
        ({CONF: "{}"}, ONE),
    ],
)
def test_changes_of_ownership_that_there_are(before: dict[str, str], after: dict[str, str]) -> None:
    check_ownership(TableProperties(before, "tbl"), TableProperties(after, "tbl"))


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        (ONE, {**ONE, OWNER: "two"}, "from 'one' to 'two': first take the table back"),
        (ONE, {OWNER: "one"}, f"{CONF} would change, but the commit owner 'one'"),
        (ONE, {**ONE, CONF: '{"tableId":"t-1","n":"2"}'}, f"{CONF} would change"),
        (ONE, {**ONE, CONF: '{"tableId":"t-2","n":"1"}'}, f"{CONF} would change"),
        ({OWNER: "one"}, ONE, f"{CONF} would change"),
        (ONE, {CONF: ONE[CONF]}, f"{CONF} would stay without {OWNER}"),
        ({}, {CONF: "{}"}, f"{CONF} would be set without {OWNER}"),
    ],
)
def test_changes_of_ownership_that_there_are_not(
    before: dict[str, str], after: dict[str, str], problem: str
) -> None:
    with pytest.raises(InvalidTableError, match=problem):
        check_ownership(TableProperties(before, "tbl"), TableProperties(after, "tbl"))
