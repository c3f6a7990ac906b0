"""The tutorial's page: its blocks by step, and a shell that does what they say."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["PAGE", "Shell", "all_blocks", "blocks", "check_output", "files"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"

_TEXT = PAGE.read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)
_FILE = re.compile(r"[Ss]ave this as `([^`]+)`:\n\n```python\n(.*?)^```", re.M | re.S)
_STEP = re.compile(r"^## (\d+)\. .*?(?=^## |\Z)", re.M | re.S)
_LIMIT_SECONDS = 240.0


def all_blocks() -> list[tuple[str, str]]:
    """The language and the text of each block of the page."""
    return _BLOCK.findall(_TEXT)


def blocks(step: int, language: str) -> list[str]:
    """The blocks of one language in a numbered step of the page."""
    (section,) = (found[0] for found in _STEP.finditer(_TEXT) if found[1] == str(step))
    return [text for name, text in _BLOCK.findall(section) if name == language]


def files() -> dict[str, str]:
    """The files that the page has its reader save, by their path."""
    return dict(_FILE.findall(_TEXT))


def check_output(output: str, promised: str) -> None:
    """Check that an output has the promised lines in their order, where ``…`` stands for anything."""
    lines = iter(output.splitlines())
    for line in promised.splitlines():
        pattern = re.escape(line).replace("…", ".*")
        found = any(re.fullmatch(pattern, candidate) for candidate in lines)
        assert found, f"no line {line!r} after those before it in:\n{output}"


class Shell:
    """A reader's shell: each block finds the directory and the exported variables of the one before."""

    def __init__(self, home: Path) -> None:
        self.directory = home / "delta-tutorial"
        self.directory.mkdir(parents=True)
        self._state = home / "variables"
        own = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AIRFLOW", "AWS_"))
        }
        # This checkout, whichever one is installed.
        path = os.pathsep.join([str(PAGE.parents[1]), os.environ.get("PYTHONPATH", "")])
        self._environment = {**own, "HOME": str(home), "PYTHONPATH": path.rstrip(os.pathsep)}
        self._state.write_text("")

    def run(self, code: str, **variables: str) -> str:
        """Run a block to its end: what it prints.

        Args:
            code: the block.
            variables: exported before it.
        """
        with self.running(code, **variables) as job:
            return job.finish()

    @contextmanager
    def running(self, code: str, **variables: str) -> Iterator[Job]:
        """Start a block, and end it with the ``with`` statement where it hasn't ended by itself."""
        output = self._state.with_name("output")
        # Written at the end: a block that is still running has no say in what others find.
        script = f'. "{self._state}"\n{code}\nexport -p >"{self._state}"\n'
        with output.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", script],
                cwd=self.directory,
                env={**self._environment, **variables},
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        # The next block may have the name.
        kept = output.rename(output.with_name(f"output-{process.pid}"))
        try:
            yield Job(process, kept)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


class Job:
    """A block that has been started."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self._process = process
        self._output = output

    def wait_for(self, promised: str) -> None:
        """Wait until the output has the promised line."""
        pattern = re.compile(re.escape(promised.strip()).replace("…", ".*"))
        deadline = time.monotonic() + _LIMIT_SECONDS
        while not pattern.search(self._told()):
            assert self._process.poll() is None, self._told()
            assert time.monotonic() < deadline, self._told()
            time.sleep(0.2)

    def finish(self) -> str:
        """Wait for the end, which must be a good one: what the block has printed."""
        status = self._process.wait(_LIMIT_SECONDS)
        assert status == 0, self._told()
        return self._told()

    def _told(self) -> str:
        return self._output.read_text(encoding="utf-8", errors="replace")
