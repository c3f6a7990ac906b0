"""Check that writers recorded the changes of every version of a range.

Writers only write change data files for ``UPDATE``, ``DELETE`` and ``MERGE`` while
``delta.enableChangeDataFeed`` is true. Otherwise a version may have rewritten unchanged rows, which its
``add`` and ``remove`` actions would report as deleted and inserted. So the feed must be on from the first
version of the range to the last.

PROTOCOL.md, "Writer Requirements for AddCDCFile".
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

from airflow_delta.engine.arrow.json.reader import NonFileAction
from airflow_delta.engine.changes.schema_changes import find_incompatible_change
from airflow_delta.engine.errors import ChangesNotAvailableError
from airflow_delta.engine.features.column_mapping import mapping_mode
from airflow_delta.engine.features.protocol import check_readable, supported_features
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.snapshot.table_schema import table_schema

__all__ = ["check_available"]

_FEATURE = "changeDataFeed"
_PROPERTY = "delta.enableChangeDataFeed"


def check_available(
    protocol: Protocol,
    metadata: Metadata,
    non_file_actions: Sequence[NonFileAction],
    *,
    versions: range,
    table: str,
) -> tuple[Protocol, Metadata]:
    """Check that all versions recorded their changes, which can be read with the columns of the last one.

    Args:
        protocol: the protocol of the first version.
        metadata: the metadata of the first version.
        non_file_actions: the non-file actions of the versions, in log order.
        versions: the range.
        table: the table's location, for errors.

    Returns:
        The protocol and the metadata of the last version.

    Raises:
        ChangesNotAvailableError: the change data feed was off in a version; or a version changed the schema
            in another way than by adding columns. Facts: start, end, version.
        UnsupportedFeatureError: a version needs a reader feature that the engine lacks.
    """
    _check_enabled(protocol, metadata, versions[0], versions, table)
    later = (
        action
        for action in non_file_actions
        if action.kind in {"protocol", "metaData"} and action.version > versions[0]
    )
    for version, actions in groupby(later, attrgetter("version")):
        before = protocol, metadata
        for action in actions:
            where = f"commit {version}: {action.kind}"
            if action.kind == "protocol":
                protocol = Protocol.from_json(action.value, where)
            else:
                metadata = Metadata.from_json(action.value, where)
        check_readable(protocol, metadata, table=table)
        _check_enabled(protocol, metadata, version, versions, table)
        change = _change(before, (protocol, metadata), table)
        if change is not None:
            raise ChangesNotAvailableError(
                f"the changes from version {versions[0]} to {versions[-1]} can't be read together: in "
                f"version {version} {change}; read the changes up to version {version - 1} and those from "
                f"version {version} on separately",
                table=table,
                start=versions[0],
                end=versions[-1],
                version=version,
            )
    return protocol, metadata


def _check_enabled(
    protocol: Protocol, metadata: Metadata, version: int, versions: range, table: str
) -> None:
    supported = _FEATURE in supported_features(protocol)
    if supported and TableProperties(metadata.configuration, table).change_data_feed_enabled:
        return
    reason = f"{_PROPERTY} isn't true" if supported else f"the protocol lacks {_FEATURE}"
    raise ChangesNotAvailableError(
        f"the changes from version {versions[0]} to {versions[-1]} aren't available: in version "
        f"{version} {reason}, so writers didn't record their changes; choose versions with the change data "
        "feed on",
        table=table,
        start=versions[0],
        end=versions[-1],
        version=version,
    )


def _change(
    before: tuple[Protocol, Metadata], after: tuple[Protocol, Metadata], table: str
) -> str | None:
    """Why older rows can't be read with the columns after a change of the metadata; None if they can."""
    older, newer = before[1], after[1]
    if older.partition_columns != newer.partition_columns:
        return (
            f"the partition columns changed from {list(older.partition_columns)} to "
            f"{list(newer.partition_columns)}"
        )
    return find_incompatible_change(
        table_schema(older, table=table),
        table_schema(newer, table=table),
        older_mode=mapping_mode(*before, table=table),
        newer_mode=mapping_mode(*after, table=table),
    )
