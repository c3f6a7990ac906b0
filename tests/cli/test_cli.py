"""The command line: what it prints, and how it fails."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_delta.cli.main import main
from airflow_delta.engine.version import VERSION

Copy = Callable[[str], Path]


def described(table: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["describe", str(table), "--json"]) == 0
    facts: dict[str, Any] = json.loads(capsys.readouterr().out)
    return facts


def described_lines(table: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main(["describe", str(table)]) == 0
    return capsys.readouterr().out.splitlines()


def test_describe_prints_the_facts_of_a_table(
    golden_case: Copy, capsys: pytest.CaptureFixture[str]
) -> None:
    table = golden_case("dat-basic_partitioned")
    facts = described(table, capsys)
    assert facts["table_uri"] == str(table)
    assert facts["version"] == 1
    assert facts["partition_columns"] == ["letter"]
    assert [field["name"] for field in facts["schema"]] == ["letter", "number", "a_float"]
    assert (facts["reader_version"], facts["writer_version"]) == (1, 2)
    assert facts["num_rows"] == 6


def test_describe_for_people_says_the_same(
    golden_case: Copy, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["describe", str(golden_case("dat-basic_partitioned"))]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["version", "1"] in lines
    assert ["num", "rows", "6"] in lines
    assert ["partition", "columns", "letter"] in lines
    assert ["schema", "letter:", "string"] in lines
    assert ["number:", "long"] in lines
    assert ["name", "-"] in lines


def test_describe_of_an_older_version(sales: Path, capsys: pytest.CaptureFixture[str]) -> None:
    committed = (sales / "_delta_log" / f"{1:020}.json").stat().st_mtime
    when = datetime.fromtimestamp(committed, timezone.utc).isoformat(timespec="milliseconds")
    for choice in (["--version", "1"], ["--timestamp", when]):
        assert main(["describe", str(sales), "--json", *choice]) == 0
        assert json.loads(capsys.readouterr().out)["version"] == 1


def test_describe_of_a_version_whose_commit_is_gone(
    sales_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    DeltaTable(str(sales_copy)).create_checkpoint()
    before = described(sales_copy, capsys)
    for commit in (sales_copy / "_delta_log").glob("*.json"):
        commit.unlink()
    assert before["timestamp"] is not None
    after = described(sales_copy, capsys)
    assert {**after, "maintenance": None} == {**before, "timestamp": None, "maintenance": None}
    assert ["timestamp", "-"] in [line.split() for line in described_lines(sales_copy, capsys)]


FEATURES: dict[str, Any] = {
    "protocol": {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": ["appendOnly", "identityColumns", "fromTheFuture"],
    }
}


def test_describe_shows_what_the_features_of_a_table_mean(
    sales_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = sales_copy / "_delta_log"
    commit = json.dumps(FEATURES) + "\n"
    (log / f"{4:020}.json").write_text(commit)
    found = {
        feature["name"]: feature for feature in described(sales_copy, capsys)["table_features"]
    }
    assert {name for name, feature in found.items() if feature["supported"]} == set(
        FEATURES["protocol"]["writerFeatures"]
    )
    assert (found["appendOnly"]["active"], found["appendOnly"]["can_write"]) == (False, True)
    future = found["fromTheFuture"]
    assert (future["active"], future["can_read"], future["can_write"]) == (True, True, False)
    assert found["deletionVectors"]["can_read"] is True

    lines = [
        line.removeprefix("table features").strip() for line in described_lines(sales_copy, capsys)
    ]
    assert "appendOnly: inactive, can read, can write" in lines
    assert f"fromTheFuture: active, can read, can't write ({future['note']})" in lines
    assert not [line for line in lines if line.startswith("deletionVectors")]


def test_a_refused_table_is_described_by_its_features(
    sales_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    features = ["fromTheFuture", "timestampNtz"]
    protocol: dict[str, Any] = {"minReaderVersion": 3, "minWriterVersion": 7}
    protocol |= {"readerFeatures": features, "writerFeatures": features}
    (sales_copy / "_delta_log" / f"{4:020}.json").write_text(json.dumps({"protocol": protocol}))
    assert main(["describe", str(sales_copy)]) == 1
    captured = capsys.readouterr()
    assert "can't read the table because of its feature fromTheFuture" in captured.err
    assert captured.out == ""


def test_history_is_newest_first_and_can_be_limited(
    sales: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", str(sales), "--json"]) == 0
    commits = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [commit["version"] for commit in commits] == [3, 2, 1, 0]
    for commit in commits:
        log = sales / "_delta_log" / f"{commit['version']:020}.json"
        infos = [json.loads(line) for line in log.read_text().splitlines() if "commitInfo" in line]
        assert commit["operation"] == infos[0]["commitInfo"]["operation"]
    assert main(["history", str(sales), "--json", "--limit", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_history_for_people_has_a_line_for_each_commit(
    sales: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", str(sales)]) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == ["version", "timestamp", "operation", "parameters"]
    assert [line.split()[0] for line in lines] == ["3", "2", "1", "0"]
    assert [line.split()[2] for line in lines] == ["DELETE", "WRITE", "WRITE", "WRITE"]


def test_a_table_that_cannot_be_read_is_one_line_and_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["describe", str(tmp_path / "nothing")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("airflow-delta: ")
    assert str(tmp_path / "nothing") in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["describe"],
        ["vanish", "/t"],
        ["history", "/t", "--limit", "0"],
        ["history", "/t", "--limit", "many"],
        ["describe", "/t", "--version", "1", "--timestamp", "2024-01-01T00:00:00Z"],
    ],
)
def test_a_wrong_command_line_is_status_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "Usage: airflow-delta" in capsys.readouterr().err


def test_the_command_prints_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.strip() == f"airflow-delta {VERSION}"


def test_a_reader_that_stops_early_is_no_error(sales: Path) -> None:
    code = "import sys; from airflow_delta.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "history", str(sales)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()  # before anything was written
    errors = process.stderr.read()
    assert process.wait() == 0, errors
    assert errors == b""


def test_the_command_needs_neither_airflow_nor_spark(sales: Path) -> None:
    code = (
        "import sys; from airflow_delta.cli.main import main; main(sys.argv[1:]); "
        "assert not {'airflow', 'pyspark'} & set(sys.modules)"
    )
    table = str(sales)
    for verb in ("describe", "history"):
        subprocess.run(
            [sys.executable, "-c", code, verb, table], check=True, stdout=subprocess.DEVNULL
        )


def test_without_a_subcommand_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([])
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Usage: airflow-delta")
    assert any(line.split()[:1] == ["vacuum"] for line in lines)
