"""`map_ordered`: order, look-ahead, and errors in their turn."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from threading import Barrier, Event, current_thread, main_thread

import pytest

from airflow_delta.engine.arrow.parallel import map_ordered


def test_results_come_in_the_order_of_the_items() -> None:
    second_done = Event()

    def work(item: int) -> int:
        if item == 0:
            second_done.wait(5)
        if item == 1:
            second_done.set()
        return item * 10

    assert list(map_ordered(work, range(5), workers=2)) == [0, 10, 20, 30, 40]
    assert second_done.is_set()


def test_items_are_worked_on_at_the_same_time() -> None:
    together = Barrier(3, timeout=5)
    assert len(list(map_ordered(lambda _: together.wait(), range(3), workers=3))) == 3


@pytest.mark.parametrize(("items", "workers"), [(range(1), 4), (range(3), 1), (range(0), 4)])
def test_no_thread_where_none_helps(items: range, workers: int) -> None:
    threads = list(map_ordered(lambda _: current_thread(), items, workers=workers))
    assert threads == [main_thread()] * len(items)


@pytest.mark.parametrize(("ahead", "most"), [(None, 2 * 2), (3, 3)])
def test_items_are_drawn_a_bounded_way_ahead(ahead: int | None, most: int) -> None:
    drawn = []

    def items() -> Iterator[int]:
        for item in range(1000):
            drawn.append(item)
            yield item

    results = map_ordered(lambda item: item, items(), workers=2, ahead=ahead)
    assert [next(results) for _ in range(10)] == list(range(10))
    assert len(drawn) <= 10 + most


class Large:
    """What an item may be; unlike numbers it can be seen to be forgotten."""


@pytest.mark.parametrize("workers", [1, 2])
def test_items_that_are_done_are_forgotten_before_more_are_drawn(workers: int) -> None:
    forgotten = []

    def items() -> Iterator[Large]:
        gone: list[Event] = []
        for _ in range(5):
            item = Large()
            gone.append(Event())
            weakref.finalize(item, gone[-1].set)
            yield item
            del item
            if len(gone) >= 2:  # two are drawn to see whether threads are worth it
                forgotten.append(all(event.wait(5) for event in gone))

    assert len(list(map_ordered(id, items(), workers=workers))) == 5
    assert forgotten == [True] * 4


def test_an_error_is_raised_in_its_turn() -> None:
    def work(item: int) -> int:
        if item >= 3:
            raise ValueError(f"item {item}")
        return item

    results = map_ordered(work, range(1000), workers=2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="item 3"):
        next(results)
