"""The subcommands ``diff`` and ``alter``, each seen through the other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from airflow_delta.cli.main import main
from airflow_delta.engine import DeltaTable


@pytest.fixture
def table(tmp_path: Path) -> str:
    uri = str(tmp_path / "t")
    first = pa.table({"id": pa.array([1, 2], pa.int32()), "s": [{"x": 1}, {"x": 2}]})
    deltalake.write_deltalake(uri, first)
    return uri


def alter(table: str, change: str, *words: str) -> int:
    assert main(["alter", change, table, *words]) == 0
    return DeltaTable(table).latest_version()


def difference(capsys: pytest.CaptureFixture[str], table: str, *words: str | int) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["diff", table, *map(str, words), "--json"]) == 0
    facts: dict[str, Any] = json.loads(capsys.readouterr().out)
    return facts


def schema_changes(facts: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (change["change"], change["column"], change["before"], change["after"])
        for change in facts["schema"]
    ]


def test_files_and_rows(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {0: Path(deltalake.DeltaTable(table).file_uris()[0]).stat().st_size}
    more = pa.table({"id": pa.array([3, 4, 5], pa.int32()), "s": [{"x": 3}] * 3})
    deltalake.write_deltalake(table, more, mode="append")
    deltalake.write_deltalake(table, more, mode="overwrite")
    facts = difference(capsys, table, 0, 1)
    assert facts["files_removed"] == {"files": 0, "bytes": 0, "rows": 0}
    assert (facts["files_added"]["files"], facts["files_added"]["rows"]) == (1, 3)
    assert (facts["files_in_both"], facts["rows"]) == (1, {"before": 2, "after": 5})
    newest = difference(capsys, table, 0, "--files")
    assert (newest["to_version"], newest["files_in_both"]) == (2, 0)
    assert newest["files_removed"] == {"files": 1, "bytes": sizes[0], "rows": 2}
    listed = [file["path"] for file in newest["added_file_list"]]
    assert listed == [Path(uri).name for uri in deltalake.DeltaTable(table).file_uris()]
    back = difference(capsys, table, 2, 0)
    assert back["files_added"] == newest["files_removed"]
    assert main(["diff", table, "0", "--files"]) == 0
    assert f"  + {listed[0]}" in capsys.readouterr().out.splitlines()


def test_a_table_that_was_replaced(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its next commit has another id, as the commit of ``CREATE OR REPLACE TABLE`` has."""
    first = Path(table, "_delta_log", f"{0:020}.json")
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    metadata = next(action["metaData"] for action in actions if "metaData" in action)
    replaced = {"metaData": {**metadata, "id": "another-id"}}
    Path(table, "_delta_log", f"{1:020}.json").write_text(json.dumps(replaced))
    facts = difference(capsys, table, 0)
    assert facts["table_id"] == {"before": metadata["id"], "after": "another-id"}
    assert main(["diff", table, "0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"the table was replaced: its id is another-id, and was {metadata['id']}"


def test_nothing_differs(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    facts = difference(capsys, table, 0)
    assert (facts["schema"], facts["files_in_both"]) == ([], 1)
    assert facts["properties"] == {"added": {}, "removed": {}, "changed": {}}
    assert facts["table_id"]["before"] == facts["table_id"]["after"]
    assert main(["diff", table, "0"]) == 0
    printed = capsys.readouterr().out
    assert "schema" not in printed
    assert "replaced" not in printed


def test_columns(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    mapping = ["delta.columnMapping.mode=name", "delta.enableTypeWidening=true"]
    base = alter(table, "set-properties", *mapping)
    assert schema_changes(difference(capsys, table, 0)) == []
    alter(table, "add-column", "day", "date", "--comment", "of the sale", "--first")
    alter(table, "add-column", "s.y", "decimal(10,2)")
    alter(table, "rename-column", "s.x", "z")
    alter(table, "change-type", "id", "bigint")
    facts = difference(capsys, table, base)
    assert schema_changes(facts)[0] == ("added", "day", None, "date")
    changes = schema_changes(facts)
    assert ("added", "s.y", None, "decimal(10,2)") in changes
    assert ("renamed", "s.z", "s.x", "s.z") in changes
    assert ("type widened", "id", "integer", "long") in changes
    before = alter(table, "rename-column", "s", "other name")
    alter(table, "set-comment", "id", "key")
    alter(table, "drop-columns", "`other name`")
    facts = difference(capsys, table, before)
    assert ("metadata changed", "id", None, "key") in schema_changes(facts)
    dropped = [change for change in schema_changes(facts) if change[0] == "dropped"]
    assert [change[1] for change in dropped] == ["`other name`"]
    assert main(["diff", table, str(base), str(before)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  + day: date" in lines
    assert "  ~ id: type widened: integer -> long" in lines
    fields = {field.name for field in deltalake.DeltaTable(table).schema().fields}
    assert fields == {"day", "id"}


def test_properties_and_features(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    alter(table, "set-properties", "a=1=1", "b=2")
    alter(table, "set-properties", "a=3")
    alter(table, "unset-properties", "b", "missing", "--if-exists")
    alter(table, "add-feature", "deletionVectors")
    facts = difference(capsys, table, 1)
    assert facts["properties"]["removed"] == {"b": "2"}
    assert facts["properties"]["changed"] == {"a": {"before": "1=1", "after": "3"}}
    assert "deletionVectors" in facts["protocol"]["features_added"]
    assert facts["protocol"]["reader_version"] == {"before": 1, "after": 3}
    assert main(["diff", table, "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {"  ~ a = 1=1 -> 3", "  - b = 2", "  + deletionVectors"} <= set(lines)


def test_other_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = str(tmp_path / "t")
    deltalake.write_deltalake(table, pa.table({"a": [1], "b": ["x"]}).slice(0, 0))
    alter(table, "set-not-null", "a")
    alter(table, "set-nullable", "a")
    alter(table, "move-column", "b", "--first")
    alter(table, "add-constraint", "positive", "a > 0")
    alter(table, "drop-constraint", "POSITIVE")
    alter(table, "set-properties", "delta.feature.allowColumnDefaults=supported")
    alter(table, "set-default", "a", "7")
    alter(table, "drop-default", "a")
    alter(table, "drop-comment", "a")
    alter(table, "cluster-by", "a")
    alter(table, "cluster-by")
    alter(table, "set-name", "sales")
    alter(table, "set-description", "of all")
    metadata = DeltaTable(table).snapshot().metadata
    assert (metadata.name, metadata.description) == ("sales", "of all")
    capsys.readouterr()
    assert main(["alter", "set-name", table, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["table_uri"] == table
    assert DeltaTable(table).snapshot().metadata.name is None


def test_a_checkpoint_is_written_when_it_is_due(table: str) -> None:
    alter(table, "set-properties", "delta.checkpointInterval=2")
    alter(table, "set-properties", "a=b")
    assert Path(table, "_delta_log", f"{2:020}.checkpoint.parquet").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["add-column", "x", "nix"], "no type of the Delta protocol"),
        (["add-column", "x", "{"], "no JSON"),
        (["rename-column", "a,b", "c"], "one column"),
        (["rename-column", "a b", "c"], "no list of column names"),
        (["set-properties", "delta.nonsense=1"], "delta.nonsense"),
    ],
)
def test_wrong_changes(
    table: str, capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    assert main(["alter", words[0], table, *words[1:]]) == 1
    assert problem in capsys.readouterr().err
    assert DeltaTable(table).latest_version() == 0


@pytest.mark.parametrize(
    "words",
    [["alter"], ["alter", "nothing", "/t"], ["alter", "move-column", "/t", "a"], ["diff", "/t"]],
)
def test_a_wrong_command_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert "Usage: airflow-delta" in capsys.readouterr().err
