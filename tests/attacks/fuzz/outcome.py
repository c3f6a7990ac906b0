"""What an operation did, and what of it is wrong."""

from __future__ import annotations

import pickle
import re
import traceback
import warnings
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_delta.engine.errors import DeltaError, DeltaWarning
from tests.attacks.fuzz.listener import SECRETS
from tests.attacks.fuzz.tables import SECRET

__all__ = ["Outcome", "judge_error", "judge_text", "judge_touched", "judge_warnings"]

_LONGEST_MESSAGE = 20_000
_STEERING = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]"
)
"""Control characters but for the ends of lines and tabs, and what turns the direction of text around."""
_PLACE = re.compile(r'File ".*?/(airflow_delta/[^"]*)", line (\d+)(?:,)? in (\w+)')


@dataclass
class Outcome:
    """What one operation did.

    Attributes:
        operation: its name.
        answer: in words, or the error's type.
        seconds: how long it took of the processor's time.
        peak_mb: how much memory more it had at its peak.
        wrong: what is wrong with it, as pairs of a kind and words.
        message: the error's words.
        warned: whether it said that something is damaged; it may then write better than it read.
        names_large_file: whether its error says that a file is larger than the memory.
    """

    operation: str
    answer: str = ""
    seconds: float = 0.0
    peak_mb: int = 0
    wrong: list[tuple[str, str]] = field(default_factory=list)
    message: str = ""
    warned: bool = False
    names_large_file: bool = False

    def to_json(self) -> dict[str, Any]:
        """For the pipe to the runner."""
        return asdict(self)


def judge_error(error: BaseException, outcome: Outcome) -> None:
    """Note an error, and what is wrong with it."""
    outcome.answer = type(error).__name__
    outcome.message = str(error)[:2000].encode("utf-8", "backslashreplace").decode()
    if not isinstance(error, DeltaError):
        outcome.wrong.append(
            ("untyped error", f"{outcome.answer}: {outcome.message[:200]} at {where(error)}")
        )
        return
    judge_text("error", str(error), outcome)
    causes = list(_causes(error))
    outcome.names_large_file = "doesn't fit into memory" in str(error)
    if not outcome.names_large_file and any(isinstance(cause, MemoryError) for cause in causes):
        outcome.wrong.append(
            ("memory", f"a MemoryError behind {outcome.answer} at {where(causes[-1])}")
        )
    try:
        again = pickle.loads(pickle.dumps(error))
        if str(again) != str(error):
            outcome.wrong.append(
                ("pickling", f"{outcome.answer} says something else after pickling")
            )
    except Exception as failure:
        outcome.wrong.append(
            ("pickling", f"{outcome.answer}: {type(failure).__name__} {failure}"[:200])
        )


def judge_warnings(found: Iterable[warnings.WarningMessage], outcome: Outcome) -> None:
    """Warnings are read by people too."""
    for warning in found:
        if issubclass(warning.category, DeltaWarning):
            outcome.warned = True
            judge_text("warning", str(warning.message), outcome)


def judge_touched(touched: Iterable[str], outcome: Outcome) -> None:
    """What was touched outside the root, one entry for each way of touching."""
    by_way: dict[str, list[str]] = defaultdict(list)
    for what in touched:
        way, _, where_ = what.partition(" /" if what.startswith("canary") else " ")
        by_way[way].append(where_)
    for way, places in by_way.items():
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        outcome.wrong.append(("left the root", f"{way}: {places[0][:200]}{more}"))


def judge_text(kind: str, text: str, outcome: Outcome) -> None:
    """What people read must not steer their terminal, nor quote what isn't the table's."""
    bad = sorted({f"U+{ord(found):04X}" for found in _STEERING.findall(text)})
    if bad:
        outcome.wrong.append(
            ("control characters", f"in {kind} {outcome.answer}: {', '.join(bad)[:80]}")
        )
    if SECRET in text or any(
        secret in text for name, secret in SECRETS.items() if name != "AZURE_STORAGE_ACCOUNT_NAME"
    ):
        outcome.wrong.append(("secret", f"in {kind} {outcome.answer}: {text[:200]!r}"))
    if kind != "output" and len(text) > _LONGEST_MESSAGE:
        outcome.wrong.append(("long message", f"{kind} {outcome.answer}: {len(text)} characters"))


def _causes(error: BaseException) -> Iterable[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def where(error: BaseException) -> str:
    """The innermost lines of the package in a traceback."""
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if "/airflow_delta/" in f.filename
    ]
    short = [
        f"{f.filename.partition('/airflow_delta/')[2]}:{f.lineno} {f.name}" for f in frames[-3:]
    ]
    return " < ".join(reversed(short)) or "outside the package"


def where_in_dump(dump: str) -> str:
    """The innermost lines of the package in what faulthandler has written."""
    return (
        " < ".join(f"{path[14:]}:{line} {name}" for path, line, name in _PLACE.findall(dump)[:3])
        or "?"
    )
