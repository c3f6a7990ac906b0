"""Plans of changes against the corpus's expected rows, a model, and the cases of L16."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.arrow.action_schema import DELETION_VECTOR_TYPE
from airflow_delta.engine.changes.plan import plan_changes
from airflow_delta.engine.changes.row_selection import read_entry_rows
from airflow_delta.engine.errors import ChangesNotAvailableError, CorruptLogError
from airflow_delta.engine.model.paths import resolve
from airflow_delta.engine.storage.base import Storage
from tests.conftest import GOLDEN
from tests.engine.changes.logs import FEED_ON, PROTOCOL, cdc, with_vector
from tests.log_builder import SCHEMA, add, commit_path, metadata, remove, write_commit
from tests.table_builder import MemoryTable, commits

ROWS = 6
"""The rows of every file of the model."""

STATS = json.dumps({"numRecords": ROWS})


def golden_changes() -> list[dict[str, Any]]:
    manifest = GOLDEN / "manifest.json"
    if not manifest.is_file():
        return []
    cases: list[dict[str, Any]] = json.loads(manifest.read_text(encoding="utf-8"))["cdf"]
    return cases


def table_of(root: Path, *history: list[dict[str, Any]], **options: Any) -> DeltaTable:
    """A table with the change data feed on, a second between its commits."""
    options.setdefault("configuration", FEED_ON)
    for version, actions in enumerate(history):
        first = [PROTOCOL, metadata(**options)] if version == 0 else []
        write_commit(root, version, *first, *actions, modified_ms=1_000 * (version + 1))
    return DeltaTable(str(root))


def found_changes(table: DeltaTable, start: int, end: int | None = None) -> list[tuple[Any, ...]]:
    """Path, kind and version of each entry."""
    columns = ["path", "_change_type", "_commit_version"]
    rows = table.changes(start, end).files.select(columns).to_pylist()
    return [tuple(row.values()) for row in rows]


# Rows, as far as they follow from the log and the number of rows in a file.


def rows_named(entry: dict[str, Any], storage: Storage) -> BitMap64:
    """The rows that an entry of a plan, which has a vector, names."""
    columns = [
        pa.chunked_array([pa.array([entry[name]], DELETION_VECTOR_TYPE)])
        for name in ("deletionVector", "selectionVector")
    ]
    return read_entry_rows(*columns, storage, table="t")[0]


def counts(table: DeltaTable, start: int, end: int) -> Counter[tuple[int, str]]:
    """How many rows of each kind each version has."""
    found: Counter[tuple[int, str]] = Counter()
    for entry in table.changes(start, end).files.to_pylist():
        version, kind = entry["_commit_version"], entry["_change_type"]
        path = resolve(table.storage.root, entry["path"])
        if kind is None:
            kinds = pq.read_table(path, columns=["_change_type"], partitioning=None)
            found.update((version, kind) for kind in kinds["_change_type"].to_pylist())
            continue
        records = pq.read_metadata(path).num_rows
        assert entry["numRecords"] in {None, records}
        deleted = entry["deletionVector"]
        if entry["selectionVector"] is not None:
            found[version, kind] += len(rows_named(entry, table.storage))
        else:
            found[version, kind] += records - (deleted["cardinality"] if deleted else 0)
    return +found


@pytest.mark.parametrize(
    "case",
    golden_changes(),
    ids=lambda case: f"{case['table']}-{case['start_version']}-{case['end_version']}",
)
def test_golden_ranges_have_the_expected_rows(
    case: dict[str, Any], golden_case: Callable[[str], Path]
) -> None:
    table = DeltaTable(str(golden_case(case["table"])))
    start, end = case["start_version"], case["end_version"]
    expected = Counter(
        (row["_commit_version"], row["_change_type"]) for row in case["expected_changes"]
    )
    assert counts(table, start, end) == expected
    files = table.changes(start, end).files
    times = dict(
        zip(
            files["_commit_version"].to_pylist(),
            files["_commit_timestamp"].to_pylist(),
            strict=True,
        )
    )
    for version, time in case.get("commit_timestamps", {}).items():
        expected_time = datetime.fromisoformat(time).replace(tzinfo=timezone.utc)
        assert times[int(version)] == expected_time


Step = tuple[str, str, frozenset[int]]
"""``add`` or ``remove``, the path, and the rows that its deletion vector deletes."""


@st.composite
def histories(draw: st.DrawFn) -> list[list[Step]]:
    """Commits that add and remove files and change deletion vectors, in any direction."""
    live: dict[str, frozenset[int]] = {}
    history: list[list[Step]] = []
    for version in range(draw(st.integers(1, 6))):
        steps: list[Step] = []
        for path in draw(st.lists(st.sampled_from(sorted(live)), unique=True)) if live else []:
            before = live.pop(path)
            after = draw(st.none() | st.frozensets(st.integers(0, ROWS - 1)))
            steps.append(("remove", path, before))
            # The protocol allows no remove and add of one logical file in one commit.
            if after is not None and after != before:
                live[path] = after
                steps.append(("add", path, after))
        for number in range(draw(st.integers(0, 2))):
            path = f"{version}-{number}"
            live[path] = draw(st.frozensets(st.integers(0, ROWS - 1), max_size=2))
            steps.append(("add", path, live[path]))
        history.append(draw(st.permutations(steps)))
    return history


def model_rows(history: list[list[Step]]) -> list[set[tuple[str, int]]]:
    """The rows of every version, step by step; version 0 is empty."""
    live: dict[str, frozenset[int]] = {}
    states: list[set[tuple[str, int]]] = [set()]
    for steps in history:
        for kind, path, deleted in sorted(steps, key=lambda step: step[0], reverse=True):
            if kind == "remove":
                del live[path]
            else:
                live[path] = deleted
        states.append(
            {(path, row) for path, gone in live.items() for row in range(ROWS) if row not in gone}
        )
    return states


def as_log(history: list[list[Step]]) -> list[list[dict[str, Any]]]:
    """The history as commits, after a version 0 that makes the table."""
    makers = {"add": lambda path: add(path, stats=STATS), "remove": remove}
    found_changes = [
        [with_vector(makers[k](path), gone) for k, path, gone in steps] for steps in history
    ]
    note = {"commitInfo": {"operation": "TEST"}}
    return [
        [PROTOCOL, metadata(configuration=FEED_ON)],
        *([note, *actions] for actions in found_changes),
    ]


def rows_of(entry: dict[str, Any], table: MemoryTable) -> list[tuple[str, int]]:
    """The rows that an entry of a plan stands for."""
    selection, deleted = entry["selectionVector"], entry["deletionVector"]
    if selection is not None:
        rows = set(rows_named(entry, table.storage))
    elif deleted is not None:
        gone = rows_named(entry, table.storage)
        rows = {row for row in range(ROWS) if row not in gone}
    else:
        rows = set(range(ROWS))
    return [(entry["path"], row) for row in rows]


@settings(max_examples=40, deadline=None)
@given(histories())
def test_the_changes_of_each_version_are_the_difference_of_its_rows(
    history: list[list[Step]],
) -> None:
    states = model_rows(history)
    with MemoryTable(commits(as_log(history))) as memory:
        files = memory.delta().changes(0).files.to_pylist()
        for version, after in enumerate(states):
            before = states[version - 1] if version else set()
            changed: dict[str, list[tuple[str, int]]] = {"insert": [], "delete": []}
            for entry in files:
                if entry["_commit_version"] == version:
                    changed[entry["_change_type"]] += rows_of(entry, memory)
            assert sorted(changed["insert"]) == sorted(after - before)
            assert sorted(changed["delete"]) == sorted(before - after)


def test_a_version_with_change_data_files_has_no_other_changes(tmp_path: Path) -> None:
    table = table_of(
        tmp_path,
        [add("old")],
        [remove("old"), add("new"), cdc("_change_data/c.parquet", partitionValues={"p": None})],
        [remove("new")],
    )
    assert found_changes(table, 0) == [
        ("old", "insert", 0),
        ("_change_data/c.parquet", None, 1),
        ("new", "delete", 2),
    ]
    entry = table.changes(1, 1).files.to_pylist()[0]
    assert entry["partitionValues"] == [("p", None)]
    assert (entry["size"], entry["deletionVector"], entry["selectionVector"]) == (1, None, None)


def test_moving_rows_to_other_files_changes_nothing(tmp_path: Path) -> None:
    moved = [
        remove("a", dataChange=False),
        add("b", dataChange=False),
        remove("c", dataChange=False),
        with_vector(add("c", dataChange=False), [1]),
    ]
    table = table_of(tmp_path, [add("a"), add("c")], moved, [add("d")])
    assert found_changes(table, 1) == [("d", "insert", 2)]


def test_a_restored_vector_undeletes_rows(tmp_path: Path) -> None:
    table = table_of(
        tmp_path,
        [with_vector(add("a", stats=STATS), [1, 4])],
        [with_vector(remove("a"), [1, 4]), add("a", stats=STATS)],
    )
    (entry,) = table.changes(1).files.to_pylist()
    assert entry["_change_type"] == "insert"
    assert entry["deletionVector"] is None
    assert list(rows_named(entry, table.storage)) == [1, 4]


def test_spellings_of_one_path_are_one_file(tmp_path: Path) -> None:
    absolute = [f"file:{tmp_path}/x", f"file://{tmp_path}/x"]
    table = table_of(
        tmp_path,
        [add(absolute[0])],
        [remove(absolute[0]), with_vector(add(absolute[1]), [2])],
    )
    (entry,) = table.changes(1).files.to_pylist()
    assert (entry["_change_type"], entry["deletionVector"]) == ("delete", None)
    assert entry["selectionVector"]["cardinality"] == 1


def test_one_file_in_two_commits_is_no_difference_of_vectors(tmp_path: Path) -> None:
    table = table_of(tmp_path, [add("a")], [remove("a")], [with_vector(add("a"), [0])])
    entries = table.changes(1).files.to_pylist()
    assert [(e["_change_type"], e["selectionVector"]) for e in entries] == [
        ("delete", None),
        ("insert", None),
    ]


def test_times_are_those_of_the_history(tmp_path: Path) -> None:
    table = table_of(tmp_path, [add("a")], [add("b")])
    files = table.changes(0).files
    assert files.schema.field("_commit_timestamp").type == pa.timestamp("ms", tz="UTC")
    times = files["_commit_timestamp"].cast(pa.int64()).to_pylist()
    assert times == [info.timestamp_ms for info in reversed(table.history())] == [1_000, 2_000]


def test_added_columns_are_in_the_newest_schema(tmp_path: Path) -> None:
    new = {"name": "new", "type": "long", "nullable": True, "metadata": {}}
    schema = {"type": "struct", "fields": [new, *SCHEMA["fields"]]}
    table = table_of(
        tmp_path, [add("a")], [metadata(configuration=FEED_ON, schema=schema)], [add("b")]
    )
    assert table.changes(0).schema.names == ("new", "id", "part")
    assert table.changes(0, 0).schema.names == ("id", "part")


def test_a_range_without_changes_is_an_empty_plan(tmp_path: Path) -> None:
    table = table_of(tmp_path, [add("a")], [])
    write_commit(tmp_path, 1, {"txn": {"appId": "a", "version": 1}})
    plan = table.changes(1)
    assert (plan.start, plan.end, plan.files.num_rows) == (1, 1, 0)


def test_a_remove_without_partition_values_is_refused_where_rows_need_them(
    tmp_path: Path,
) -> None:
    history = [[add("a", partitionValues={"part": "x"})], [remove("a")]]
    flat = table_of(tmp_path / "flat", *history)
    assert found_changes(flat, 1) == [("a", "delete", 1)]
    parted = table_of(tmp_path / "parted", *history, partition_columns=["part"])
    with pytest.raises(ChangesNotAvailableError, match="remove of a in version 1") as caught:
        parted.changes(0)
    assert caught.value.version == 1


def test_a_commit_that_vanishes_is_a_typed_error(tmp_path: Path) -> None:
    table = table_of(tmp_path, [add("a")], [add("b")], [add("c")])
    snapshot = table.snapshot()
    assert len(snapshot.timeline.commits) == 3
    commit_path(tmp_path, 1).unlink()
    with pytest.raises(ChangesNotAvailableError, match="vanished") as caught:
        plan_changes(snapshot, 0, 2)
    assert (caught.value.start, caught.value.end) == (0, 2)


@pytest.mark.parametrize("action", [add("new", dataChange=None), remove("a", dataChange=None)])
def test_an_action_that_does_not_tell_whether_it_changed_data_is_refused(
    tmp_path: Path, action: dict[str, Any]
) -> None:
    table = table_of(tmp_path, [add("a")], [action], [cdc("c"), action])
    (file,) = action.values()
    with pytest.raises(CorruptLogError, match=f"version 1 .*{file['path']}.*dataChange") as caught:
        table.changes(0)
    assert (caught.value.version, caught.value.path) == (1, "_delta_log/00000000000000000001.json")
    # If there are change data files, nothing depends on it.
    assert table.changes(2).files["path"].to_pylist() == ["c"]
