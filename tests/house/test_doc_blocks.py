"""Each code block of the documentation, and of docstrings that users read, is run by a test, or it is said
here why it isn't.

A new block fails these tests until it has an entry.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docstring_blocks import docstring_blocks

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "benchmarks" / "README.md",
    ROOT / "docker" / "README.md",
]
BLOCK = re.compile(r"^ *```(\w*)\n.*?^ *```", re.M | re.S)

RUN = "tests/house/test_docs_run.py"
SPARK = "tests/spark/test_docs.py"
DAGS = "tests/airflow/test_docs.py"
COMMANDS = "tests/cli/test_docs_commands.py"
CLUSTERS = "tests/airflow/test_spark_clusters_docs.py"
TUTORIAL = "tests/airflow/test_tutorial.py"

# Why a block isn't run.
INSTALLS = "downloads packages; the steps of the tutorial are compared with it, or CI does the same"
OUTPUT = "is output, whose form the tests of the command or of the error check"
SETTINGS = "are settings of another program"
CONTAINERS = "needs Docker"
WHOLE_CI = "is the tests or the benchmarks themselves"

# In place of a number, for tests that take whatever blocks of the language a page has.
ALL = -1

# By page and language: how many blocks, and the test that runs them or the reason.
BLOCKS: dict[str, dict[str, list[tuple[int, str]]]] = {
    "CONTRIBUTING.md": {"bash": [(1, WHOLE_CI)]},
    "README.md": {
        "python": [(1, DAGS), (1, RUN)],
        "bash": [(1, TUTORIAL), (1, WHOLE_CI)],
    },
    "benchmarks/README.md": {"bash": [(2, WHOLE_CI)]},
    "docker/README.md": {"bash": [(1, CONTAINERS)]},
    "docs/how-to/alerts.md": {"python": [(5, "tests/airflow/test_alerts_page.py")]},
    "docs/how-to/alter-tables.md": {
        "python": [(ALL, "tests/engine/transaction/alter/test_table.py")],
        "text": [(1, OUTPUT), (1, "needs Spark; tests/spark/alterations/ makes the call")],
    },
    "docs/how-to/check-a-table.md": {"python": [(ALL, RUN)], "bash": [(ALL, COMMANDS)]},
    "docs/how-to/clean-up-a-log.md": {"python": [(ALL, RUN)]},
    "docs/how-to/connections.md": {
        "bash": [(2, DAGS)],
        "text": [(1, OUTPUT)],
    },
    "docs/how-to/convert-to-delta.md": {"python": [(ALL, RUN)], "bash": [(ALL, COMMANDS)]},
    "docs/how-to/copy-a-version.md": {
        "python": [(1, "tests/airflow/test_version_copy_dag.py"), (2, SPARK)]
    },
    "docs/how-to/create-a-table.md": {"python": [(ALL, RUN)]},
    "docs/how-to/delete-personal-data.md": {
        "python": [(3, SPARK), (1, "tests/airflow/test_upsert_dag.py")]
    },
    "docs/how-to/drop-a-feature.md": {"python": [(ALL, RUN)]},
    "docs/how-to/events.md": {"python": [(3, DAGS)]},
    "docs/how-to/keep-history.md": {
        "python": [(2, SPARK), (1, "tests/airflow/test_upsert_dag.py")]
    },
    "docs/how-to/lineage.md": {
        "python": [(1, "tests/airflow/lineage/test_facets.py"), (1, DAGS)],
        "json": [(1, DAGS)],
        "bash": [(1, INSTALLS), (1, SETTINGS)],
    },
    "docs/how-to/maintain-a-table.md": {"python": [(2, DAGS)], "bash": [(ALL, DAGS)]},
    "docs/how-to/managed-tables.md": {
        "python": [(7, DAGS)],
        "bash": [(2, DAGS), (1, COMMANDS)],
        "console": [(1, COMMANDS)],
        "sql": [(1, "needs the administrator of a PostgreSQL server")],
    },
    "docs/how-to/object-stores.md": {"python": [(ALL, RUN)]},
    "docs/how-to/optimize-a-table.md": {
        "python": [(1, RUN), (2, DAGS)],
        "bash": [(ALL, COMMANDS)],
        "text": [(1, "needs Spark; tests/spark/optimizer/ makes the call")],
    },
    "docs/how-to/profile-a-table.md": {
        "python": [(1, SPARK), (1, "tests/airflow/test_table_profile.py")]
    },
    "docs/how-to/read-changes.md": {
        "python": [(1, SPARK), (2, "tests/airflow/test_change_feed.py"), (1, RUN)]
    },
    "docs/how-to/restore-a-table.md": {"python": [(ALL, RUN)]},
    "docs/how-to/set-up.md": {"python": [(1, RUN)], "bash": [(2, INSTALLS)]},
    "docs/how-to/shared-files.md": {"python": [(ALL, RUN)], "text": [(1, OUTPUT)]},
    "docs/how-to/spark-clusters.md": {
        "python": [(ALL, CLUSTERS)],
        "json": [(4, CLUSTERS)],
        "bash": [(2, CLUSTERS)],
        "dockerfile": [(1, CLUSTERS)],
        "properties": [(1, SETTINGS)],
    },
    "docs/how-to/table-health.md": {"python": [(ALL, RUN)]},
    "docs/how-to/upsert.md": {"python": [(7, SPARK), (1, "tests/airflow/test_upsert_dag.py")]},
    "docs/how-to/use-the-command-line.md": {
        "bash": [(ALL, COMMANDS)],
        "console": [(ALL, COMMANDS)],
    },
    "docs/how-to/vacuum-a-table.md": {"python": [(ALL, RUN)]},
    "docs/how-to/who-wrote-a-version.md": {"python": [(1, DAGS)], "text": [(1, OUTPUT)]},
    "docs/how-to/write-with-spark.md": {
        "python": [(5, SPARK), (1, "tests/airflow/test_ingest_dag.py")]
    },
    "docs/reference/change-data.md": {"python": [(ALL, RUN)]},
    "docs/reference/command-line.md": {
        "bash": [(ALL, COMMANDS)],
        "console": [(ALL, COMMANDS)],
        "": [(1, OUTPUT)],
    },
    "docs/reference/engine.md": {"python": [(ALL, RUN)]},
    "docs/reference/operators.md": {"python": [(4, DAGS)]},
    "docs/reference/spark.md": {"python": [(1, RUN)], "text": [(8, RUN)]},
    "docs/reference/transactions.md": {"python": [(ALL, RUN)]},
    # test_tutorial.py counts its blocks.
    "docs/tutorial.md": {},
}

DOCSTRINGS = "tests/airflow/test_docstrings.py"

# By module, class or function of `airflow_delta`: what runs each block of its docstring, or the reason.
IN_DOCSTRINGS: dict[str, list[str]] = {
    "assets": [DOCSTRINGS],
    "engine.errors": ["is a drawing; tests/house/test_errors.py compares it with the classes"],
    "operators.change_feed.ChangeFeedOperator": [DOCSTRINGS],
    "operators.merge.MergeOperator": [DOCSTRINGS],
    "operators.table_profile.TableProfileOperator": [DOCSTRINGS],
    "operators.time_travel_snapshot.TimeTravelSnapshotOperator": [DOCSTRINGS],
    "operators.update.UpdateOperator": [DOCSTRINGS],
    "operators.write.WriteOperator": [DOCSTRINGS],
    "results": [DOCSTRINGS],
    "sensors.table_version.TableVersionSensor": [DAGS],
    "spark": [SPARK],
    "spark.dml.merge.merge.merge": [SPARK],
    "task_runs.commit_user_metadata": [DOCSTRINGS, DOCSTRINGS],
    "templates": [DOCSTRINGS],
    "triggers.new_versions.DeltaTableVersionTrigger": [DOCSTRINGS],
}
EXAMPLE_DAGS = "example_dags"
"""Their docstrings are the business of `DOCSTRINGS`, too."""


def counts(page: Path) -> dict[str, int]:
    """How many blocks a page has, by language; drawings don't count."""
    found = BLOCK.findall(page.read_text("utf-8"))
    return {language: found.count(language) for language in found if language != "mermaid"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_block_is_run_or_has_a_reason(page: Path) -> None:
    if page.stem == "tutorial":
        return
    listed = BLOCKS.get(str(page.relative_to(ROOT)), {})
    found = counts(page)
    assert set(found) == set(listed)
    for language, entries in listed.items():
        numbers = [number for number, _ in entries]
        assert numbers == [ALL] or sum(numbers) == found[language], language


def test_each_block_of_a_docstring_is_run_or_has_a_reason() -> None:
    found = {name.partition(".")[2]: len(blocks) for name, blocks in docstring_blocks().items()}
    examples = {name for name in found if name.startswith(EXAMPLE_DAGS)}
    assert len(examples) > 10
    assert {name: found[name] for name in found.keys() - examples} == {
        name: len(entries) for name, entries in IN_DOCSTRINGS.items()
    }


def test_the_tests_of_the_blocks_are_there() -> None:
    named = {by for page in BLOCKS.values() for entries in page.values() for _, by in entries}
    named |= {by for entries in IN_DOCSTRINGS.values() for by in entries}
    paths = {path for by in named for path in re.findall(r"tests/[\w/.]+", by)}
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_listed_page_is_there() -> None:
    assert [page for page in BLOCKS if not (ROOT / page).exists()] == []
