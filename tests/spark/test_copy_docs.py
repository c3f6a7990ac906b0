"""The examples of the guide do what they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "copy-a-version.md"


def test_the_copies_of_the_guide(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    _, *blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    names: dict[str, Any] = {"__name__": "example"}
    promised = []
    for code in blocks:
        exec(compile(code, str(PAGE), "exec"), names)
        promised += re.findall(r"^print\(.*\)  # (.*)$", code, re.M)
    assert len(promised) == 4
    assert capsys.readouterr().out.splitlines() == promised
