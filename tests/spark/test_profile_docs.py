"""The example of the guide does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "profile-a-table.md"


def test_the_profile_of_the_guide(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)[0]
    exec(compile(code, str(PAGE), "exec"), {"__name__": "example"})
    promised = re.findall(r"^(?:print\(.*\)  )?# (.*)$", code, re.M)
    assert len(promised) == 6
    assert capsys.readouterr().out.splitlines() == promised
