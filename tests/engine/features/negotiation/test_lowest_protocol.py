from __future__ import annotations

import pytest

from airflow_delta.engine.features.negotiation.lowest_protocol import (
    protocol_of_versions,
    protocol_with,
)
from airflow_delta.engine.model.actions import Protocol

UP_TO_2 = ("appendOnly", "invariants")
UP_TO_5 = (*UP_TO_2, "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping")


def listed(*writers: str, readers: tuple[str, ...] | None = None) -> Protocol:
    if readers is None:
        return Protocol(1, 7, None, frozenset(writers))
    return Protocol(3, 7, frozenset(readers), frozenset((*writers, *readers)))


@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        (None, None, Protocol(1, 1)),
        (None, 4, Protocol(1, 4)),
        (2, 5, Protocol(2, 5)),
        (None, 7, listed()),
        (2, 7, Protocol(2, 7, None, frozenset())),
        (3, None, listed(readers=())),
        (3, 7, listed(readers=())),
        (3, 5, listed(*UP_TO_5, readers=("columnMapping",))),
    ],
)
def test_versions_ask_for_what_they_imply_and_lists_for_nothing(
    reader: int | None, writer: int | None, expected: Protocol
) -> None:
    assert protocol_of_versions(reader, writer) == expected


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (Protocol(1, 2), Protocol(1, 4), Protocol(1, 4)),
        (Protocol(1, 6), Protocol(2, 5), Protocol(2, 6)),
        (Protocol(1, 2), listed(), listed(*UP_TO_2)),
        (Protocol(1, 2), listed(readers=()), listed(*UP_TO_2, readers=())),
        (
            listed("rowTracking"),
            Protocol(2, 5),
            Protocol(2, 7, None, frozenset({"rowTracking", *UP_TO_5})),
        ),
        (listed("x", readers=("y",)), listed(readers=("z",)), listed("x", readers=("y", "z"))),
    ],
)
def test_what_falls_behind_neither_of_two(one: Protocol, other: Protocol, both: Protocol) -> None:
    assert protocol_with(frozenset(), one, other) == both
    assert protocol_with(frozenset(), other, one) == both
