"""Questions about the log are answered without the libraries that file actions need."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_delta.engine import DeltaTable
from tests.house.test_layers import loaded_after
from tests.log_builder import add, write_commit, write_table

HEAVY = {"pyarrow", "numpy", "pandas"}

OPEN = """
from airflow_delta.engine import DeltaTable
table = DeltaTable({root!r})
"""

ASK_THE_LOG = """
assert table.exists()
assert table.latest_version() == table.latest_version(known=2) == 3
assert [info.version for info in table.history()] == [3, 2, 1, 0]
assert [info.timestamp for info in table.history(2)] == [1003000, 1002000]
assert table.version_at(1001500) == 1
"""

ASK_THE_STATE = """
snapshot = table.snapshot({arguments})
assert snapshot.version == {version}
assert (snapshot.protocol.min_reader_version, snapshot.metadata.partition_columns) == (1, ())
assert [field.name for field in snapshot.schema.fields] == ["id", "part"]
assert snapshot.properties.checkpoint_interval > 0
assert snapshot.transactions["app"].version == 7
assert snapshot.domains["d"].configuration == "x"
assert snapshot.timestamp_ms == 1000000 + 1000 * {version}
assert len(snapshot.features) > 0
"""

FIRST = [
    add("a"),
    {"txn": {"appId": "app", "version": 7}},
    {"domainMetadata": {"domain": "d", "configuration": "x", "removed": False}},
]


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(write_table(tmp_path, FIRST, [add("b")], [add("c")], [add("d")]))


def loaded(root: str, *statements: str) -> set[str]:
    return loaded_after(OPEN.format(root=root) + "".join(statements)) & HEAVY


def test_the_facade_is_light() -> None:
    assert not loaded_after("import airflow_delta.engine.table") & HEAVY


@pytest.mark.parametrize("checkpoint", [None, 1, 3])
def test_the_log_is_asked_lightly(root: str, checkpoint: int | None) -> None:
    if checkpoint is not None:
        DeltaTable(root).checkpoint(checkpoint)
    assert loaded(root, ASK_THE_LOG) == set()


@pytest.mark.parametrize(
    ("arguments", "version"), [("", 3), ("version=1", 1), ("timestamp=1001500", 1)]
)
def test_a_state_without_newer_commits_is_light(root: str, arguments: str, version: int) -> None:
    for checkpoint in (1, 3):
        DeltaTable(root).checkpoint(checkpoint)
    assert loaded(root, ASK_THE_STATE.format(arguments=arguments, version=version)) == set()


def v2_with_sidecars(root: Path) -> None:
    table = DeltaTable(str(root))
    content = [
        {"checkpointMetadata": {"version": 3}},
        *(json.loads(line) for line in (root / "_delta_log" / f"{0:020}.json").open()),
    ]
    kept = [action for action in content if "add" not in action]
    name = f"{3:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    target = root / "_delta_log" / name
    target.write_text("".join(json.dumps(action) + "\n" for action in kept), encoding="utf-8")
    assert table.snapshot().segment.checkpoint.path.endswith(name)


@pytest.mark.parametrize("write", [v2_with_sidecars])
def test_a_state_in_lines_is_light(root: str, write: Callable[[Path], None]) -> None:
    write(Path(root))
    assert loaded(root, ASK_THE_STATE.format(arguments="", version=3)) == set()


def test_files_are_what_the_libraries_are_loaded_for(root: str) -> None:
    assert loaded(root, "assert table.snapshot().files(['path']).num_rows == 4") >= {"pyarrow"}


def test_new_commits_are_searched_for_metadata_lightly(root: str) -> None:
    DeltaTable(root).checkpoint(3)
    write_commit(Path(root), 4, add("e"), modified_ms=1_004_000)
    assert loaded(root, "assert table.version_at(1003999) == 3") == set()
    assert loaded(root, "assert table.history(1)[0].timestamp == 1004000") == set()
