"""Tables with a feature that can only go together with its history, and the day that has to pass."""

from __future__ import annotations

import os
import time
from pathlib import Path

from airflow_delta.engine import DeltaTable
from tests.log_builder import add, metadata, write_commit

__all__ = ["expire", "features", "write_v2_table"]

_DAY_S = 86_400


def write_v2_table(path: Path) -> Path:
    """A table of two versions with a checkpoint of the V2 spec."""
    names = ["v2Checkpoint"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    lists = {"readerFeatures": names, "writerFeatures": names}
    policy = {"delta.checkpointPolicy": "v2"}
    write_commit(path, 0, {"protocol": {**protocol, **lists}}, metadata(configuration=policy))
    write_commit(path, 1, add("a"))
    DeltaTable(path).checkpoint()
    return path


def expire(table: Path) -> None:
    """Let two days pass."""
    for number, file in enumerate(sorted((table / "_delta_log").glob("*.json"))):
        os.utime(file, (0, time.time() - 2 * _DAY_S + number))


def features(table: Path) -> set[str]:
    """The features that a table lists."""
    protocol = DeltaTable(table).snapshot().protocol
    return {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
