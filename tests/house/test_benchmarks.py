"""The command of the benchmarks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_a_job_that_does_not_exist_is_refused_by_name() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "opne-own", "open-own"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "unknown jobs opne-own: expected of open-foreign, open-own," in done.stderr
    assert done.stdout == ""
