"""What the fuzzer of hostile tables has found, each as small as it can be."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from airflow_delta.engine import DeltaTable, StructField, StructType
from airflow_delta.engine.errors import ConstraintViolationError, DeltaError, DeltaWarning
from airflow_delta.engine.model.schema import LONG
from tests.attacks.limited import run_limited
from tests.log_builder import add, commit_path, metadata, write_table
from tests.table_builder import MemoryTable, commits, lines, states, v2_checkpoint

V2 = {"minReaderVersion": 3, "minWriterVersion": 7}
V2 |= {"readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint"]}  # type: ignore[dict-item]
HISTORY = [[{"protocol": V2}, metadata(), add("a")], [add("b")]]


@pytest.mark.parametrize("kind", ["sidecar", "txn", "domainMetadata", "protocol", "metaData"])
@pytest.mark.parametrize("value", [0, "0", [{}]], ids=str)
def test_an_action_of_a_checkpoint_in_json_is_an_object(kind: str, value: object) -> None:
    files = v2_checkpoint(states(HISTORY)[1], 1, form="json", sidecars=0)
    (top,) = files
    files[top] += lines([{kind: value}])
    expected = f"{kind} is no JSON object, but a {type(value).__name__}"
    with (
        MemoryTable({**commits(HISTORY), **files}) as table,
        pytest.warns(DeltaWarning, match=expected),
    ):
        assert table.delta().snapshot().num_files == 2


def test_an_error_shows_of_a_long_text_how_it_begins_and_ends(tmp_path: Path) -> None:
    condition = "id > 0 AND " * 1_000_000 + "\x1b[31m"
    write_table(tmp_path, [add("a")], configuration={"delta.constraints.c": condition})
    with pytest.raises(DeltaError) as caught:
        DeltaTable(str(tmp_path)).alter.set_properties({"delta.checkpointInterval": "7"})
    assert isinstance(caught.value, ConstraintViolationError)
    message = str(caught.value)
    assert len(message) < 12_000
    assert "id > 0 AND" in message
    assert "characters are left out" in message
    assert str(pickle.loads(pickle.dumps(caught.value))) == message


def test_of_a_long_text_no_half_of_a_password_is_left() -> None:
    for before in range(7_950, 8_050):
        error = DeltaError("x" * before + "s3://user:hidden-secret@bucket/" + "y" * 20_000)
        assert "hidden" not in str(error)
        assert "secret" not in str(error)


def test_a_commit_that_is_larger_than_memory_is_named(tmp_path: Path) -> None:
    """A hole takes no space on the disk."""
    write_table(tmp_path, [add("a")], [add("b")])
    os.truncate(commit_path(tmp_path, 1), 1 << 42)
    code = """
import sys
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import StorageError
table = DeltaTable(sys.argv[1])
for ask in (table.snapshot, table.history, table.checkpoint):
    try:
        ask()
    except StorageError as error:
        assert "doesn't fit into memory" in str(error), error
        print(error.path)
"""
    told = run_limited(code, str(tmp_path))
    assert told.split() == [f"_delta_log/{1:020}.json"] * 3


def test_a_column_is_found_without_a_look_at_all_others() -> None:
    compared: list[object] = []

    class Watched(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            compared.append(other)
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    schema = StructType(tuple(StructField(Watched(f"c{n}"), LONG) for n in range(2_000)))
    compared.clear()
    assert all(schema.field(f"c{n}") is not None for n in range(2_000))
    assert schema.field("no such column") is None
    assert len(compared) < 10_000


def test_a_schema_is_the_same_after_pickling() -> None:
    schema = StructType((StructField("a", LONG),))
    again = pickle.loads(pickle.dumps(schema))
    assert again == schema
    assert again.field("a") == schema.field("a")
    assert repr(again) == repr(schema)
