"""Which tests one process of pytest-xdist runs after the other, and which of them begin.

By ``--dist loadfile`` a file's tests stay together, so that its fixtures are made once. Here the files
that ask for Delta Spark stay together as well, and so do the others that ask for a Spark session, and those
that ask for a cluster: until a JVM has compiled itself it costs more than most of these tests, and so there
is one of each, not one in each process.

Where deep tests are run, those of a file are given out one by one: there are few, and each takes long.

Those of a JVM begin, and what the engine's own tests, many and short, fill the gaps with comes last: who is
left with a long file at the end lets all others wait. pytest-xdist would go by the number of tests.

(Its ``--dist loadgroup`` is not for this: pytest 9.2 doesn't let it write the groups into the names.)
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

__all__ = ["Distribution", "place"]

_ROOT = Path(__file__).resolve().parents[1]
_JVMS = {
    "Delta Spark": "delta_spark: DeltaSpark",
    "Spark": "spark: SparkSession",
    "cluster": "cluster: Cluster",
}
"""What the files of these tests ask for, in the order in which they are to begin."""


class Distribution(LoadScopeScheduling):
    """Gives out the files in the order in which they were collected, those of a JVM all at once."""

    def __init__(self, config: pytest.Config, log: object = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::")[0]
        group = _group(file)
        return nodeid if group == file and self.config.option.markexpr == "deep" else group


def place(nodeid: str) -> int:
    """A sort key: what has the lowest is to begin."""
    group = _group(nodeid.split("::")[0])
    if group in _JVMS:
        return [*_JVMS].index(group)
    return len(_JVMS) + group.startswith("tests/engine/")


@cache
def _group(file: str) -> str:
    asked = (group for group, fixture in _JVMS.items() if fixture in _text(file))
    return next(asked, file)


@cache
def _text(file: str) -> str:
    # The process that gives out the tests doesn't collect them, so it can't ask for their marks.
    return (_ROOT / file).read_text(encoding="utf-8")
