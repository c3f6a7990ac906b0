from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine.errors import InvalidArgumentError, TableNotFoundError
from airflow_delta.job_files import (
    STORAGE_OPTIONS_VARIABLE,
    read_parameters,
    read_storage_options,
    run_job,
)


def test_parameters_come_from_a_file_or_the_argument_itself(tmp_path: Path) -> None:
    file = tmp_path / "parameters.json"
    file.write_text('{"version": 7}', encoding="utf-8")
    assert read_parameters([str(file)]) == read_parameters([' {"version": 7}']) == {"version": 7}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "found 0"),
        (["{}", "{}"], "found 2"),
        (["{"], "this is no JSON"),
    ],
)
def test_parameters_that_are_no_json_object(arguments: list[str], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        read_parameters(arguments)


def test_a_parameter_file_that_is_no_object(tmp_path: Path) -> None:
    file = tmp_path / "parameters.json"
    file.write_text("[1]", encoding="utf-8")
    with pytest.raises(InvalidArgumentError, match="expected a JSON object, found a list"):
        read_parameters([str(file)])


def test_storage_options_come_from_the_environment() -> None:
    assert read_storage_options({}) == {}
    assert read_storage_options({STORAGE_OPTIONS_VARIABLE: '{"key": "secret"}'}) == {
        "key": "secret"
    }


@pytest.mark.parametrize("text", ['{"key": "secret"', '{"secret": 1}', '["secret"]'])
def test_broken_storage_options_are_not_shown(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=STORAGE_OPTIONS_VARIABLE) as caught:
        read_storage_options({STORAGE_OPTIONS_VARIABLE: text})
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_job_leaves_its_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORAGE_OPTIONS_VARIABLE, '{"key": "secret"}')
    result = tmp_path / "result.json"

    def work(parameters: Mapping[str, Any], options: Mapping[str, str]) -> dict[str, Any]:
        return {"parameters": dict(parameters), "keys": sorted(options)}

    assert run_job(work, [json.dumps({"version": 7, "result_path": str(result)})]) == 0
    assert json.loads(result.read_text()) == {"parameters": {"version": 7}, "keys": ["key"]}
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_a_job_that_fails_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = tmp_path / "result.json"

    def work(parameters: Mapping[str, Any], options: Mapping[str, str]) -> dict[str, Any]:
        raise TableNotFoundError("there is no table", table="s3://lake/sales")

    assert run_job(work, [json.dumps({"result_path": str(result)})]) == 1
    error = {"type": "TableNotFoundError", "message": "s3://lake/sales: there is no table"}
    assert json.loads(result.read_text()) == {"error": error}
    last = capsys.readouterr().err.rstrip().splitlines()[-1]
    assert last == "TableNotFoundError: s3://lake/sales: there is no table"


def test_submitters_need_neither_pyspark_nor_pyarrow() -> None:
    code = (
        "import sys, airflow_delta.job_files, airflow_delta.spark.jobs.materialize\n"
        "print([m for m in ('pyspark', 'pyarrow', 'numpy', 'airflow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
