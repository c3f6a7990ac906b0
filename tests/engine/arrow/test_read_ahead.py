from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from airflow_delta.engine.arrow.read_ahead import read_ahead


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 17])
def test_results_come_in_the_order_of_the_pieces(threads: int, count: int) -> None:
    pieces = [partial(int, number) for number in range(count)]
    assert list(read_ahead(pieces, threads=threads)) == list(range(count))


def test_order_holds_where_a_later_piece_is_done_first() -> None:
    second_is_done = threading.Event()

    def first() -> str:
        assert second_is_done.wait(timeout=10)
        return "first"

    def second() -> str:
        second_is_done.set()
        return "second"

    assert list(read_ahead([first, second], threads=2)) == ["first", "second"]


def test_no_more_pieces_are_drawn_than_threads_can_work_on() -> None:
    drawn = []

    def pieces() -> Iterator[Callable[[], int]]:
        for number in range(100):
            drawn.append(number)
            yield partial(int, number)

    results = read_ahead(pieces(), threads=3)
    next(results)
    assert len(drawn) == 4
    results.close()
    assert len(drawn) == 4


def test_an_error_is_raised_in_its_turn() -> None:
    def fail() -> int:
        raise KeyError("third")

    results = read_ahead([partial(int, 1), partial(int, 2), fail, partial(int, 4)], threads=2)
    assert next(results) == 1
    assert next(results) == 2
    with pytest.raises(KeyError, match="third"):
        next(results)


def test_a_single_piece_runs_in_the_calling_thread() -> None:
    assert list(read_ahead([threading.current_thread], threads=4)) == [threading.current_thread()]
