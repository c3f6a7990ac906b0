"""A Spark standalone cluster of the tests' own, on the loopback interface: a master and two workers.

    with standalone_cluster(folder) as cluster:
        ...  # submit to cluster.url

It is made of the installed PySpark package alone. What it is for is what ``local[*]`` can't show: that
executors are processes of their own, in working directories of their own, with nothing of the driver's
but what Spark hands them. So the daemons get an environment of their own, without this process's Python
path.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pyspark

__all__ = ["Cluster", "standalone_cluster"]

_SPARK_HOME = Path(pyspark.__file__).parent
_DEPLOY = "org.apache.spark.deploy"
_WORKERS = 2
_START_SECONDS = 60
_END_SECONDS = 20

# Runs a program until it ends, or until the end of its own input: so the program ends, too, when the
# process that started it is killed.
_UNTIL_LEFT = '"$@" </dev/null & child=$!; read -r _; kill $child; wait $child'


@dataclass(frozen=True)
class Cluster:
    """A running cluster.

    Attributes:
        url: of the master, as jobs are submitted to it.
        page: the address of the master's web pages.
        folder: where each worker has a directory with what executors write: ``worker-*/<app>/<number>``.
    """

    url: str
    page: str
    folder: Path

    def state(self) -> dict[str, Any]:
        """What the master knows of its workers and of applications."""
        with urlopen(f"{self.page}/json/", timeout=10) as answer:
            told: dict[str, Any] = json.load(answer)
        return told

    def applications(self) -> list[str]:
        """The ids of all applications that were ever submitted, in that order."""
        told = self.state()
        found = [*told["activeapps"], *told["completedapps"]]
        return [app["id"] for app in sorted(found, key=lambda app: app["starttime"])]

    def executors(self) -> dict[int, str]:
        """The executors that run now, by process id: their command lines."""
        commands = self.processes()
        return {number: text for number, text in commands.items() if "ExecutorBackend" in text}

    def processes(self) -> dict[int, str]:
        """All processes of the cluster, those that executors have started among them."""
        mark = f"SPARK_CONF_DIR={self.folder / 'conf'}".encode()
        found: dict[int, str] = {}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    command = (process / "cmdline").read_bytes()
                    found[int(process.name)] = command.replace(b"\0", b" ").decode()
            except OSError:
                # It has ended, or is somebody else's.
                continue
        return found

    def executor_files(self, application: str) -> list[Path]:
        """What the executors of an application have on their output, one file of each stream."""
        found = self.folder.glob(f"worker-*/{application}/*/std*")
        return sorted(found)


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[Cluster]:
    """Start a cluster, and end it whatever happens.

    Args:
        folder: a directory for its files. What the daemons tell stays there, in ``*.log``.
    """
    (folder / "conf").mkdir(parents=True)
    with ExitStack() as ending:

        def start(name: str, *arguments: str) -> _Daemon:
            daemon = _Daemon(folder / f"{name}.log", *arguments, conf=folder / "conf")
            ending.callback(daemon.stop)
            return daemon

        here = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        master = start("master", f"{_DEPLOY}.master.Master", *here)
        url = master.wait_for(r"Starting Spark master at (spark://\S+)")
        page = master.wait_for(r"MasterWebUI to .* started at (http://\S+)")
        workers = [
            start(
                f"worker-{number}",
                f"{_DEPLOY}.worker.Worker",
                *(*here, "--cores", "1", "--memory", "1g"),
                *("--work-dir", str(folder / f"worker-{number}"), url),
            )
            for number in range(_WORKERS)
        ]
        for worker in workers:
            worker.wait_for(r"(Successfully registered) with master")
        yield Cluster(url, page, folder)


class _Daemon:
    """A daemon of Spark, and what it tells."""

    def __init__(self, log: Path, *arguments: str, conf: Path) -> None:
        self._log = log
        self._told = threading.Condition()
        self._lines: list[str] = []
        environment = {
            name: os.environ[name]
            for name in ("PATH", "HOME", "LANG", "JAVA_HOME", "JAVA_TOOL_OPTIONS", "TMPDIR")
            if name in os.environ
        }
        environment |= {
            "SPARK_HOME": str(_SPARK_HOME),
            "SPARK_CONF_DIR": str(conf),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_PUBLIC_DNS": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
        }
        self._process = subprocess.Popen(
            ["sh", "-c", _UNTIL_LEFT, "sh", str(_SPARK_HOME / "bin" / "spark-class"), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=log.parent,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def wait_for(self, pattern: str) -> str:
        """Wait for a line, and give what the pattern's group matches."""

        def found() -> str | None:
            matches = (re.search(pattern, line) for line in self._lines)
            return next((match[1] for match in matches if match), None)

        with self._told:
            text = self._told.wait_for(found, timeout=_START_SECONDS)
        if text is None:
            raise TimeoutError(f"no {pattern!r} in {self._log}:\n" + "\n".join(self._lines[-20:]))
        return text

    def stop(self) -> None:
        """End the daemon, and whatever it may have left of what it has started."""
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout
        with self._log.open("w") as log:
            for line in self._process.stdout:
                log.write(line)
                log.flush()
                with self._told:
                    self._lines.append(line.rstrip())
                    self._told.notify_all()
