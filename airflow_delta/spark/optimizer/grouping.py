"""Decide which bins become one file, and which of these are written by one job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from airflow_delta.engine.maintenance.optimize.source_files import live_bytes

__all__ = ["are_of_one_partition", "group_bins", "join_bins"]

IsAlone = Callable[[pa.Table], bool]
"""Whether a bin becomes a file of its own, written by a job of its own."""


def are_of_one_partition(one: pa.Table, other: pa.Table) -> bool:
    """Whether two bins have files of the same partition, by the texts in the log."""
    first, second = (each["partitionValues"][0].as_py() for each in (one, other))
    return bool(first == second)


def join_bins(
    bins: Sequence[pa.Table], *, share: float, most: int, alone: IsAlone
) -> list[pa.Table]:
    """Join the bins of a partition whose rows fit into one file.

    Args:
        bins: the bins, those of a partition one after the other.
        share: the part of their bytes that rows take in a new file.
        most: the most bytes of a file of several bins.
        alone: which bins aren't joined.
    """
    found: list[list[pa.Table]] = []
    size = 0.0
    for each in bins:
        own = live_bytes(each) * share
        is_next = bool(found) and are_of_one_partition(found[-1][-1], each)
        if is_next and size + own <= most and not (alone(each) or alone(found[-1][-1])):
            found[-1].append(each)
            size += own
        else:
            found.append([each])
            size = own
    return [pa.concat_tables(each) for each in found]


def group_bins(bins: Sequence[pa.Table], *, most: int, alone: IsAlone) -> Iterator[list[pa.Table]]:
    """Group bins that one job writes.

    Args:
        bins: the bins.
        most: the most bytes of a group of several bins.
        alone: which bins are groups of their own.
    """
    group: list[pa.Table] = []
    size = 0
    for each in bins:
        own = live_bytes(each)
        if group and (size + own > most or alone(each) or alone(group[-1])):
            yield group
            group, size = [], 0
        group.append(each)
        size += own
    if group:
        yield group
