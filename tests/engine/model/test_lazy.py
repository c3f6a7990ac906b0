from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Barrier

import pytest

from airflow_delta.engine.model.lazy import lazy_property


@dataclass(frozen=True)
class Answer:
    """Computes a list, and notes that it did."""

    number: int = 0
    computed: list[int] = field(default_factory=list)

    @lazy_property
    def numbers(self) -> list[int]:
        """Some numbers."""
        self.computed.append(self.number)
        return [self.number]

    @lazy_property
    def broken(self) -> int:
        self.computed.append(self.number)
        raise ValueError("no answer")


def test_it_is_computed_once_and_kept() -> None:
    answer = Answer(7)
    assert answer.computed == []
    assert answer.numbers is answer.numbers
    assert (answer.numbers, answer.computed) == ([7], [7])


def test_each_instance_has_its_own() -> None:
    assert (Answer(1).numbers, Answer(2).numbers) == ([1], [2])


def test_an_error_is_not_kept() -> None:
    answer = Answer()
    for _ in range(2):
        with pytest.raises(ValueError, match="no answer"):
            _ = answer.broken
    assert answer.computed == [0, 0]
    assert pickle.loads(pickle.dumps(answer)) == answer


def test_an_instance_can_be_copied_and_pickled_with_what_it_knows() -> None:
    answer = Answer(7)
    _ = answer.numbers
    for same in (copy.copy(answer), pickle.loads(pickle.dumps(answer))):
        assert (same.numbers, same.computed) == ([7], [7])


def test_the_class_has_its_docstring() -> None:
    assert Answer.numbers.__doc__ == "Some numbers."


def test_instances_are_computed_at_the_same_time() -> None:
    both = Barrier(2, timeout=5)

    class Meeting:
        @lazy_property
        def place(self) -> int:
            """Who is first."""
            return both.wait()

    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(lambda meeting: meeting.place, [Meeting(), Meeting()])) == [0, 1]


def test_threads_that_ask_one_instance_wait_for_the_first() -> None:
    both, computed = Barrier(8, timeout=5), []

    class Slow:
        @lazy_property
        def value(self) -> object:
            computed.append(1)
            return object()

    slow = Slow()

    def ask(_: int) -> object:
        both.wait()
        return slow.value

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(ask, range(8)))) == 1
    assert computed == [1]


def test_a_value_may_be_used_while_another_is_computed() -> None:
    class Chain:
        @lazy_property
        def first(self) -> int:
            return self.second + 1

        @lazy_property
        def second(self) -> int:
            return 1

    assert Chain().first == 2
