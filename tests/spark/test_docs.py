"""The examples of the guides do what they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

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
