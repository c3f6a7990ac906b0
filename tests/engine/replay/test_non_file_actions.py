"""Reconciliation of the actions that aren't files."""

from __future__ import annotations

from airflow_delta.engine.replay.non_file_actions import reconcile_non_file_actions


def txn(app: str, version: int) -> tuple:
    return ("txn", {"appId": app, "version": version}, "here")


def domain(name: str, text: str, *, removed: bool = False) -> tuple:
    value = {"domain": name, "configuration": text, "removed": removed}
    return ("domainMetadata", value, "here")


def test_the_newest_transaction_of_an_application_holds_even_if_it_went_down() -> None:
    state = reconcile_non_file_actions([txn("a", 5), txn("b", 1), txn("a", 3)])
    assert {app: t.version for app, t in state.transactions.items()} == {"a": 3, "b": 1}


def test_a_removed_domain_is_gone_until_it_is_set_again() -> None:
    first = reconcile_non_file_actions([domain("d", "1"), domain("d", "", removed=True)])
    assert not first.domains
    again = reconcile_non_file_actions([domain("d", "2")], first)
    assert again.domains["d"].configuration == "2"


def test_a_later_state_leaves_the_earlier_one_as_it_was() -> None:
    first = reconcile_non_file_actions([txn("a", 1)])
    reconcile_non_file_actions([txn("a", 2), domain("d", "x")], first)
    assert first.transactions["a"].version == 1
    assert not first.domains


def test_unknown_and_commit_bound_actions_change_nothing() -> None:
    state = reconcile_non_file_actions([("commitInfo", {"x": 1}, "here"), ("cdc", {}, "here")])
    assert state.protocol is None
    assert state.metadata is None
