"""The lines of a commit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_delta.engine import AddFile, RemoveFile
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.actions import (
    AddCdcFile,
    DomainMetadata,
    Metadata,
    Protocol,
    Txn,
)
from airflow_delta.engine.transaction.prepare import commit_text
from airflow_delta.engine.transaction.staged import Actions
from tests.engine.transaction.prepare.attempts import VECTOR, file, tombstone

STRANGE = 'é\u2028"\\\n\x7f\x00😀</a>'


def lines(actions: Actions, **info: Any) -> list[dict[str, Any]]:
    text = commit_text(actions, info, timestamp_ms=77).decode("utf-8")
    assert text.endswith("\n")
    return [json.loads(line) for line in text.split("\n")[:-1]]


def test_the_first_line_is_the_commit_info_and_each_action_has_one() -> None:
    actions = Actions(
        protocol=Protocol(1, 2),
        metadata=Metadata(id="x", configuration={"a": "b"}),
        transactions=(Txn("app", 3),),
        domains={"d": DomainMetadata("d", "{}")},
        adds=(file("added"),),
        removes=(tombstone("removed"),),
        cdc=(AddCdcFile("_change_data/c", {}, 1),),
    )
    written = lines(actions, operation="WRITE")
    kinds = [kind for line in written for kind in line]
    assert kinds[0] == "commitInfo"
    assert sorted(kinds[1:]) == sorted(
        ["protocol", "metaData", "txn", "domainMetadata", "add", "remove", "cdc"]
    )
    by_kind = {kind: value for line in written for kind, value in line.items()}
    assert by_kind["commitInfo"] == {"operation": "WRITE"}
    assert by_kind["cdc"]["dataChange"] is False
    assert by_kind["txn"] == {"appId": "app", "version": 3}


@pytest.mark.parametrize(
    "added",
    [
        AddFile("p", {}, 0, -1, False),
        AddFile(STRANGE, {STRANGE: STRANGE, "null": None}, 2**62, 1, True, stats=STRANGE),
        AddFile("p", {}, 1, 1, True, None, {}, VECTOR, 0, 0, ""),
        AddFile("p", {}, 1, 1, True, '{"numRecords":1}', {"a": None}, None, 5, 6, "liquid"),
    ],
)
def test_a_line_holds_what_the_action_says(added: AddFile) -> None:
    (_, line) = lines(Actions(adds=(added,)))
    assert line == {"add": added.to_json()}
    assert AddFile.from_json(line["add"], "test") == added


def test_fields_without_a_value_are_left_out() -> None:
    (_, line) = lines(Actions(removes=(RemoveFile("x", data_change=True),)))
    assert line["remove"] == {"path": "x", "dataChange": True, "deletionTimestamp": 77}
    (_, line) = lines(Actions(removes=(RemoveFile("x", True, 5, True, {"p": None}, 3),)))
    assert RemoveFile.from_json(line["remove"], "test") == RemoveFile(
        "x", True, 5, True, {"p": None}, 3
    )


@pytest.mark.parametrize(
    ("actions", "info"),
    [
        (Actions(adds=(file("\ud800"),)), {}),
        (Actions(domains={"d": DomainMetadata("d", "\udfff")}), {}),
        (Actions(), {"operationParameters": float("nan")}),
        (Actions(), {"operationParameters": object()}),
    ],
)
def test_what_is_no_json_is_refused(actions: Actions, info: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="can't be written as JSON"):
        commit_text(actions, info, timestamp_ms=1)
