"""Python in a process of its own, with little memory: what is out of proportion doesn't fit there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_LIMIT = "import resource; resource.setrlimit(resource.RLIMIT_AS, ({0}, {0}))\n"


def run_limited(code: str, *arguments: str, memory: int = 2 << 30, seconds: float = 60) -> str:
    """What a program prints that has so many bytes of address space, of which libraries take half a GB.

    Raises:
        AssertionError: it ended with an error, among them that there is no more memory.
    """
    done = subprocess.run(
        [sys.executable, "-c", _LIMIT.format(memory) + code, *arguments],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        cwd=_ROOT,
        # Arenas and thread pools reserve addresses by the processor.
        env={**os.environ, "MALLOC_ARENA_MAX": "2", "OMP_NUM_THREADS": "2"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
