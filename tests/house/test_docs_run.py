"""The examples of these pages run, and print what they say that they print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = [
    DOCS / "reference" / "engine.md",
    DOCS / "reference" / "transactions.md",
    DOCS / "how-to" / "convert-to-delta.md",
    DOCS / "how-to" / "create-a-table.md",
    DOCS / "how-to" / "drop-a-feature.md",
    DOCS / "how-to" / "restore-a-table.md",
    DOCS / "how-to" / "vacuum-a-table.md",
]
# The headings that code follows, with no other heading in between.
EXAMPLE = re.compile(r"^#+ ([^\n]*)\n(?:(?!^#).)*?^```python\n(.*?)^```", re.M | re.S)
EXAMPLES = [(page, *found) for page in PAGES for found in EXAMPLE.findall(page.read_text("utf-8"))]


def promised(code: str) -> list[str]:
    """The comments behind ``print`` calls, and those that stand alone after them."""
    return [match[1] for match in re.finditer(r"^(?:print\(.*\)  )?# (.*)$", code, re.M)]


@pytest.mark.parametrize(
    ("page", "code"),
    [(page, code) for page, _, code in EXAMPLES],
    ids=[f"{page.stem}: {heading}" for page, heading, _ in EXAMPLES],
)
def test_an_example_does_what_it_says(
    page: Path,
    code: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(page), "exec"), {"__name__": "example"})
    assert promised(code)
    assert capsys.readouterr().out.splitlines() == promised(code)


def test_no_example_is_missed() -> None:
    for page in PAGES:
        blocks = page.read_text("utf-8").count("```python")
        assert sum(page == of for of, _, _ in EXAMPLES) == blocks >= 1
