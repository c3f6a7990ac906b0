"""`FEATURES`: the support matrix, with one row per table feature; see `Feature` for the columns.

A table *supports* a feature if its protocol lists it, or implies it by a legacy version. The feature is
*active* if the table's metadata also use it. `protocol` decides by the rows what the engine may do with a
table.

The features that can be dropped are those that the reference implementation drops, and ``managedCommit``.

PROTOCOL.md, "Table Features" and "Valid Feature Names in Table Features". Features of later editions of the
protocol have no ``spec``; see `later_features`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from airflow_delta.engine.features.activations import column_key, column_type
from airflow_delta.engine.features.feature import Drop, Feature, Kind, Support
from airflow_delta.engine.features.later_features import LATER
from airflow_delta.engine.model.schema import TIMESTAMP_NTZ

__all__ = ["FEATURES"]


_LEGACY = (
    Feature(
        name="appendOnly",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Append-only Tables",
        note="commits that remove data are refused while delta.appendOnly is true",
        writer_version=2,
        table_property="delta.appendOnly",
        active=lambda properties, _: properties.append_only,
        concurrent=True,
        drop="it asks nothing of a table whose delta.appendOnly is false",
    ),
    Feature(
        name="invariants",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Column Invariants",
        note="a writer of rows must declare that it checked their SQL expressions",
        writer_version=2,
        active=column_key("delta.invariants"),
        append=Support.IF_ENFORCED,
        drop="it asks nothing of a table whose columns have no invariants",
    ),
    Feature(
        name="checkConstraints",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, CHECK Constraints",
        note="a writer of rows must declare that it checked their SQL expressions",
        writer_version=3,
        active=lambda properties, _: bool(properties.constraints),
        append=Support.IF_ENFORCED,
        drop=Drop("the constraints must be dropped before"),
    ),
    Feature(
        name="changeDataFeed",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Add CDC File",
        note="commits that both add and remove data need cdc files, or that their writer declares that no "
        "row is in both",
        writer_version=4,
        table_property="delta.enableChangeDataFeed",
        active=lambda properties, _: properties.change_data_feed_enabled,
        concurrent=True,
        drop="it asks nothing of a table whose delta.enableChangeDataFeed is false",
    ),
    Feature(
        name="generatedColumns",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Generated Columns",
        note="a writer of rows must declare that their values fulfil the expressions",
        writer_version=4,
        active=column_key("delta.generationExpression"),
        append=Support.IF_ENFORCED,
        drop="it asks nothing of a table without generated columns",
    ),
    Feature(
        name="columnMapping",
        kind=Kind.READER_WRITER,
        spec="PROTOCOL.md, Column Mapping",
        note="appended files must have physical column names and field ids",
        reader_version=2,
        writer_version=5,
        table_property="delta.columnMapping.mode",
        active=lambda properties, _: properties.column_mapping_mode != "none",
        concurrent=True,
        drop=Drop(
            "all data files are written anew, by Spark, so that they call the columns by their names",
            hides_history=True,
        ),
    ),
    Feature(
        name="identityColumns",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Identity Columns",
        note="a writer of rows must declare that it made their values; the high water mark is kept",
        writer_version=6,
        active=column_key("delta.identity."),
        append=Support.IF_ENFORCED,
        drop="it asks nothing of a table without identity columns",
    ),
)

_TABLE_FEATURES = (
    Feature(
        name="deletionVectors",
        kind=Kind.READER_WRITER,
        spec="PROTOCOL.md, Deletion Vectors",
        note="they are read; files come with new ones while delta.enableDeletionVectors is true",
        table_property="delta.enableDeletionVectors",
        active=lambda properties, _: properties.deletion_vectors_enabled,
        concurrent=True,
        drop=Drop(
            "data files with deletion vectors are written anew, by Spark, without the deleted rows",
            hides_history=True,
            disabling_properties=MappingProxyType({"delta.enableDeletionVectors": None}),
        ),
    ),
    Feature(
        name="rowTracking",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Row Tracking",
        note="every added file gets row ids and a row commit version",
        requires=frozenset({"domainMetadata"}),
        table_property="delta.enableRowTracking",
        active=lambda properties, _: properties.row_tracking_enabled,
        concurrent=True,
        drop=Drop(
            "row tracking is suspended, and the files lose their row ids, in batches",
            disabling_properties=MappingProxyType(
                {"delta.enableRowTracking": "false", "delta.rowTrackingSuspended": "true"}
            ),
            removed_properties=frozenset(
                {
                    "delta.enableRowTracking",
                    "delta.rowTrackingSuspended",
                    "delta.rowTracking.materializedRowIdColumnName",
                    "delta.rowTracking.materializedRowCommitVersionColumnName",
                }
            ),
        ),
    ),
    Feature(
        name="timestampNtz",
        kind=Kind.READER_WRITER,
        spec="PROTOCOL.md, Timestamp without timezone (TimestampNtz)",
        note="supported",
        active=column_type(TIMESTAMP_NTZ),
        concurrent=True,
        drop="columns of its type would have to go, and no reader would know the type of former ones",
    ),
    Feature(
        name="domainMetadata",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Domain Metadata",
        note="all domains are kept; users may not change those of the protocol",
        concurrent=True,
        drop=Drop("the domains are removed; the features that need them must be dropped before"),
    ),
    Feature(
        name="v2Checkpoint",
        kind=Kind.READER_WRITER,
        spec="PROTOCOL.md, V2 Checkpoint Table Feature",
        note="read and written, by delta.checkpointPolicy",
        table_property="delta.checkpointPolicy",
        active=lambda properties, _: properties.checkpoint_policy == "v2",
        concurrent=True,
        drop=Drop(
            "the checkpoint policy becomes classic, and there are classic checkpoints after all others",
            hides_history=True,
            disabling_properties=MappingProxyType({"delta.checkpointPolicy": "classic"}),
        ),
    ),
    Feature(
        name="icebergCompatV1",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Iceberg Compatibility V1",
        note="a writer of files must declare that partition values are materialised in them",
        requires=frozenset({"columnMapping"}),
        table_property="delta.enableIcebergCompatV1",
        active=lambda properties, _: properties.iceberg_compat_v1_enabled,
        append=Support.IF_ENFORCED,
        concurrent=True,
        drop="turn it off instead, by delta.enableIcebergCompatV1: it asks nothing of the table then",
    ),
    Feature(
        name="icebergCompatV2",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Iceberg Compatibility V2",
        note="a writer of files must declare that they are the way Iceberg needs them",
        requires=frozenset({"columnMapping"}),
        table_property="delta.enableIcebergCompatV2",
        active=lambda properties, _: properties.iceberg_compat_v2_enabled,
        append=Support.IF_ENFORCED,
        concurrent=True,
        drop="turn it off instead, by delta.enableIcebergCompatV2: it asks nothing of the table then",
    ),
    Feature(
        name="clustering",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Clustered Table",
        note="appended files are unclustered and must have statistics of the clustering columns",
        requires=frozenset({"domainMetadata"}),
        drop="let the table be clustered by no columns instead: it asks nothing of the table then",
    ),
    Feature(
        name="allowColumnDefaults",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Default Columns",
        note="a writer of rows must declare that it filled in the default values",
        active=column_key("CURRENT_DEFAULT"),
        append=Support.IF_ENFORCED,
        drop="it asks nothing of a table whose columns have no default values",
    ),
    Feature(
        name="inCommitTimestamp",
        kind=Kind.WRITER,
        spec="in-commit-timestamps.md",
        note="every commit gets an in-commit timestamp while delta.enableInCommitTimestamps is true",
        table_property="delta.enableInCommitTimestamps",
        active=lambda properties, _: properties.in_commit_timestamps_enabled,
        concurrent=True,
        drop=Drop(
            "in-commit timestamps are turned off: the times of all versions are those of their files",
            removed_properties=frozenset(
                {
                    "delta.enableInCommitTimestamps",
                    "delta.inCommitTimestampEnablementVersion",
                    "delta.inCommitTimestampEnablementTimestamp",
                }
            ),
        ),
    ),
    Feature(
        name="managedCommit",
        kind=Kind.WRITER,
        spec="managed-commits.md",
        note="commits are made by the table's commit owner; without it none are, and only backfilled ones "
        "are read",
        requires=frozenset({"inCommitTimestamp"}),
        table_property="delta.managedCommit.commitOwner",
        active=lambda properties, _: properties.commit_owner is not None,
        drop=Drop("the table is taken back from its commit owner; in-commit timestamps stay on"),
    ),
    Feature(
        name="checkpointProtection",
        kind=Kind.WRITER,
        spec="checkpoint-protection.md",
        note="checkpoints of protected versions need support of the protocol at that version",
        table_property="delta.requireCheckpointProtectionBeforeVersion",
        active=lambda properties, _: properties.require_checkpoint_protection_before_version > 0,
        drop=Drop(
            "the history that it protects must be truncated",
            removed_properties=frozenset({"delta.requireCheckpointProtectionBeforeVersion"}),
        ),
    ),
)

FEATURES: Mapping[str, Feature] = MappingProxyType(
    {feature.name: feature for feature in (*_LEGACY, *_TABLE_FEATURES, *LATER)}
)
"""Every feature that the engine knows, by name."""
