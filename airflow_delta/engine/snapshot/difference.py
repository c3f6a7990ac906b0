"""Compare two versions of a table: id, files, rows, schema, properties and protocol.

Files are compared by their keys ("Action Reconciliation"), in Arrow. Rows are counted from statistics; no
data file is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.features.column_mapping import mapping_mode
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.features.schema_difference import SchemaChange, compare_schemas
from airflow_delta.engine.replay.file_key import file_keys
from airflow_delta.engine.snapshot.row_counts import num_rows
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["FileSet", "VersionDifference", "compare_versions"]

_COLUMNS = ("path", "deletionVector", "size", "stats", "partitionValues", "modificationTime")


@dataclass(frozen=True, slots=True)
class FileSet:
    """Some files of a version.

    Attributes:
        adds: their ``add`` actions.
    """

    adds: pa.Table = field(repr=False)

    @property
    def size_in_bytes(self) -> int:
        """The sum of their sizes."""
        return int(pc.sum(self.adds["size"]).as_py() or 0)

    def to_dict(self) -> dict[str, Any]:
        """Their number, bytes and live rows; ``rows`` is None if a file has no count."""
        return {
            "files": self.adds.num_rows,
            "bytes": self.size_in_bytes,
            "rows": num_rows(self.adds),
        }


@dataclass(frozen=True, slots=True)
class VersionDifference:
    """The differences between two versions of a table.

    Attributes:
        before: the version that is compared.
        after: the version that it is compared with.
        added: the files that only ``after`` has. A file with another deletion vector is another file.
        removed: the files that only ``before`` has.
        num_same: the number of files in both.
        num_other_vector: the number of added files whose path is that of a removed one, so that only their
            deletion vector differs.
        schema: the changes of columns.
    """

    before: Snapshot
    after: Snapshot
    added: FileSet
    removed: FileSet
    num_same: int
    num_other_vector: int
    schema: tuple[SchemaChange, ...]

    def to_dict(self) -> dict[str, Any]:
        """The difference as plain JSON values, with counts of files."""
        before, after = self.before, self.after
        features = supported_features(before.protocol), supported_features(after.protocol)
        return {
            "from_version": before.version,
            "to_version": after.version,
            # A table that was replaced has another id.
            "table_id": {"before": before.metadata.id, "after": after.metadata.id},
            "files_added": self.added.to_dict(),
            "files_removed": self.removed.to_dict(),
            "files_in_both": self.num_same,
            "files_with_other_deletion_vector": self.num_other_vector,
            "rows": {"before": before.num_rows, "after": after.num_rows},
            "schema": [change.to_dict() for change in self.schema],
            "partition_columns": {
                "before": list(before.metadata.partition_columns),
                "after": list(after.metadata.partition_columns),
            },
            "properties": _compare_texts(
                before.metadata.configuration, after.metadata.configuration
            ),
            "protocol": {
                "reader_version": _both("min_reader_version", before, after),
                "writer_version": _both("min_writer_version", before, after),
                "features_added": sorted(features[1] - features[0]),
                "features_removed": sorted(features[0] - features[1]),
            },
        }


def compare_versions(before: Snapshot, after: Snapshot) -> VersionDifference:
    """Compare two versions of a table.

    Args:
        before: a version, usually the earlier one.
        after: another version of the same table.

    Raises:
        InvalidTableError: column mapping is used, and a column lacks its physical name.
        DeltaError: the log is damaged.
    """
    old, new = before.files(columns=_COLUMNS), after.files(columns=_COLUMNS)
    old_keys, new_keys = file_keys(old, table=before.table), file_keys(new, table=after.table)
    added = new.filter(pc.invert(pc.is_in(new_keys, value_set=old_keys)))
    removed = old.filter(pc.invert(pc.is_in(old_keys, value_set=new_keys)))
    other_vector = pc.sum(pc.is_in(added["path"], value_set=removed["path"])).as_py()
    return VersionDifference(
        before,
        after,
        FileSet(added),
        FileSet(removed),
        new.num_rows - added.num_rows,
        int(other_vector or 0),
        compare_schemas(
            before.schema,
            after.schema,
            mode_before=_mode(before),
            mode_after=_mode(after),
        ),
    )


def _mode(snapshot: Snapshot) -> str:
    return mapping_mode(snapshot.protocol, snapshot.metadata, table=snapshot.table)


def _both(version: str, before: Snapshot, after: Snapshot) -> dict[str, int]:
    return {"before": getattr(before.protocol, version), "after": getattr(after.protocol, version)}


def _compare_texts(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, Any]:
    return {
        "added": {name: value for name, value in after.items() if name not in before},
        "removed": {name: value for name, value in before.items() if name not in after},
        "changed": {
            name: {"before": before[name], "after": after[name]}
            for name in before
            if name in after and before[name] != after[name]
        },
    }
