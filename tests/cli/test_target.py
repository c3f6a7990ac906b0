"""Where the storage options of a subcommand come from, and that no message shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_delta.cli.main import main
from airflow_delta.cli.target import OPTIONS_VARIABLE, Target
from airflow_delta.engine.errors import InvalidArgumentError

SECRET = "gr8-s3cr3t"


def test_flags_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OPTIONS_VARIABLE, '{"a": "1", "b": "2"}')
    target = Target("s3://bucket/t", {"b": "3"})
    assert target.access().storage_options == {"a": "1", "b": "3"}
    assert SECRET not in repr(Target("/t", {"password": SECRET}))
    assert SECRET not in repr(Target("/t", {"password": SECRET}).access())


@pytest.mark.parametrize("text", [SECRET, f'["{SECRET}"]', f'{{"{SECRET}": 1}}'])
def test_a_malformed_environment_variable_isnt_quoted(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OPTIONS_VARIABLE, text)
    with pytest.raises(InvalidArgumentError, match=OPTIONS_VARIABLE) as raised:
        Target("/t").access()
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize("as_json", [[], ["--json"]])
@pytest.mark.parametrize(
    "words",
    [
        ["describe", "/t", "--storage-option", SECRET],
        ["describe", "/t", f"--storage-option=={SECRET}"],
        ["describe", "/t", f"--storage-options=password={SECRET}"],
        ["describe", "/t", f"password={SECRET}"],
        ["describe", "/t", "--storage-option", "password=x", SECRET, SECRET],
        [f"password={SECRET}", "describe", "/t"],
        ["--storage-option", f"password={SECRET}", "describe", "/t"],
        ["alter", f"password={SECRET}", "/t"],
        ["describe", "/t", "--version", "x", "--storage-option", f"password={SECRET}"],
    ],
)
def test_no_usage_error_shows_a_secret(
    words: list[str], as_json: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([*words, *as_json])
    captured = capsys.readouterr()
    assert SECRET not in captured.out + captured.err
    assert "password=" not in captured.err


def test_no_error_of_the_table_shows_a_secret(capsys: pytest.CaptureFixture[str]) -> None:
    # The engine quotes the value of `single_writer`, as that isn't secret.
    options = [f"aws_secret_access_key={SECRET}", f"single_writer={SECRET}"]
    words = [word for option in options for word in ("--storage-option", option)]
    for as_json in ([], ["--json"]):
        assert main(["describe", "nowhere://host/t", *words, *as_json]) == 1
        captured = capsys.readouterr()
        assert "says '***'" in captured.err
        assert SECRET not in captured.out + captured.err


def test_a_connection_of_airflow(
    sales: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content = {"conn_type": "delta", "extra": {"single_writer": "true"}}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(content))
    access = Target("s3://bucket/t", {"aws_region": "x"}, "lake").access()
    assert access.storage_options == {"single_writer": "true", "aws_region": "x"}
    assert main(["describe", str(sales), "--conn-id", "lost_connection"]) == 1
    assert "lost_connection" in capsys.readouterr().err


def test_the_connection_of_a_commit_owner_changes_no_storage_options(
    sales: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    owner = {"conn_type": "sqlite", "host": str(tmp_path / "owner.db")}
    monkeypatch.setenv("AIRFLOW_CONN_OWNER", json.dumps(owner))
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps({"conn_type": "aws"}))
    monkeypatch.setenv(OPTIONS_VARIABLE, f'{{"aws_secret_access_key": "{SECRET}", "b": "2"}}')
    access = Target("s3://bucket/t", {"b": "3"}, None, "owner", ("s3://other",)).access()
    assert access.storage_options == {"aws_secret_access_key": SECRET, "b": "3"}
    assert (access.uri, access.allowed_outside) == ("s3://bucket/t", ("s3://other",))
    assert access.commit_owners is not None
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", '{"conn_type": "delta", "extra": {"a": "1"}}')
    named = Target("s3://lake@bucket/t", {"b": "3"}, None, "owner").access()
    assert (named.uri, named.storage_options) == ("s3://bucket/t", {"a": "1", "b": "3"})
    assert main(["describe", str(sales), "--commit-owner-conn-id", "lost_connection"]) == 1
    assert "lost_connection" in capsys.readouterr().err
