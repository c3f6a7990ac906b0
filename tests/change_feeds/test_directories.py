from __future__ import annotations

import uuid
from pathlib import Path

import boto3

from airflow_delta.change_feeds.directories import (
    MARKER,
    RangeFiles,
    files_read_in,
    incomplete_ranges,
    overlapping,
    range_directories,
    range_directory,
)
from airflow_delta.change_feeds.progress import directory_progress
from airflow_delta.change_feeds.request import FeedRequest
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.location import open_storage
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.object_stores import new_place

REQUEST = FeedRequest("/t", 3, 7, "/c", "parquet")


def test_objects_that_stand_for_directories_tell_nothing(tmp_path: Path) -> None:
    """As the consoles of object stores and Hadoop make them, for a target, a range or a write."""
    uri, options = new_place("s3", tmp_path)
    client = boto3.client(
        "s3",
        endpoint_url=options["aws_endpoint_url"],
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        region_name=options["aws_region"],
    )
    directory, dead = range_directory(0, 2), range_directory(3, 4)
    objects = {
        "": b"",
        f"{directory}/": b"",
        f"{directory}/part-0.parquet": b"rows",
        f"{directory}/{MARKER}": b'{"table_id": "ours", "files": {"part-0.parquet": 4}}',
        f"{directory}_$folder$": b"",
        f"{dead}/": b"",
        "_unfinished-1/": b"",
    }
    for name, body in objects.items():
        client.put_object(Bucket=uri.removeprefix("s3://"), Key=f"changes/{name}", Body=body)
    storage = open_storage(f"{uri}/changes", options)
    assert directory_progress(REQUEST, storage).ranges == ((0, 2),)
    assert files_read_in(storage, directory) == {"part-0.parquet": 4}
    assert files_read_in(storage, dead) == {}


def stored(*names: str) -> Storage:
    storage = MemoryStorage(f"memory://{uuid.uuid4()}/changes")
    for name in names:
        storage.create(name, b"rows")
    return storage


def test_only_unmarked_ranges_make_room_for_their_versions() -> None:
    dead = [(0, 2), (0, 3), (7, 9), (8, 9)]
    paths = [f"{range_directory(*versions)}/part-0.parquet" for versions in [*dead, (4, 5)]]
    found = range_directories(REQUEST, stored(*paths, f"{range_directory(4, 5)}/{MARKER}"))
    assert sorted(incomplete_ranges(REQUEST, found)) == [
        range_directory(0, 3),
        range_directory(7, 9),
    ]


def test_a_range_overlaps_with_all_but_itself() -> None:
    ranges = {
        range_directory(*versions): RangeFiles(*versions, complete=True, sizes={})
        for versions in ((0, 2), (0, 3), (3, 7), (4, 5), (8, 9))
    }
    ranges[range_directory(5, 6)] = RangeFiles(5, 6, complete=False, sizes={})
    assert overlapping(REQUEST, ranges) == [range_directory(0, 3), range_directory(4, 5)]


def test_what_a_rename_puts_into_a_range_for_a_moment_is_no_part_of_it() -> None:
    directory = range_directory(0, 2)
    storage = stored(f"{directory}/part-0.parquet", f"{directory}/_unfinished-1/part-1.parquet")
    assert range_directories(REQUEST, storage)[directory].sizes == {"part-0.parquet": 4}
