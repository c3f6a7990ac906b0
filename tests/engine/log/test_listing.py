from __future__ import annotations

import pytest

from airflow_delta.engine.log.files import ClassicCheckpoint, MultipartCheckpoint, V2Checkpoint
from airflow_delta.engine.log.listing import list_log
from tests.engine.log.logs import (
    Counting,
    classic,
    commit,
    commits,
    compacted,
    crc,
    make_log,
    multipart,
    part,
    v2,
)


def test_every_kind_of_file_is_found_in_order():
    storage = make_log(
        [commit(11), commit(9), commit(10), crc(10), crc(9), compacted(9, 10), classic(10)]
    )
    listing = list_log(storage)
    assert [file.version for file in listing.commits] == [9, 10, 11]
    assert [file.version for file in listing.checksums] == [9, 10]
    assert [(file.start, file.end) for file in listing.compactions] == [(9, 10)]
    assert [file.version for file in listing.checkpoints] == [10]
    assert listing.latest == 11


def test_a_start_keeps_every_file_of_that_version():
    names = [commit(5), crc(5), classic(5), v2(5), compacted(5, 6)]
    listing = list_log(make_log([*names, *commits(3, 4), crc(4), classic(4)]), start=5)
    assert [file.version for file in listing.commits] == [5]
    assert [file.version for file in listing.checksums] == [5]
    assert len(listing.checkpoints) == 2
    assert len(listing.compactions) == 1


def test_an_end_keeps_every_file_of_that_version_and_reads_no_further():
    storage = Counting(make_log([*commits(0, 50), classic(5), crc(5)]))
    listing = list_log(storage, end=5)
    assert [file.version for file in listing.commits] == list(range(6))
    assert [file.version for file in listing.checkpoints] == [5]
    assert [file.version for file in listing.checksums] == [5]
    assert storage.listed <= 9


def test_names_after_the_digits_are_not_read():
    notes = [f"_note-{number:04d}" for number in range(100)]
    storage = Counting(make_log([*commits(0, 1), *notes, "_last_checkpoint"]))
    assert list_log(storage).latest == 1
    assert storage.listed <= 3


def test_names_before_the_digits_are_skipped():
    storage = make_log([".00000000000000000000.json.crc", "-x", *commits(0, 1)])
    assert list_log(storage).latest == 1


def test_incomplete_multipart_checkpoints_are_left_out():
    storage = make_log(
        [part(4, 1, 2), part(5, 1, 3), part(5, 3, 3), *multipart(6, 2), part(6, 1, 3)]
    )
    (checkpoint,) = list_log(storage).checkpoints
    assert isinstance(checkpoint, MultipartCheckpoint)
    assert [file.path for file in checkpoint.parts] == [
        f"_delta_log/{name}" for name in multipart(6, 2)
    ]


def test_two_complete_sets_of_one_version_are_both_there():
    storage = make_log([*multipart(6, 3), *multipart(6, 2)])
    assert [len(found.files) for found in list_log(storage).checkpoints] == [2, 3]


def test_all_checkpoints_of_a_version_are_there_the_best_last():
    storage = make_log([v2(6), classic(6), *multipart(6, 2), classic(7)])
    assert [type(found) for found in list_log(storage).checkpoints] == [
        ClassicCheckpoint,
        MultipartCheckpoint,
        V2Checkpoint,
        ClassicCheckpoint,
    ]


@pytest.mark.parametrize("name", [classic(1), v2(1), part(1, 1, 1), compacted(0, 1)])
def test_checkpoints_and_compactions_of_zero_bytes_are_left_out(name):
    listing = list_log(make_log([commit(0)], empty=[name]))
    assert listing.checkpoints == ()
    assert listing.compactions == ()


def test_one_empty_part_makes_a_multipart_checkpoint_incomplete():
    listing = list_log(make_log([part(1, 1, 2)], empty=[part(1, 2, 2)]))
    assert listing.checkpoints == ()


def test_a_commit_of_zero_bytes_takes_its_version():
    assert list_log(make_log([commit(0)], empty=[commit(1)])).latest == 1


def test_no_log_is_an_empty_listing():
    listing = list_log(make_log([]))
    assert listing.latest is None
    assert listing.commits == ()
