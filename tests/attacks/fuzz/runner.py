"""Starts a worker, has it run cases, kills what takes too long, and collects what was found."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.attacks.fuzz.listener import Listener, environment
from tests.attacks.fuzz.s3_server import S3Server

__all__ = ["SAMPLE", "SECONDS", "Finding", "Report", "Runner", "make_templates", "seeds_of"]

SECONDS = 10.0
"""How long an operation may take, of the processor's time."""

_PATIENCE = 3
"""How many times as long it may take by the clock before the runner looks whether it waits or works."""

SAMPLE = 12
"""How many operations each case is asked for: the seventy that there are take two seconds."""

_REPOSITORY = Path(__file__).resolve().parents[3]
_PATH_LENGTH = 48
_DUMP_SECONDS = 0.5
_LOOK_SECONDS = 2
# Beyond this a case tells nothing new.
_MOST_KILLS = 2
_PROGRESS = 100


@dataclass(frozen=True)
class Finding:
    """Something that is wrong.

    Attributes:
        seed: of the case.
        operation: what was asked.
        kind: what is wrong, as a word or two.
        said: what exactly.
        case: what was done to the table.
    """

    seed: int
    operation: str
    kind: str
    said: str
    case: str

    def __str__(self) -> str:
        return (
            f"{self.kind} in {self.operation!r}: {self.said}\n    {self.case}\n"
            f"    again: python -m tests.attacks.fuzz --seed {self.seed} --cases 1 --verbose"
        )


@dataclass
class Report:
    """What a run has found.

    Attributes:
        cases: how many there were.
        operations: how many operations ran.
        answers: how often each answer came, by operation and answer or error.
        findings: what is wrong.
        slowest: the longest operation, in seconds, and of which seed.
        largest: the one with the highest peak of memory, in MB, likewise.
        mutations: how often each was applied.
    """

    cases: int = 0
    operations: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    slowest: tuple[float, int, str] = (0.0, 0, "")
    largest: tuple[int, int, str] = (0, 0, "")
    mutations: Counter[str] = field(default_factory=Counter)

    def add(self, other: Report) -> None:
        """Add what another run has found."""
        self.cases += other.cases
        self.operations += other.operations
        self.answers += other.answers
        self.findings += other.findings
        self.mutations += other.mutations
        self.slowest = max(self.slowest, other.slowest)
        self.largest = max(self.largest, other.largest)


class Runner:
    """A worker and what it needs: a directory, and a host that nobody may speak to.

    Args:
        seconds: how long an operation may take.
        keep: leave the directory, with the last case, when done.
        chosen: which forms and mutations, by those names; all unless given.
        operations: which operations, by their names; those of a `run` come first.
        sample: how many operations of each case, chosen by its seed, where none are named; None for all.
        verbose: print each outcome.
        progress: print now and then how far it is.
        templates: what `make_templates` has made.
        store: lay tables out in a bucket.
    """

    def __init__(
        self,
        *,
        seconds: float = SECONDS,
        keep: bool = False,
        chosen: Mapping[str, Iterable[str]] | None = None,
        operations: Iterable[str] = (),
        sample: int | None = SAMPLE,
        verbose: bool = False,
        progress: bool = False,
        templates: Path | None = None,
        store: bool = False,
    ) -> None:
        self._seconds, self._keep, self._verbose = seconds, keep, verbose
        self._progress = progress
        self.choose(chosen, sample=sample)
        self._wanted = list(operations)
        self._listener = Listener()
        self._server = S3Server() if store else None
        self.directory = _directory()
        if templates is None:
            make_templates(self.directory)
        else:
            shutil.copy(templates, self.directory / "templates")
            (self.directory / "tmp").mkdir()
        self._asked, self.seconds = self._wanted, seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""

    def __enter__(self) -> Runner:  # noqa: PYI034 - Self is of Python 3.11
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()
        self._listener.close()
        if self._server is not None:
            self._server.close()
        if not self._keep:
            shutil.rmtree(self.directory, ignore_errors=True)

    def choose(
        self, chosen: Mapping[str, Iterable[str]] | None = None, *, sample: int | None
    ) -> Runner:
        """Take other forms, mutations and operations from now on, by the same worker.

        Args:
            chosen: as for the class.
            sample: as for the class.

        Returns:
            This runner.
        """
        self._chosen = {name: list(names) for name, names in (chosen or {}).items() if names}
        self._sample = sample
        return self

    def run(
        self, seeds: Iterable[int], *, operations: Iterable[str] = (), seconds: float | None = None
    ) -> Report:
        """Run cases, one after the other; with other operations or less time than the others have."""
        report = Report()
        self._asked = list(operations) or self._wanted
        self.seconds = seconds or self._seconds
        for seed in seeds:
            _Case(self, seed, report).run()
            if self._progress and not report.cases % _PROGRESS:
                said = f"{report.cases} cases, {len(report.findings)} findings"
                print(said, file=sys.stderr, flush=True)
        return report

    def request(self, **fields: Any) -> None:
        """Send a request to the worker, which is started unless it runs."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        fields |= {"chosen": self._chosen, "operations": self._asked, "sample": self._sample}
        server = self._server
        fields["store"] = server and {"uri": server.uri, "options": server.options}
        self._process.stdin.write(json.dumps(fields).encode() + b"\n")
        self._process.stdin.flush()

    def message(self, seconds: float) -> dict[str, Any] | None:
        """The next message of the worker; None where none comes in time."""
        assert self._process is not None
        assert self._process.stdout is not None
        end = time.monotonic() + seconds
        descriptor = self._process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                left = end - time.monotonic()
                if left <= 0 or not selector.select(left):
                    return None
                data = os.read(descriptor, 1 << 20)
                if not data:
                    status = self._process.wait()
                    raise RuntimeError(f"the worker has ended with {status}: {self.stderr()}")
                self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def connections(self, roots: Iterable[str] = (), named: Collection[str] = ()) -> list[str]:
        """Who has spoken to the listener since the last call, or asked the store beyond the roots.

        Args:
            roots: where tables are.
            named: the keys of the objects that the log names.
        """
        outside = self._server.outside(roots, named) if self._server is not None else []
        return [*self._listener.found(), *outside]

    def stderr(self) -> str:
        """What the last case has written to standard error."""
        with suppress(FileNotFoundError):
            return (self.directory / "stderr").read_text(encoding="utf-8", errors="replace")
        return ""

    @property
    def verbose(self) -> bool:
        """Whether each outcome is printed."""
        return self._verbose

    @property
    def progress(self) -> bool:
        """Whether findings are printed as they come."""
        return self._progress

    def _start(self) -> None:
        self._buffer = b""
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.attacks.fuzz.worker",
                str(self.directory),
                str(self._listener.port),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_REPOSITORY,
            env=_worker_environment(self.directory, self._listener.port, self._server),
        )
        ready = self.message(120)
        assert ready == {"ready": True}, ready

    def _stop(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            with suppress(OSError):
                self._process.stdin.close()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process.stdout.close()


class _Case:
    """One case, asked for again after each operation that had to be killed."""

    def __init__(self, runner: Runner, seed: int, report: Report) -> None:
        self._runner, self._seed, self._report = runner, seed, report
        self._case, self._pid = f"seed {seed}", 0
        self._named: list[str] = []
        self._files_known = False

    def run(self) -> None:
        """Until all operations were tried."""
        from tests.attacks.fuzz.outcome import where_in_dump

        skip = kills = 0
        self._report.cases += 1
        self._runner.connections()
        while True:
            self._runner.request(seed=self._seed, skip=skip, files=self._files_known)
            stopped = self._follow(first=skip == 0)
            if stopped is None:
                return
            name, number, why = stopped
            place = where_in_dump(self._runner.stderr())
            self._find(name, why, f"at {place}")
            if self._runner.verbose:
                print(f"    {name}: {why} at {place}\n{self._runner.stderr()[-3000:]}")
            skip, kills = number + 1, kills + 1
            if kills >= _MOST_KILLS or number < 0:
                return

    def _follow(self, *, first: bool) -> tuple[str, int, str] | None:
        """Follow a child to its end; the operation that it didn't come back from, and why."""
        name, number, done = "building the case", -1, False
        while True:
            patience = _PATIENCE * self._runner.seconds + 10 * (number < 0)
            used = _processor_seconds(self._pid)
            message = self._runner.message(patience)
            # On a machine that others use as well, it may have had little of the processor.
            while message is None and self._works(since=used, seconds=patience / _PATIENCE):
                message = self._runner.message(patience)
            match message:
                case None:
                    self._kill()
                    while (message := self._runner.message(30)) and "ended" not in message:
                        pass
                    return name, number, "no end"
                case {"pid": pid}:
                    self._pid = pid
                case {"case": case, "named": named}:
                    self._case, self._named = case, named
                    if first:
                        self._count_mutations(case)
                        self._say(case)
                case {"begin": operation, "number": place}:
                    name, number = operation, place
                case {"outcome": outcome, "roots": roots}:
                    self._note(outcome, roots)
                case {"done": True}:
                    done = True
                case {"ended": status}:
                    if done and status == 0:
                        return None
                    return name, number, f"crash {status:#x}"

    def _works(self, *, since: float, seconds: float) -> bool:
        """Whether the child is busy, and hasn't had all the processor's time of an operation."""
        before = _processor_seconds(self._pid)
        time.sleep(_LOOK_SECONDS)
        now = _processor_seconds(self._pid)
        return before < now < since + seconds

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGUSR1)
            time.sleep(_DUMP_SECONDS)
            os.kill(self._pid, signal.SIGKILL)

    def _note(self, outcome: dict[str, Any], roots: list[str]) -> None:
        name, seconds, peak = outcome["operation"], outcome["seconds"], outcome["peak_mb"]
        report = self._report
        report.operations += 1
        report.answers[f"{name}: {outcome['answer']}"] += 1
        report.slowest = max(report.slowest, (seconds, self._seed, name))
        report.largest = max(report.largest, (peak, self._seed, name))
        if name == "files":
            self._files_known = True
        for kind, said in outcome["wrong"]:
            self._find(name, kind, said)
        if seconds > self._runner.seconds:
            self._find(name, "slow", f"{outcome['answer']} after {seconds:.0f} s")
        for connection in self._runner.connections(roots, self._named):
            self._find(name, "connection", connection)
        if self._runner.verbose:
            wrong = "".join(f"\n        WRONG {kind}: {said}" for kind, said in outcome["wrong"])
            said = (
                f"{outcome['answer']} {outcome['message'][:200]!r}"
                if outcome["message"]
                else outcome["answer"]
            )
            print(f"    {seconds:6.3f} s {peak:4} MB  {name}: {said}{wrong}")

    def _find(self, operation: str, kind: str, said: str) -> None:
        finding = Finding(self._seed, operation, kind, said, self._case)
        self._report.findings.append(finding)
        if self._runner.progress:
            print(finding, flush=True)

    def _count_mutations(self, case: str) -> None:
        from tests.attacks.fuzz.world import MUTATIONS

        for name in MUTATIONS:
            if f"{name} (" in case:
                self._report.mutations[name] += 1

    def _say(self, case: str) -> None:
        if self._runner.verbose:
            print(case)


def _processor_seconds(pid: int) -> float:
    """How much of the processor's time a process has had; 0 where there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def make_templates(directory: Path) -> Path:
    """Make what all cases share; see `templates`."""
    (directory / "tmp").mkdir()
    command = [sys.executable, "-m", "tests.attacks.fuzz.templates", str(directory)]
    subprocess.run(command, cwd=_REPOSITORY, env=_worker_environment(directory, 1), check=True)
    return directory / "templates"


def _directory() -> Path:
    """A directory in memory where there is such a thing; its path is always of one length."""
    memory = Path("/dev/shm")
    base = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
    prefix = "delta-fuzz-"
    made = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
    return made.rename(made.with_name(made.name.ljust(_PATH_LENGTH - len(str(base)) - 1, "x")))


def _worker_environment(
    directory: Path, port: int, server: S3Server | None = None
) -> dict[str, str]:
    kept = {
        name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TZ") if name in os.environ
    }
    store: dict[str, str] = {}
    if server is not None:
        # The store alone may be spoken to; it is where the user says that it is.
        store = {"AWS_ENDPOINT_URL": server.options["aws_endpoint_url"], "NO_PROXY": "127.0.0.1"}
    return {
        **kept,
        **environment(port),
        **store,
        "PYTHONPATH": str(_REPOSITORY),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": "/nonexistent",
        "TMPDIR": f"{directory}/tmp",
        # So that the limit of address space is about memory that is used.
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "MALLOC_ARENA_MAX": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "2",
    }


def seeds_of(first: int, count: int, part: int = 0, parts: int = 1) -> Iterator[int]:
    """A part of the seeds of a run."""
    return iter(range(first + part, first + count, parts))
