"""The examples of the guides do what they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.spark import merge, read_snapshot, write
from tests.docstring_blocks import docstring_blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("compiled")

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "how-to"


@pytest.mark.deep
@pytest.mark.parametrize(
    ("page", "blocks", "promises"),
    [
        ("read-changes.md", slice(0, 1), 6),
        ("profile-a-table.md", slice(0, 1), 6),
        # The last of each is a DAG.
        ("write-with-spark.md", slice(0, -1), 9),
        ("upsert.md", slice(0, -1), 14),
        ("delete-personal-data.md", slice(0, -1), 6),
        ("keep-history.md", slice(0, -1), 7),
        # The first is a DAG.
        ("copy-a-version.md", slice(1, None), 4),
    ],
)
def test_what_a_guide_promises_is_printed(
    page: str,
    blocks: slice,
    promises: int,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (GUIDES / page).read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "example"}
    promised = []
    for code in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)[blocks]:
        exec(compile(code, page, "exec"), names)
        promised += re.findall(r"^(?:print\(.*\)  )?# (.*)$", code, re.M)
    assert len(promised) == promises
    assert capsys.readouterr().out.splitlines() == promised


@pytest.mark.deep
def test_the_blocks_of_the_docstrings_do_what_they_say(spark: SparkSession, tmp_path: Path) -> None:
    sales, copy = str(tmp_path / "sales"), str(tmp_path / "copy")
    for version in range(8):
        rows = spark.createDataFrame([(version, "2026-01-01")], "id LONG, day STRING")
        write(rows, sales)
    blocks = docstring_blocks()
    (block,) = blocks["airflow_delta.spark"]
    for location, ours in (("s3://lake/sales", sales), ("/data/copy", copy)):
        assert location in block
        block = block.replace(location, ours)
    exec(compile(block, "airflow_delta.spark", "exec"), {"spark": spark})
    assert DeltaTable(copy).snapshot().metadata.partition_columns == ("day",)
    assert sorted(row.id for row in read_snapshot(spark, copy).collect()) == [*range(8)]

    (block,) = blocks[f"{merge.__module__}.merge"]
    new = spark.createDataFrame([(7, "2026-01-07"), (8, "2026-01-08")], "id LONG, day STRING")
    names: dict[str, Any] = {"merge": merge, "spark": spark, "uri": copy, "new_rows": new}
    exec(compile(block, "merge", "exec"), names)
    assert names["result"].version == DeltaTable(copy).latest_version() == 1
    merged = {row.id: row.day for row in read_snapshot(spark, copy).collect()}
    assert merged == {n: f"2026-01-{n if n > 6 else 1:02}" for n in range(9)}
