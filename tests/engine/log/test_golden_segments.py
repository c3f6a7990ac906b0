"""The logs of the golden tables: which files rebuild which version."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine.errors import CorruptLogError, VersionNotFoundError
from airflow_delta.engine.log.completeness import earliest_version
from airflow_delta.engine.log.files import ClassicCheckpoint, MultipartCheckpoint, V2Checkpoint
from airflow_delta.engine.log.listing import list_log
from airflow_delta.engine.log.newest import find_latest_version
from airflow_delta.engine.log.segment import LogSegment, load_segment
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.conftest import golden_manifest
from tests.engine.log.logs import make_log

CASES = {case["name"]: case for case in golden_manifest()}


def log_of(golden_root: Path, case: dict[str, Any]) -> MemoryStorage:
    """The names and sizes of a golden log, and its hint."""
    storage = make_log([])
    with tarfile.open(golden_root / case["file"]) as tar:
        for member in tar:
            path = member.name.removeprefix("delta/")
            if member.isfile() and path.startswith("_delta_log/"):
                content = b"x" * min(member.size, 1)
                if path.endswith("_last_checkpoint"):
                    file = tar.extractfile(member)
                    assert file is not None
                    content = file.read()
                storage.replace(path, content)
    return storage


def kind(segment: LogSegment) -> list[Any] | None:
    match segment.checkpoint:
        case None:
            return None
        case ClassicCheckpoint(version=version):
            return [version, "classic"]
        case MultipartCheckpoint(version=version):
            return [version, "multipart"]
        case V2Checkpoint(version=version, format=file_format):
            return [version, f"v2-{file_format}"]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["expect"] == "ok"])
def test_every_version_of_a_golden_log(golden_root, name):
    case = CASES[name]
    storage = log_of(golden_root, case)
    latest = case["latest_version"]
    assert find_latest_version(storage) == latest
    unbroken = case["readable_versions"] == latest - case["earliest_version"] + 1
    # The manifest tells the earliest readable version, we the earliest without a hole after it.
    assert (earliest_version(list_log(storage)) == case["earliest_version"]) == unbroken
    for use_hint in [True, False]:
        segment = load_segment(storage, use_hint=use_hint)
        assert (segment.version, kind(segment)) == (latest, case["checkpoint_used"])
    for version in map(int, case.get("per_version", ())):
        assert load_segment(storage, version=version).version == version
    if case["earliest_version"] > 0:
        with pytest.raises(VersionNotFoundError, match=f"versions {case['earliest_version']} to"):
            load_segment(storage, version=case["earliest_version"] - 1)


@pytest.mark.parametrize("name", [name for name in CASES if "versions-not-contiguous" in name])
def test_golden_logs_with_a_gap(golden_root, name):
    with pytest.raises(CorruptLogError, match="missing"):
        load_segment(log_of(golden_root, CASES[name]))
