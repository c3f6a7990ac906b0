"""A run without the golden tables says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import conftest


class Reporter:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def write_line(self, line: str) -> None:
        self.lines.append(line)


@pytest.mark.parametrize("has_tables", [True, False])
def test_a_run_without_the_golden_tables_says_in_one_line_what_is_not_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_tables: bool
) -> None:
    if has_tables:
        (tmp_path / "manifest.json").touch()
    monkeypatch.setattr(conftest, "GOLDEN", tmp_path)
    reporter = Reporter()
    conftest.pytest_terminal_summary(reporter)  # type: ignore[arg-type]
    lines = [f"not tested: tables that reference engines wrote; {conftest.NO_GOLDEN}"]
    assert reporter.lines == ([] if has_tables else lines)
