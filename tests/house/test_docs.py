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
    # The site has no pages for folders.
    missing = [link for link in links if "://" not in link and not (path.parent / link).is_file()]
    assert not missing


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    return {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", text, re.M)
    }


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_headings_that_are_there(path: Path) -> None:
    links = re.findall(r"\]\(([^)#]*)#([^)]+)\)", path.read_text(encoding="utf-8"))
    assert [
        f"{link}#{anchor}"
        for link, anchor in links
        if "://" not in link and anchor not in anchors(path.parent / link if link else path)
    ] == []


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs" / "explanation").glob("*.md")), ids=lambda path: path.stem
)
def test_an_explanation_has_a_drawing_and_leads_into_the_code(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "```mermaid\n" in text
    assert len(set(re.findall(r"\]\(../../airflow_delta/([^)]+)\)", text))) > 3


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_tables_are_whole(path: Path) -> None:
    """Rows apart from their table, by a blank line, are shown as text."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    faults = []
    for block in re.findall(r"(?:^ *\|.*\n?)+", text, re.M):
        rows = [line.strip() for line in block.splitlines()]
        cells = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
        if len(rows) < 3 or not re.fullmatch(r"\|(?: *:?-+:? *\|)+", rows[1]) or len(cells) > 1:
            faults.append(rows[0])
    assert not faults


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


GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
NAMED_PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*|\w+\.toml)`")


def full_paths(line: str) -> list[str]:
    """The paths that a line names. In a row of a table, `a/` may be below a folder that the row is for."""
    folders = NAMED_PATH.findall(line.split(" | ")[0]) if line.startswith("| ") else []
    return [
        next(
            (path for path in (name, *(f + name for f in folders)) if (ROOT / path).exists()), name
        )
        for name in NAMED_PATH.findall(line)
    ]


def test_the_paths_of_the_contributors_guide_are_there() -> None:
    named = [path for line in GUIDE.splitlines() for path in full_paths(line)]
    assert "docs/how-to/object-stores.md" in named
    assert len(named) > 60
    assert [
        path for path in named if not (ROOT / path).exists() and path != "../shared/golden"
    ] == []


def test_the_contributors_guide_names_every_folder() -> None:
    """Tests of single modules are in folders like those of the package, which need no rows."""
    rows = [line for line in GUIDE.splitlines() if line.startswith("| ")]
    named = {path.removesuffix("/") for row in rows for path in full_paths(row)}
    package, tests = (
        {
            str(path.parent.relative_to(ROOT))
            for path in (ROOT / top).rglob("*.py")
            if path.parent != ROOT / top and "node_modules" not in path.parts
        }
        for top in ("airflow_delta", "tests")
    )
    assert len(package) > 60
    assert package - named == set()
    like_package = {f"tests/{folder.removeprefix('airflow_delta/')}" for folder in package}
    assert tests - named - like_package == set()


def test_results_of_tasks_are_handed_on_by_output() -> None:
    """`xcom_pull` is for what ``.output`` can't do: results of earlier runs."""
    code = [
        *(path.read_text(encoding="utf-8") for path in (ROOT / "airflow_delta").rglob("*.py")),
        *(
            block
            for path in PAGES
            for block in re.findall(
                r"^```\w*\n(.*?)^```", path.read_text(encoding="utf-8"), re.M | re.S
            )
        ),
    ]
    pulls = [pull for text in code for pull in re.findall(r"xcom_pull\([^)]*\)", text)]
    assert pulls
    assert [pull for pull in pulls if "include_prior_dates=True" not in pull] == []
    handed_on = re.compile(r"\.output\[\"\w+\"\]")
    for name in (
        "README.md",
        "docs/tutorial.md",
        "docs/how-to/maintain-a-table.md",
        "docs/how-to/profile-a-table.md",
        "docs/reference/operators.md",
    ):
        assert handed_on.search((ROOT / name).read_text(encoding="utf-8")), name


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 130
