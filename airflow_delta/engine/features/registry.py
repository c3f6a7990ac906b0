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
        note="while delta.appendOnly is true, commits that remove data are refused",
        writer_version=2,
        table_property="delta.appendOnly",
        active=lambda properties, _: properties.append_only,
        concurrent=True,
        drop="it has no effect while delta.appendOnly is false",
    ),
    Feature(
        name="invariants",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Column Invariants",
        note="a writer of rows must declare that its rows satisfy the invariants",
        writer_version=2,
        active=column_key("delta.invariants"),
        append=Support.IF_ENFORCED,
        drop="it has no effect if no column has an invariant",
    ),
    Feature(
        name="checkConstraints",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, CHECK Constraints",
        note="a writer of rows must declare that its rows satisfy the constraints",
        writer_version=3,
        active=lambda properties, _: bool(properties.constraints),
        append=Support.IF_ENFORCED,
        drop=Drop("the constraints must be dropped first"),
    ),
    Feature(
        name="changeDataFeed",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Add CDC File",
        note="a commit that both adds and removes data needs cdc files, unless its writer declares that no "
        "row is in both",
        writer_version=4,
        table_property="delta.enableChangeDataFeed",
        active=lambda properties, _: properties.change_data_feed_enabled,
        concurrent=True,
        drop="it has no effect while delta.enableChangeDataFeed is false",
    ),
    Feature(
        name="generatedColumns",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Generated Columns",
        note="a writer of rows must declare that their values fulfil the expressions",
        writer_version=4,
        active=column_key("delta.generationExpression"),
        append=Support.IF_ENFORCED,
        drop="it has no effect if no column is generated",
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
            "Spark rewrites all data files, so that they have the names of the columns",
            hides_history=True,
        ),
    ),
    Feature(
        name="identityColumns",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Identity Columns",
        note="a writer of rows must declare that it generated the ids; the high water mark is kept",
        writer_version=6,
        active=column_key("delta.identity."),
        append=Support.IF_ENFORCED,
        drop="it has no effect if no column is an identity column",
    ),
)

_TABLE_FEATURES = (
    Feature(
        name="deletionVectors",
        kind=Kind.READER_WRITER,
        spec="PROTOCOL.md, Deletion Vectors",
        note="vectors are read; while delta.enableDeletionVectors is true, commits may add new ones",
        table_property="delta.enableDeletionVectors",
        active=lambda properties, _: properties.deletion_vectors_enabled,
        concurrent=True,
        drop=Drop(
            "Spark rewrites data files with deletion vectors, without the deleted rows",
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
            "row tracking is suspended, and commits remove the row ids of the files, in batches",
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
        note="columns of the type timestamp_ntz are read and written",
        active=column_type(TIMESTAMP_NTZ),
        concurrent=True,
        drop="earlier versions have columns of its type, which readers without the feature don't know",
    ),
    Feature(
        name="domainMetadata",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Domain Metadata",
        note="all domains are kept; users can't change those of the protocol",
        concurrent=True,
        drop=Drop("the domains are removed; the features that need them must be dropped first"),
    ),
    Feature(
        name="v2Checkpoint",
        kind=Kind.READER_WRITER,
        spec="PROTOCOL.md, V2 Checkpoint Table Feature",
        note="read; written if delta.checkpointPolicy is v2",
        table_property="delta.checkpointPolicy",
        active=lambda properties, _: properties.checkpoint_policy == "v2",
        concurrent=True,
        drop=Drop(
            "the checkpoint policy becomes classic, and the newest checkpoints are classic ones",
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
        drop="set delta.enableIcebergCompatV1 to false instead, then it has no effect",
    ),
    Feature(
        name="icebergCompatV2",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Iceberg Compatibility V2",
        note="a writer of files must declare that they have the form that Iceberg needs",
        requires=frozenset({"columnMapping"}),
        table_property="delta.enableIcebergCompatV2",
        active=lambda properties, _: properties.iceberg_compat_v2_enabled,
        append=Support.IF_ENFORCED,
        concurrent=True,
        drop="set delta.enableIcebergCompatV2 to false instead, then it has no effect",
    ),
    Feature(
        name="clustering",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Clustered Table",
        note="appended files aren't clustered, and must have statistics of the clustering columns",
        requires=frozenset({"domainMetadata"}),
        drop="cluster the table by no columns instead, then it has no effect",
    ),
    Feature(
        name="allowColumnDefaults",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Default Columns",
        note="a writer of rows must declare that it filled in the default values",
        active=column_key("CURRENT_DEFAULT"),
        append=Support.IF_ENFORCED,
        drop="it has no effect if no column has a default value",
    ),
    Feature(
        name="inCommitTimestamp",
        kind=Kind.WRITER,
        spec="RFC in-commit-timestamps",
        note="while delta.enableInCommitTimestamps is true, every commit gets an in-commit timestamp",
        table_property="delta.enableInCommitTimestamps",
        active=lambda properties, _: properties.in_commit_timestamps_enabled,
        concurrent=True,
        drop=Drop(
            "in-commit timestamps are disabled: the timestamps of all versions are those of their files",
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
        spec="RFC managed-commits",
        note="the table's commit owner ratifies commits; without it, nothing can be committed, and only "
        "backfilled versions are read",
        requires=frozenset({"inCommitTimestamp"}),
        table_property="delta.managedCommit.commitOwner",
        active=lambda properties, _: properties.commit_owner is not None,
        drop=Drop("the file system manages the table again; in-commit timestamps stay enabled"),
    ),
    Feature(
        name="checkpointProtection",
        kind=Kind.WRITER,
        spec="RFC checkpoint-protection",
        note="writing a checkpoint of a protected version requires support of that version's protocol",
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
