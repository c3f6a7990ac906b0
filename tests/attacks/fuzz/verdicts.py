"""Whether an answer is right, and whether what an operation changed was its to change."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from airflow_delta.engine.errors import DeltaError
from tests.attacks.fuzz.case import Case
from tests.attacks.fuzz.mutations.nested import NESTED
from tests.attacks.fuzz.operations import Bench, Operation, newest_files
from tests.attacks.fuzz.outcome import Outcome
from tests.attacks.fuzz.world import Trust

__all__ = ["judge_answer", "judge_change"]

_MUST_ANSWER = ("exists", "latest_version", "files")


def judge_answer(
    case: Case, operation: Operation, outcome: Outcome, answer: Any, *, failed: bool
) -> None:
    """Compare with the oracle, where it knows something."""
    if case.trust is Trust.OPEN or operation.name not in _MUST_ANSWER:
        return
    if failed:
        if case.trust is Trust.EXACT:
            outcome.wrong.append(("no answer", f"{outcome.answer}: {outcome.message[:200]}"))
        return
    expected: Any = {"exists": True, "latest_version": case.version}.get(operation.name)
    if operation.name == "files":
        expected = (case.version, case.keys)
    if answer != expected:
        outcome.wrong.append(("wrong answer", f"{operation.name}: {_difference(answer, expected)}"))


def judge_change(
    bench: Bench,
    operation: Operation,
    outcome: Outcome,
    answer: Any,
    *,
    failed: bool,
    gone: Iterable[str],
) -> None:
    """Look at what an operation that writes has made of the table."""
    if not operation.writes:
        outcome.wrong.append(("changed", "an operation that doesn't write has changed the table"))
        return
    if bench.case.trust is Trust.OPEN and not bench.case.one_truth:
        bench = replace(bench, before=None)
    _judge_deletions(bench, operation, outcome, gone)
    if bench.before is None:
        return
    expected = operation.expect(bench, answer) if operation.expect else bench.before[1]
    if expected is None and not failed:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            version, keys = newest_files(bench.table())
    except DeltaError as error:
        said = f"{type(error).__name__} {error}"[:300]
        outcome.wrong.append(("broke the table", f"it could be read before; now {said}"))
        return
    except Exception as error:
        outcome.wrong.append(("broke the table", f"{type(error).__name__}"))
        return
    # What failed may have been done: a commit, and what comes after it has failed.
    allowed = (bench.before[1], expected) if failed else (expected,)
    if keys not in allowed and not (outcome.warned and bench.case.trust is Trust.OPEN):
        outcome.wrong.append(
            ("wrong files", _difference((version, keys), (version, expected or bench.before[1])))
        )
    if version < bench.before[0]:
        outcome.wrong.append(("lost a version", f"{bench.before[0]} -> {version}"))


def _judge_deletions(
    bench: Bench, operation: Operation, outcome: Outcome, gone: Iterable[str]
) -> None:
    live = {path for path, _ in bench.before[1]} if bench.before else set()
    for full in gone:
        path = full[len(bench.root) + 1 :]
        name = path.rpartition("/")[2]
        if name.startswith(NESTED):
            outcome.wrong.append(("deleted another's file", path[:200]))
        # The log may name a file of its own as a data file; the cleanup of the log decides about that one.
        elif path in live and not path.startswith("_delta_log/"):
            outcome.wrong.append(("deleted a live file", path[:200]))
        elif not (operation.deletes(path) or _is_temporary(path) or _is_stale(path, bench)):
            outcome.wrong.append(("deleted", path[:200]))


def _is_stale(path: str, bench: Bench) -> bool:
    """Whether a file was a version checksum of a version that wasn't there yet; its commit replaces it.

    Which versions were there isn't known of every case.
    """
    name = path.removeprefix("_delta_log/").removesuffix(".crc")
    is_checksum = path == f"_delta_log/{name}.crc" and name.isdecimal()
    return is_checksum and (bench.before is None or int(name) > bench.before[0])


def _is_temporary(path: str) -> bool:
    return path.startswith("_delta_log/.") or path.endswith(".tmp")


def _difference(found: Any, expected: Any) -> str:
    if not isinstance(found, tuple) or not isinstance(expected, tuple):
        return f"{found!r} for {expected!r}"[:300]
    more, less = sorted(found[1] - expected[1], key=str), sorted(expected[1] - found[1], key=str)
    return f"version {found[0]} for {expected[0]}, too many {more[:3]}, missing {less[:3]}"[:600]
