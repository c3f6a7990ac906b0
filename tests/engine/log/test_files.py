from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.log.files import (
    MAX_VERSION,
    CheckpointPart,
    Checksum,
    ClassicCheckpoint,
    Commit,
    CompactedCommits,
    MultipartCheckpoint,
    UnbackfilledCommit,
    V2Checkpoint,
    checkpoint_path,
    checkpoint_rank,
    checksum_path,
    commit_path,
    compacted_path,
    parse_log_file,
    sidecar_path,
    unbackfilled_commit_path,
    v2_checkpoint_path,
)
from airflow_delta.engine.storage.base import FileInfo


def parse(path: str) -> object:
    return parse_log_file(FileInfo(path, 7, 1000))


# The examples of PROTOCOL.md and the RFC managed-commits.
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000000.json", lambda p: Commit(0, p, 7, 1000)),
        ("00000000000000000010.checkpoint.parquet", lambda p: ClassicCheckpoint(10, p, 7, 1000)),
        (
            "00000000000000000010.checkpoint.0000000002.0000000003.parquet",
            lambda p: CheckpointPart(10, 2, 3, p, 7, 1000),
        ),
        (
            "00000000000000000010.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json",
            lambda p: V2Checkpoint(10, "80a083e8-7026-4e79-81be-64bd76c43a11", "json", p, 7, 1000),
        ),
        (
            "00000000000000000010.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet",
            lambda p: V2Checkpoint(
                10, "80a083e8-7026-4e79-81be-64bd76c43a11", "parquet", p, 7, 1000
            ),
        ),
        (
            "00000000000000000004.00000000000000000006.compacted.json",
            lambda p: CompactedCommits(4, 6, p, 7, 1000),
        ),
        ("00000000000000000003.crc", lambda p: Checksum(3, p, 7, 1000)),
        (
            "_commits/00000000000000000001.7d17ac10-5cc3-401b-bd1a-9c82dd2ea032.json",
            lambda p: UnbackfilledCommit(1, "7d17ac10-5cc3-401b-bd1a-9c82dd2ea032", p, 7, 1000),
        ),
    ],
)
def test_names_of_the_specification(name, expected):
    path = f"_delta_log/{name}"
    assert parse(path) == expected(path)


@pytest.mark.parametrize(
    "path",
    [
        # Not in the log's directory, or deeper than it.
        "00000000000000000000.json",
        "other/00000000000000000000.json",
        "_delta_log",
        "_delta_log/",
        "_delta_log/a/00000000000000000000.json",
        "_delta_log/_staged_commits/00000000000000000001.7d17ac10-5cc3-401b-bd1a-9c82dd2ea032.json",
        "_delta_log/_commits/00000000000000000001.json",
        "_delta_log/_commits/00000000000000000001.7d17ac10.json",
        "_delta_log/_sidecars/3a0d65cd-4056-49b8-937b-95f9e3ee90e5.parquet",
        # Versions of other lengths, of other digits, or beyond 64 bits.
        "_delta_log/7.json",
        "_delta_log/0000000000000000007.json",
        "_delta_log/000000000000000000007.json",
        "_delta_log/-0000000000000000007.json",
        "_delta_log/+0000000000000000007.json",
        "_delta_log/0000000000000000_007.json",
        "_delta_log/٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠.json",
        "_delta_log/²²²²²²²²²²²²²²²²²²²².json",
        "_delta_log/09223372036854775808.json",
        "_delta_log/00000000000000000001.09223372036854775808.compacted.json",
        # What else lies in such directories.
        "_delta_log/.00000000000000000001.json.crc",
        "_delta_log/.00000000000000000001.json.4f2c.tmp",
        "_delta_log/_commit_4f2c.json.tmp",
        "_delta_log/_last_checkpoint",
        "_delta_log/_last_vacuum_info",
        "_delta_log/__tmp_path_dir",
        "_delta_log/_trino_meta",
        "_delta_log/.s3-optimization-0",
        "_delta_log/00000000000000000001.json.tmp",
        "_delta_log/00000000000000000001.json\n",
        "_delta_log/00000000000000000001.JSON",
        "_delta_log/00000000000000000001.7d17ac10-5cc3-401b-bd1a-9c82dd2ea032.json",
        "_delta_log/00000000000000000001",
        # Broken checkpoint and compaction names.
        "_delta_log/00000000000000000001.checkpoint.1.2.parquet",
        "_delta_log/00000000000000000001.checkpoint.0000000000.0000000002.parquet",
        "_delta_log/00000000000000000001.checkpoint.0000000003.0000000002.parquet",
        "_delta_log/00000000000000000001.checkpoint.0000000001.0000000002.json",
        "_delta_log/00000000000000000001.checkpoint.7d17ac10.parquet",
        "_delta_log/00000000000000000001.checkpoint.7d17ac10-5cc3-401b-bd1a-9c82dd2ea032.avro",
        "_delta_log/00000000000000000001.checkpoint.json",
        "_delta_log/00000000000000000001.checkpoint.parquet.tmp",
        "_delta_log/00000000000000000003.00000000000000000002.compacted.json",
        "_delta_log/1.2.compacted.json",
    ],
)
def test_anything_else_is_no_part_of_the_log(path):
    assert parse(path) is None


VERSIONS = st.integers(0, MAX_VERSION)


@settings(max_examples=50)
@given(VERSIONS, VERSIONS, st.uuids().map(str))
def test_built_names_parse_back(first, second, uuid):
    start, end = sorted((first, second))
    info = (7, 1000)
    for path, expected in [
        (commit_path(first), lambda p: Commit(first, p, *info)),
        (checksum_path(first), lambda p: Checksum(first, p, *info)),
        (checkpoint_path(first), lambda p: ClassicCheckpoint(first, p, *info)),
        (
            v2_checkpoint_path(first, uuid, "parquet"),
            lambda p: V2Checkpoint(first, uuid, "parquet", p, *info),
        ),
        (compacted_path(start, end), lambda p: CompactedCommits(start, end, p, *info)),
        (
            unbackfilled_commit_path(first, uuid),
            lambda p: UnbackfilledCommit(first, uuid, p, *info),
        ),
    ]:
        assert parse(path) == expected(path)


def test_a_sidecar_is_found_by_its_file_name():
    assert sidecar_path("016ae953.parquet") == "_delta_log/_sidecars/016ae953.parquet"


def test_rank_prefers_newer_then_v2_then_multipart_then_more_parts_then_the_greater_name():
    def whole(version: int, parts: int) -> MultipartCheckpoint:
        return MultipartCheckpoint(version, tuple(FileInfo(f"{n}", 1, 0) for n in range(parts)))

    ascending = [
        V2Checkpoint(8, "f", "json", "8.f", 1, 0),
        ClassicCheckpoint(9, "9", 1, 0),
        whole(9, 2),
        whole(9, 10),
        V2Checkpoint(9, "a", "parquet", "9.a", 1, 0),
        V2Checkpoint(9, "b", "json", "9.b", 1, 0),
        ClassicCheckpoint(10, "10", 1, 0),
    ]
    shuffled = [*ascending[4:], *ascending[:4]]
    assert sorted(shuffled, key=checkpoint_rank) == ascending


def test_a_multipart_checkpoint_is_the_sum_of_its_parts():
    checkpoint = MultipartCheckpoint(3, (FileInfo("a", 5, 20), FileInfo("b", 6, 10)))
    assert (checkpoint.path, checkpoint.size, checkpoint.modified_ms) == ("a", 11, 20)
    assert [file.path for file in checkpoint.files] == ["a", "b"]
