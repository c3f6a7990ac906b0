from __future__ import annotations

import pyarrow as pa

from airflow_delta.spark.optimizer.grouping import group_bins, join_bins

VECTOR = pa.struct([("cardinality", pa.int64())])


def a_bin(size: int, part: str = "a", *, files: int = 2) -> pa.Table:
    return pa.table(
        {
            "size": [size // files] * files,
            "partitionValues": pa.array([[("p", part)]] * files, pa.map_(pa.string(), pa.string())),
            "deletionVector": pa.nulls(files, VECTOR),
            "stats": pa.nulls(files, pa.string()),
        }
    )


def sizes(bins: list[pa.Table]) -> list[int]:
    return [sum(each["size"].to_pylist()) for each in bins]


def test_bins_of_a_partition_become_one_file_if_their_rows_take_less_space() -> None:
    bins = [a_bin(100), a_bin(100), a_bin(60), a_bin(100, "b"), a_bin(100, "b")]
    for share, expected in [
        (1.0, [100, 100, 60, 100, 100]),
        (0.5, [200, 60, 200]),
        (0.3, [260, 200]),
    ]:
        found = join_bins(bins, share=share, most=100, alone=lambda _: False)
        assert sizes(found) == expected
    kept = join_bins(bins, share=0.1, most=100, alone=lambda each: each is bins[1])
    assert sizes(kept) == [100, 100, 60, 200]


def test_small_bins_share_a_job() -> None:
    bins = [a_bin(40), a_bin(40, "b"), a_bin(40, "c"), a_bin(300, "d"), a_bin(10, "e")]
    found = group_bins(bins, most=100, alone=lambda _: False)
    assert [sizes(each) for each in found] == [[40, 40], [40], [300], [10]]
    found = group_bins(bins, most=1000, alone=lambda each: each is bins[1])
    assert [sizes(each) for each in found] == [[40], [40], [40, 300, 10]]
