"""``airflow-delta commits``: who owns the commits of a table, and how far they have come."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.cli.main import main
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.commit.sql.owner import URL_VARIABLE

SECRET = "gr8-s3cr3t"


@pytest.fixture
def owner_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The database of the owner that the environment names."""
    url = f"sqlite:///{tmp_path}/owner.db"
    monkeypatch.setenv(URL_VARIABLE, url)
    return url


@pytest.fixture
def managed(sales_copy: Path, owner_url: str) -> Path:
    """A table that was handed over with version 4; version 5 is backfilled and version 6 isn't."""
    table = DeltaTable(sales_copy)
    table.convert_to_managed("sql", {"backfill": "on-request"})
    table.alter.set_properties({"number": "5"})
    table.backfill()
    table.alter.set_properties({"number": "6"})
    return sales_copy


def facts_of(table: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["commits", str(table), "--json"]) == 0
    facts: dict[str, Any] = json.loads(capsys.readouterr().out)
    return facts


def printed(output: str) -> dict[str, str]:
    pairs = [line.split("  ", 1) for line in output.splitlines()]
    return {name.strip(): value.strip() for name, value in pairs}


def test_how_far_the_commits_of_a_managed_table_have_come(
    managed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert facts_of(managed, capsys) == {
        "table_uri": str(managed),
        "owner": "sql",
        "standing": "active",
        "accepts_commits": True,
        "ratified_version": 6,
        "backfilled_version": 5,
        "lag": 1,
    }
    assert main(["commits", str(managed)]) == 0
    assert printed(capsys.readouterr().out) == {
        "owner": "sql",
        "standing": "active",
        "accepts commits": "yes",
        "ratified version": "6",
        "backfilled version": "5",
        "lag": "1",
    }


def test_a_table_that_the_file_system_manages(
    sales: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = facts_of(sales, capsys)
    assert (facts["owner"], facts["standing"], facts["accepts_commits"]) == (None, None, True)
    assert (facts["ratified_version"], facts["backfilled_version"], facts["lag"]) == (3, 3, 0)
    assert main(["commits", str(sales)]) == 0
    lines = printed(capsys.readouterr().out)
    assert lines["owner"] == "- (the file system)"
    assert (lines["standing"], lines["accepts commits"], lines["lag"]) == ("-", "yes", "0")


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (None, f"set the environment variable {URL_VARIABLE}"),
        (f"postgresql+psycopg://u:{SECRET}@127.0.0.1:1/owner", "Make sure that it is running"),
        ("sqlite:////another/owner.db", "/another/owner.db isn't there"),
    ],
)
def test_an_owner_that_cannot_be_reached(
    managed: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    url: str | None,
    reason: str,
    as_json: bool,
) -> None:
    """The facts from the log are printed, and then the reason, as an error."""
    if url is None:
        monkeypatch.delenv(URL_VARIABLE)
    else:
        monkeypatch.setenv(URL_VARIABLE, url)
    assert main(["commits", str(managed), *(["--json"] if as_json else [])]) == 1
    captured = capsys.readouterr()
    if as_json:
        assert json.loads(captured.out) == {
            "table_uri": str(managed),
            "owner": "sql",
            "standing": None,
            "accepts_commits": None,
            "ratified_version": None,
            "backfilled_version": 5,
            "lag": None,
        }
    else:
        lines = printed(captured.out)
        assert (lines["owner"], lines["backfilled version"]) == ("sql", "5")
        for unknown in ("standing", "accepts commits", "ratified version", "lag"):
            assert lines[unknown] == "?"
    error = captured.err
    if as_json:
        reported = json.loads(error)["error"]
        assert reported["table_uri"] == str(managed)
        error = f"airflow-delta: {reported['message']}\n"
    assert error.startswith("airflow-delta: ")
    assert reason in error
    assert captured.err.count("\n") == 1
    assert SECRET not in captured.out + captured.err


def test_a_table_that_was_given_back(managed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    DeltaTable(managed).convert_to_file_system()
    facts = facts_of(managed, capsys)
    assert (facts["owner"], facts["ratified_version"], facts["lag"]) == (None, 7, 0)


# Changes of the owner's records


def test_a_table_that_has_moved(managed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    moved = managed.rename(managed.with_name("moved"))
    assert main(["commits", str(moved)]) == 1
    assert "relocate" in capsys.readouterr().err
    assert main(["commits", str(moved), "--relocate"]) == 0
    lines = printed(capsys.readouterr().out)
    assert (lines["relocated from"], lines["relocated to"]) == (str(managed), str(moved))
    assert (lines["ratified version"], lines["lag"]) == ("6", "1")
    DeltaTable(moved).backfill()
    facts = facts_of(moved, capsys)
    assert (facts["ratified_version"], facts["lag"]) == (6, 0)
    assert "relocated_from" not in facts


def test_a_copy_is_not_taken_for_the_table(
    managed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(managed, managed.with_name("copy"))
    assert main(["commits", str(copy), "--relocate"]) == 1
    assert f"is still at {managed}, so {copy} is a copy" in capsys.readouterr().err
    assert DeltaTable(managed).alter.set_properties({"number": "7"}).version == 7


def test_commits_that_are_lost_are_given_up(
    managed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (managed / "_delta_log" / "_commits").glob(f"{6:020}.*"):
        path.unlink()
    for yes in ([], ["--yes"]):
        for wrong, problem in [(6, "that is version 5"), (4, "give"), (7, "versions 6 to 6")]:
            assert main(["commits", str(managed), "--accept-log", str(wrong), *yes]) == 1
            captured = capsys.readouterr()
            assert problem in captured.err
            assert printed(captured.out)["backfilled version"] == "5"
    assert main(["commits", str(managed), "--accept-log", "5"]) == 0
    captured = capsys.readouterr()
    lines = printed(captured.out)
    assert (lines["would accept version"], lines["would give up version"]) == ("5", "6")
    assert (lines["ratified version"], lines["lag"]) == ("6", "1")
    assert "nothing was given up; run the command again with --yes" in captured.err
    assert main(["commits", str(managed), "--accept-log", "5", "--yes", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["accepted_version"], facts["given_up_version"]) == (5, 6)
    assert facts["dry_run"] is False
    assert (facts["ratified_version"], facts["lag"], facts["accepts_commits"]) == (5, 0, True)
    assert DeltaTable(managed).alter.set_properties({"number": "anew"}).version == 6
    assert main(["commits", str(managed), "--accept-log", "6"]) == 1
    assert "nothing is missing" in capsys.readouterr().err


def test_a_dry_run_records_nothing_not_even_a_hand_over(
    sales_copy: Path, owner_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The client that has handed the table over died before it could inform the owner."""
    DeltaTable(sales_copy).convert_to_managed("sql")
    with sqlite3.connect(owner_url.removeprefix("sqlite:///")) as database:
        database.execute(
            "UPDATE airflow_delta_managed_tables SET standing = 'proposed', latest_version = 3, "
            "backfilled_version = 3"
        )
        before = [*database.iterdump()]
    for words in ([], ["--accept-log", "4"]):
        assert main(["commits", str(sales_copy), *words]) == bool(words)
        with sqlite3.connect(owner_url.removeprefix("sqlite:///")) as database:
            assert [*database.iterdump()] == before
    captured = capsys.readouterr()
    assert "active" in captured.out
    assert "nothing is missing" in captured.err
    assert main(["commits", str(sales_copy), "--accept-log", "4", "--yes"]) == 1
    assert "nothing is missing" in capsys.readouterr().err
    with sqlite3.connect(owner_url.removeprefix("sqlite:///")) as database:
        assert "'active'" in "".join(database.iterdump())


@pytest.mark.parametrize("change", [["--relocate"], ["--accept-log", "3", "--yes"]])
def test_a_table_without_an_owner_has_no_records_to_change(
    sales: Path, capsys: pytest.CaptureFixture[str], change: list[str]
) -> None:
    assert main(["commits", str(sales), *change]) == 1
    captured = capsys.readouterr()
    assert "managed by the file system" in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    "words",
    [["--relocate", "--accept-log", "3"], ["--relocate", "--dry-run"], ["--yes", "--dry-run"]],
)
def test_only_one_change_at_a_time_is_accepted(
    sales: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["commits", str(sales), *words])
    assert "not allowed with" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["--yes", "--dry-run"])
def test_what_is_said_about_an_accepted_log_needs_one(
    sales: Path, capsys: pytest.CaptureFixture[str], word: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["commits", str(sales), word])
    assert f"{word}: only allowed with --accept-log" in capsys.readouterr().err


def test_a_table_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["commits", str(tmp_path / "nothing")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert str(tmp_path / "nothing") in captured.err


@pytest.mark.parametrize(
    ("table", "heavy"),
    [
        ("managed", {"airflow", "pyspark", "psycopg"}),
        ("sales", {"airflow", "pyspark", "psycopg", "pyarrow", "sqlalchemy"}),
    ],
)
def test_the_verb_loads_no_more_than_it_needs(
    table: str, heavy: set[str], request: pytest.FixtureRequest
) -> None:
    code = (
        "import sys; from airflow_delta.cli.main import main; main(sys.argv[1:]); "
        f"assert not {heavy!r} & set(sys.modules)"
    )
    command = [sys.executable, "-c", code, "commits", str(request.getfixturevalue(table))]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
