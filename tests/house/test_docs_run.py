"""The examples of these pages run, and print what they say that they print."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from tests.log_builder import add, write_table

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = [
    DOCS / "reference" / "engine.md",
    DOCS / "reference" / "transactions.md",
    DOCS / "reference" / "change-data.md",
    DOCS / "how-to" / "check-a-table.md",
    DOCS / "how-to" / "convert-to-delta.md",
    DOCS / "how-to" / "create-a-table.md",
    DOCS / "how-to" / "drop-a-feature.md",
    DOCS / "how-to" / "optimize-a-table.md",
    DOCS / "how-to" / "restore-a-table.md",
    DOCS / "how-to" / "table-health.md",
    DOCS / "how-to" / "vacuum-a-table.md",
]


def is_task(code: str) -> bool:
    """Whether an example is for a DAG file."""
    return "from airflow_delta.operators" in code


# The headings that code follows, with no other heading in between.
EXAMPLE = re.compile(r"^#+ ([^\n]*)\n(?:(?!^#).)*?^```python\n(.*?)^```", re.M | re.S)
# Tasks of Airflow aren't run here; tests/airflow/test_docs.py loads them.
EXAMPLES = [
    (page, heading, code)
    for page in PAGES
    for heading, code in EXAMPLE.findall(page.read_text("utf-8"))
    if not is_task(code)
]


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
        blocks = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
        runnable = [code for code in blocks if not is_task(code)]
        assert [code for of, _, code in EXAMPLES if of == page] == runnable != []


def blocks(page: Path, language: str = "python") -> list[str]:
    """The blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)


def run(code: str, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run an example: the names that it has defined."""
    names = {"__name__": "example"} if names is None else names
    exec(compile(code, "example", "exec"), names)
    return names


def test_the_readme_reads_the_version_of_a_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = write_table(tmp_path / "sales", [add("a", size=7)], [add("b")])
    january = 1_769_000_000  # 2026-01-21
    os.utime(table / "_delta_log" / f"{0:020}.json", (january, january))
    os.utime(table / "_delta_log" / f"{1:020}.json", (january + 10**7, january + 10**7))
    (_, code) = blocks(DOCS.parent / "README.md")
    run(code.replace("s3://lake/sales", str(table)))
    first, *files = capsys.readouterr().out.splitlines()
    assert first.startswith("0 1 (")
    assert files[-2:] == ['path: [["a"]]', "size: [[7]]"]


def test_the_guide_to_cleaning_up_prints_its_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = write_table(tmp_path / "sales", [add("a")], [add("b")], [add("c")])
    for version in range(3):
        os.utime(table / "_delta_log" / f"{version:020}.json", (10**9, 10**9 + version * 10**6))
    DeltaTable(table).checkpoint(version=2)
    names: dict[str, Any] = {}
    for code in blocks(DOCS / "how-to" / "clean-up-a-log.md"):
        run(code.replace("/data/sales", str(table)), names)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "2 2"
    assert printed[2].startswith("commits 2 ")
    assert names["result"].num_deleted == sum(group.count for group in names["plan"].deletes)


def test_a_new_column_is_added_to_the_target_of_a_change_feed(tmp_path: Path) -> None:
    target = write_table(tmp_path / "sales_changes", [add("a")])
    code = blocks(DOCS / "how-to" / "read-changes.md")[2]
    run(code.replace("s3://lake/sales_changes", str(target)))
    assert DeltaTable(target).snapshot().schema.names[-1] == "channel"


@pytest.mark.parametrize("page", ["object-stores.md", "shared-files.md"])
def test_tables_can_be_named_as_the_guides_do(page: str) -> None:
    """Without a store, because a `DeltaTable` does no I/O before its methods are called."""
    for code in blocks(DOCS / "how-to" / page):
        assert isinstance(run(code)["table"], DeltaTable)


def test_the_example_of_set_up_is_the_file_of_the_checkout() -> None:
    (code,) = blocks(DOCS / "how-to" / "set-up.md")
    file = DOCS.parent / "dags" / "delta_table_maintenance.py"
    assert set(code.splitlines()) <= set(file.read_text("utf-8").splitlines())
    assert "import dag" in code


def functions_of_spark() -> dict[str, ast.FunctionDef]:
    """The functions that `airflow_delta.spark` exports, from their sources: PySpark takes seconds."""
    package = DOCS.parent / "airflow_delta" / "spark"
    homes = re.findall(r'^    "(\w+)": "([\w.]+)",$', (package / "__init__.py").read_text(), re.M)
    return {
        node.name: node
        for name, home in homes
        for node in ast.parse((package / f"{home.replace('.', '/')}.py").read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name == name
    }


def test_the_signatures_of_the_reference_are_those_of_the_functions() -> None:
    functions = functions_of_spark()
    shown: list[str] = []
    for text in blocks(DOCS / "reference" / "spark.md", "text"):
        for found in ast.parse(
            re.sub(r"(?m)^(\w+)\(", r"def \1(", text).replace(")\n", "): ...\n")
        ).body:
            assert isinstance(found, ast.FunctionDef)
            real = functions[found.name].args
            named = found.args
            assert [a.arg for a in named.args] == [a.arg for a in real.args], found.name
            assert [a.arg for a in named.kwonlyargs] == [a.arg for a in real.kwonlyargs], found.name
            shown.append(found.name)
    assert {*shown} >= {"read_snapshot", "write", "delete", "update", "merge", "optimize"}


def test_the_call_of_the_reference_fits_the_function() -> None:
    (code,) = blocks(DOCS / "reference" / "spark.md")
    (call,) = (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call))
    arguments = functions_of_spark()["read_snapshot"].args
    assert len(call.args) <= len(arguments.args)
    assert {word.arg for word in call.keywords} <= {a.arg for a in arguments.kwonlyargs}
