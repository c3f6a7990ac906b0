"""A vacuum in every kind of store: odd names are listed, compared and deleted as the store has them."""

from __future__ import annotations

from pathlib import Path

import boto3
import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import StorageError
from airflow_delta.engine.maintenance.vacuum import execution as vacuum_execution
from airflow_delta.engine.maintenance.vacuum.execution import execute_vacuum
from airflow_delta.engine.maintenance.vacuum.plan import plan_vacuum
from airflow_delta.engine.storage import object_store
from tests.log_builder import PROTOCOL, add, metadata
from tests.object_stores import KINDS, new_place
from tests.table_builder import commit_file, lines, replay, state_of
from tests.vacuum_world import DAY_MS, NOW_MS, random_world

LATER_MS = NOW_MS + 1000 * DAY_MS
"""The stores set their own times, so the test pretends that time has passed."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_vacuum_in_a_store(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Small pages and batches, so that there are several.
    monkeypatch.setattr(object_store, "_PAGE", 5)
    monkeypatch.setattr(vacuum_execution, "_BATCH", 3)
    uri, options = new_place(kind, tmp_path)
    table = DeltaTable(f"{uri}/tables/t", options)
    world = random_world(table.storage.root, 10)
    for path, content in world.log().items():
        table.storage.replace(path, content)
    for path, (size, _) in world.disk.items():
        table.storage.replace(path, b"x" * size)
    for mode in ("lite", "full"):
        before = {info.path for info in table.storage.walk("")} - world.log().keys()
        plan = plan_vacuum(table.storage, CommitOwners(), mode=mode, now_ms=LATER_MS)
        execute_vacuum(table.storage, plan)
        left = {info.path for info in table.storage.walk("")} - world.log().keys()
        assert len(before - left) > 3
        assert before - left <= {*plan.files["path"].to_pylist()}
    note = "_delta_log/_last_vacuum_info"
    assert left == (world.disk.keys() & (world.hidden | world.needed(LATER_MS))) | {note}
    state = replay(world.history)
    assert state_of(DeltaTable(table.uri, options).snapshot()).files == state.files


def put_by_hand(uri: str, options: dict[str, str], name: str, content: bytes) -> None:
    """An object with a name that clients don't make."""
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    client = boto3.client(
        "s3",
        endpoint_url=options["aws_endpoint_url"],
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    )
    client.put_object(Bucket=bucket, Key=f"{prefix}/{name}", Body=content)


@pytest.fixture
def store(tmp_path: Path) -> tuple[str, dict[str, str]]:
    """A table in S3, of which ``a`` is live."""
    uri, options = new_place("s3", tmp_path)
    storage = DeltaTable(f"{uri}/t", options).storage
    storage.replace(commit_file(0), lines([PROTOCOL, metadata(), add("a")]))
    storage.replace("a", b"x")
    return f"{uri}/t", options


def test_the_marker_of_an_empty_directory_is_no_file(store: tuple[str, dict[str, str]]) -> None:
    put_by_hand(*store, "empty/", b"")
    put_by_hand(*store, "orphan", b"")
    plan = plan_vacuum(DeltaTable(*store).storage, CommitOwners(), now_ms=LATER_MS)
    assert plan.files["path"].to_pylist() == ["orphan"]


@pytest.mark.parametrize("name", ["k=1//orphan", "k=1/./orphan"])
def test_where_a_store_can_not_be_listed_the_ways_out_are_named(
    store: tuple[str, dict[str, str]], name: str
) -> None:
    put_by_hand(*store, name, b"x")
    storage = DeltaTable(*store).storage
    with pytest.raises(StorageError, match="run a lite vacuum, pass an inventory"):
        plan_vacuum(storage, CommitOwners(), now_ms=LATER_MS)
    assert plan_vacuum(storage, CommitOwners(), mode="lite", now_ms=LATER_MS).version == 0
