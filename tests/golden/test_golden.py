"""Every golden table against its ledger: what passed must go on passing, what was refused be refused.

``ledger.json`` says for each case ``pass``, ``refused`` (the corpus asks for a typed refusal, and the
engine gives it) or ``not yet: <reason>``. A case that does better than its entry fails as well, so
that the ledger never lags behind.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import NO_GOLDEN, golden_manifest

HERE = Path(__file__).parent
LEDGER: dict[str, str] = json.loads((HERE / "ledger.json").read_text(encoding="utf-8"))
CASES = golden_manifest()


@pytest.fixture(scope="session")
def outcomes(golden_root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The failures of each case, as the corpus's own checker finds them."""
    result = tmp_path_factory.mktemp("checker") / "outcomes.json"
    command = [
        sys.executable,
        str(golden_root / "check_golden.py"),
        "--adapter=tests.golden.adapter:open_table",
        "--error=airflow_delta.engine.errors:DeltaError",
        "--rows",
        f"--json={result}",
    ]
    done = subprocess.run(
        command, cwd=HERE.parents[1], capture_output=True, text=True, timeout=600, check=False
    )
    assert result.is_file(), done.stderr
    outcome: dict[str, list[str]] = json.loads(result.read_text(encoding="utf-8"))
    return outcome


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case_is_as_the_ledger_says(case: dict[str, str], outcomes: dict[str, list[str]]) -> None:
    name, failures = case["name"], outcomes[case["name"]]
    entry = LEDGER[name]
    if entry.startswith("not yet"):
        assert failures, f"{name} passes now: say so in the ledger"
    else:
        assert not failures
        assert entry == ("refused" if case["expect"] == "error" else "pass")


def test_the_ledger_names_the_cases_of_the_corpus() -> None:
    if not CASES:
        pytest.skip(NO_GOLDEN)
    assert set(LEDGER) == {case["name"] for case in CASES}
