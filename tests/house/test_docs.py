"""The documentation tells the truth: generated pages are current, links lead somewhere, code runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.features_reference import TARGET, page

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "benchmarks").glob("*.md"),
        *(ROOT / "docker").glob("*.md"),
    ]
)


def test_the_page_of_features_says_what_the_registry_says() -> None:
    assert TARGET.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_that_are_there(path: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", path.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (path.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_python_in_the_pages_compiles(path: Path) -> None:
    for number, code in enumerate(
        re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.M | re.S)
    ):
        compile(code, f"{path.name}, block {number}", "exec")


def test_the_tests_behind_the_sentences_on_security_are_there() -> None:
    page = (ROOT / "docs" / "explanation" / "security.md").read_text(encoding="utf-8")
    file, missing, found = "", [], 0
    for named, test in re.findall(r"`((?:[\w/]+\.py)?)::(test_\w+)`", page):
        file = named or file
        text = (ROOT / "tests" / file).read_text(encoding="utf-8")
        found += 1
        if f"def {test}(" not in text:
            missing.append(f"{file}::{test}")
    assert not missing
    rows = [line for line in page.splitlines() if line.startswith("| ") and "::test_" in line]
    assert found >= len(rows) > 30


def test_the_paths_of_the_contributors_guide_are_there() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:[\w.]+/)+[\w.]*|\w+\.toml)`", guide)
    assert len(named) > 60
    assert [
        path for path in named if not (ROOT / path).exists() and path != "../shared/golden"
    ] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 120
