"""Runs a subcommand, and reads what it prints with ``--json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.cli.main import main


def report(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, Any]:
    assert main([*map(str, words), "--json"]) == 0
    facts: dict[str, Any] = json.loads(capsys.readouterr().out)
    return facts
