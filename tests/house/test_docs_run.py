"""The examples about transactions run, and print what they say that they print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "transactions.md"
EXAMPLES = re.findall(r"^## (.*?)\n.*?^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)


def promised(code: str) -> list[str]:
    """The comments behind ``print`` calls, and those that stand alone after them."""
    return [match[1] for match in re.finditer(r"^(?:print\(.*\)  )?# (.*)$", code, re.M)]


@pytest.mark.parametrize("code", [code for _, code in EXAMPLES], ids=[name for name, _ in EXAMPLES])
def test_an_example_does_what_it_says(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(PAGE), "exec"), {"__name__": "example"})
    assert promised(code)
    assert capsys.readouterr().out.splitlines() == promised(code)


def test_there_are_whole_examples() -> None:
    assert len(EXAMPLES) >= 3
