"""A process that forks a child with limits for each case, and the child that runs every operation on it.

It reads requests from standard input, a line of JSON each, and writes what happens to standard output. All
modules are loaded before the first fork, so that a child begins at once and opens nothing by itself. Runs
under a `runner`, which kills children that take too long.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import importlib
import json
import os
import pkgutil
import random
import resource
import signal
import sys
import time
import traceback
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tests.attacks.fuzz.files import File, Fingerprint, remove_all
from tests.attacks.fuzz.tables import Places

if TYPE_CHECKING:
    from tests.attacks.fuzz.grounds import Ground

__all__ = ["main"]

MEMORY_MB = 500
"""How much memory more than at its beginning an operation may take."""

_SPARE_MB = 150
"""Stacks of the threads of Arrow and of the object stores, which count as address space."""

_TRIM_MB = 50
"""After an operation that has taken more than this, what is free again goes back to the system."""

_LIBRARIES = ("pyarrow.dataset", "pyarrow.parquet", "pyarrow.compute", "pyarrow.json", "obstore",
              "sqlalchemy",
              "fsspec.implementations.local", "fsspec.implementations.http", "fsspec.implementations.ftp",
              "fsspec.implementations.data", "fsspec.implementations.memory", "fsspec.implementations.zip",
              "encodings.idna", "multiprocessing.pool", "concurrent.futures.thread", "shlex",
              "uuid", "zoneinfo",
              "sqlalchemy.dialects.sqlite.pysqlite", "difflib", "zipfile", "getpass",
              "unittest.mock")  # fmt: skip


def main(directory: str, port: int) -> None:
    """Serve requests until standard input ends.

    Args:
        directory: with the templates; cases are laid out below it.
        port: of the listener.
    """
    from tests.attacks.fuzz import tables, templates, verdicts, watch  # noqa: F401 - loaded for the children

    _load_everything()
    made = templates.load(directory)
    # What Arrow loads when it first makes a table, pandas for one, takes a second.
    tables.log_tree("v2-parquet", tables.history("v2-parquet"))
    tables.data_file()
    tables.vector_file()
    watch.install()
    gc.collect()
    gc.freeze()
    _say({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                _Child(directory, port, request, made).run()
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        _, status = os.waitpid(child, 0)
        _say({"ended": status})


# Programs that are started by mistake shall not write among the messages.
_MESSAGES = os.dup(1)


def _say(message: dict[str, Any]) -> None:
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[os.write(_MESSAGES, data) :]


def _load_everything() -> None:
    import airflow_delta.cli
    import airflow_delta.engine

    for package in (airflow_delta.engine, airflow_delta.cli):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    for name in _LIBRARIES:
        with suppress(ImportError):  # of what isn't installed here
            importlib.import_module(name)


class _Child:
    """One case, from its seed to the last operation."""

    def __init__(self, directory: str, port: int, request: dict[str, Any], templates: Any) -> None:
        from tests.attacks.fuzz.case import Selection, build
        from tests.attacks.fuzz.grounds import Bucket, Directory
        from tests.attacks.fuzz.named import named_objects

        _say({"pid": os.getpid()})
        self._work = f"{directory}/case"
        self._request = request
        errors = os.open(f"{directory}/stderr", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(errors, 1)
        os.dup2(errors, 2)
        faulthandler.enable(2)
        faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
        # The directory's name is always of one length, and so are the files that a seed makes.
        places = Places(f"{self._work}/table", f"{self._work}/other", port)
        chosen = Selection(
            **{name: tuple(names) for name, names in request.get("chosen", {}).items()}
        )
        self._case = build(request["seed"], places, templates, chosen)
        self._places = places
        self._ground: Ground = Directory(places.root)
        self._named: list[str] = []
        if store := request["store"]:
            self._named = named_objects(self._case.tree, store["uri"].removeprefix("s3://"))
            self._ground = Bucket(
                store["uri"], store["options"], f"{request['seed']}-{os.getpid()}"
            )

    def run(self) -> None:
        """Every operation, each after a word to the runner."""
        from tests.attacks.fuzz.operations import OPERATIONS
        from tests.attacks.fuzz.probes import PROBES
        from tests.attacks.fuzz.watch import Canary

        remove_all(self._work)
        os.makedirs(f"{self._work}/empty")
        os.chdir(f"{self._work}/empty")
        self._canary = Canary(self._places.outside)
        self._lay_out()
        self._asked, self._newest = False, None
        _say({"case": str(self._case)[:4000], "named": self._named})
        _limit()
        wanted = self._wanted([operation.name for operation in OPERATIONS])
        for number, operation in enumerate([*OPERATIONS, *PROBES.values()]):
            if number < self._request["skip"] or operation.name not in wanted:
                continue
            _say({"begin": operation.name, "number": number})
            root = self._ground.root
            outcome = self._perform(operation)
            _say({"outcome": outcome.to_json(), "roots": [root, self._ground.root]})
        _say({"done": True})

    def _wanted(self, names: list[str]) -> set[str]:
        """The operations of this case: those asked for, or some that the seed chooses."""
        if self._request["operations"]:
            return set(self._request["operations"])
        count = self._request["sample"]
        if count is None or count >= len(names):
            return set(names)
        # Whether the table can be read decides what may be asked of those that write.
        return {"files", *random.Random(f"operations {self._case.seed}").sample(names, count)}

    def _lay_out(self) -> None:
        self._ground.lay_out(self._case.tree)
        self._print: Fingerprint = self._ground.fingerprint()

    def _perform(self, operation: Any) -> Any:
        from tests.attacks.fuzz.operations import Bench
        from tests.attacks.fuzz.outcome import (
            Outcome,
            judge_error,
            judge_text,
            judge_touched,
            judge_warnings,
        )
        from tests.attacks.fuzz.verdicts import judge_answer, judge_change
        from tests.attacks.fuzz.watch import watched

        outcome = Outcome(operation.name)
        bench = Bench(
            self._ground.root, self._case, self._before(operation), options=self._ground.options
        )
        _reset_peak()
        memory = _status_kb("VmRSS")
        answer: Any = None
        failed = False
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with watched(self._ground.root, os.environ["TMPDIR"]) as touched:
                # Of the processor: by the clock others count too who use it. Who only waits is ended.
                started = time.process_time()
                try:
                    answer = operation.run(bench)
                    outcome.answer = "answer"
                except (Exception, SystemExit) as error:
                    failed = True
                    failure = error
                outcome.seconds = round(time.process_time() - started, 3)
        outcome.peak_mb = (_status_kb("VmHWM") - memory) // 1024
        if failed:
            judge_error(failure, outcome)
            failure.__traceback__ = None
        # A file of 2 GiB or more may take as much memory as the process has until it is refused.
        large = any(
            isinstance(node, File) and node.sparse_size for node in self._case.tree.values()
        )
        if outcome.peak_mb > MEMORY_MB and not (large and outcome.names_large_file):
            outcome.wrong.append(("memory", f"{outcome.peak_mb} MB"))
        judge_touched([*touched, *self._canary.found()], outcome)
        judge_text("output", bench.printed, outcome)
        judge_warnings(caught, outcome)
        judge_answer(self._case, operation, outcome, answer, failed=failed)
        now = self._ground.fingerprint()
        if now != self._print:
            judge_change(
                bench,
                operation,
                outcome,
                answer,
                failed=failed,
                gone=self._print.keys() - now.keys(),
            )
            self._lay_out()
        elif operation.writes and not failed:
            judge_change(bench, operation, outcome, answer, failed=failed, gone=set())
        if outcome.peak_mb > _TRIM_MB:
            gc.collect()
            _LIBC.malloc_trim(0)
        return outcome

    def _before(self, operation: Any) -> Any:
        """Version and live files; None where they can't be read, or asking for them doesn't end."""
        if not operation.writes or (self._request["skip"] and not self._request["files"]):
            return None
        if not self._asked:
            self._asked = True
            with warnings.catch_warnings(), suppress(Exception):
                warnings.simplefilter("ignore")
                from tests.attacks.fuzz.operations import Bench, newest_files

                self._newest = newest_files(
                    Bench(self._ground.root, self._case, options=self._ground.options).table()
                )
        return self._newest


def _limit() -> None:
    most = (_status_kb("VmSize") << 10) + ((MEMORY_MB + _SPARE_MB) << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _reset_peak() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def _status_kb(name: str) -> int:
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
    raise LookupError(name)


_LIBC = ctypes.CDLL(None)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
