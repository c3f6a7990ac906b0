"""The support matrix: one row per table feature.

A feature is *supported by a table* when its protocol lists it or implies it by a legacy version, and
*active* when the table's metadata uses it, too. A writer feature binds only writers; a reader-writer
feature binds both. What the engine may do with a table follows from the rows of the features that
the table supports; `protocol` draws the conclusions.

The engine writes in two ways, and a row judges each by the duties that the feature's section lays
on writers:

* an **append** commits data files that somebody else has written;
* a **checkpoint**, and everything else that just re-tells the log, adds nothing to the table, but
  must keep what it doesn't understand.

Rows whose ``spec`` is empty are features of later editions of the protocol. They are here so that
an error can say what they are instead of just not knowing them.

Spec: PROTOCOL.md, "Table Features" and "Valid Feature Names in Table Features".
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from airflow_delta.engine.features.feature import Activation, Feature, Kind, Support
from airflow_delta.engine.features.schema_walk import all_fields, all_types
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import TIMESTAMP_NTZ, VARIANT, DataType, StructType

__all__ = ["FEATURES"]


def _column_key(*prefixes: str) -> Activation:
    """Active while the metadata of some column has a key that begins with one of the prefixes."""

    def _active(_: TableProperties, schema: StructType) -> bool:
        return any(
            key.startswith(prefixes) for _, field in all_fields(schema) for key in field.metadata
        )

    return _active


def _column_type(data_type: DataType) -> Activation:
    """Active while some column, at any depth, is of a type."""

    def _active(_: TableProperties, schema: StructType) -> bool:
        return any(found == data_type for _, found in all_types(schema))

    return _active


def _later_property(name: str) -> Activation:
    """Active while a property that the specification doesn't know is ``true``."""

    def _active(properties: TableProperties, _: StructType) -> bool:
        return properties.raw.get(name, "").strip().lower() == "true"

    return _active


_LEGACY = (
    Feature(
        name="appendOnly",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Append-only Tables",
        note="commits that remove data are refused while delta.appendOnly is true",
        writer_version=2,
        table_property="delta.appendOnly",
        active=lambda properties, _: properties.append_only,
    ),
    Feature(
        name="invariants",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Column Invariants",
        note="the engine can't check the SQL expressions of invariants against appended rows",
        writer_version=2,
        active=_column_key("delta.invariants"),
        append=Support.WHILE_INACTIVE,
    ),
    Feature(
        name="checkConstraints",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, CHECK Constraints",
        note="the engine can't check the SQL expressions of constraints against appended rows",
        writer_version=3,
        active=lambda properties, _: bool(properties.constraints),
        append=Support.WHILE_INACTIVE,
    ),
    Feature(
        name="changeDataFeed",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Add CDC File",
        note="appended and removed files describe their changes themselves, without cdc files",
        writer_version=4,
        table_property="delta.enableChangeDataFeed",
        active=lambda properties, _: properties.change_data_feed_enabled,
    ),
    Feature(
        name="generatedColumns",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Generated Columns",
        note="the engine can't check generation expressions against appended rows",
        writer_version=4,
        active=_column_key("delta.generationExpression"),
        append=Support.WHILE_INACTIVE,
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
    ),
    Feature(
        name="identityColumns",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Identity Columns",
        note="the engine generates no identity values and keeps no high water mark",
        writer_version=6,
        active=_column_key("delta.identity."),
        append=Support.WHILE_INACTIVE,
    ),
)

_TABLE_FEATURES = (
    Feature(
        name="deletionVectors",
        kind=Kind.READER_WRITER,
        spec="PROTOCOL.md, Deletion Vectors",
        note="deletion vectors are read; appended files have none",
        table_property="delta.enableDeletionVectors",
        active=lambda properties, _: properties.deletion_vectors_enabled,
    ),
    Feature(
        name="rowTracking",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Row Tracking",
        note="the engine assigns no row ids to appended files; checkpoints keep the ids there are",
        requires=frozenset({"domainMetadata"}),
        table_property="delta.enableRowTracking",
        active=lambda properties, _: properties.row_tracking_enabled,
        # Writers must assign ids as soon as the feature is supported, active or not.
        append=Support.NO,
    ),
    Feature(
        name="timestampNtz",
        kind=Kind.READER_WRITER,
        spec="PROTOCOL.md, Timestamp without timezone (TimestampNtz)",
        note="supported",
        active=_column_type(TIMESTAMP_NTZ),
    ),
    Feature(
        name="domainMetadata",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Domain Metadata",
        note="all domains are kept; users may not change those of the protocol",
    ),
    Feature(
        name="v2Checkpoint",
        kind=Kind.READER_WRITER,
        spec="PROTOCOL.md, V2 Checkpoint Table Feature",
        note="read and written, by delta.checkpointPolicy",
        table_property="delta.checkpointPolicy",
        active=lambda properties, _: properties.checkpoint_policy == "v2",
    ),
    Feature(
        name="icebergCompatV1",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Iceberg Compatibility V1",
        note="the engine can't see whether appended files have their partition values materialised",
        requires=frozenset({"columnMapping"}),
        table_property="delta.enableIcebergCompatV1",
        active=lambda properties, _: properties.iceberg_compat_v1_enabled,
        append=Support.WHILE_INACTIVE,
    ),
    Feature(
        name="icebergCompatV2",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Iceberg Compatibility V2",
        note="the engine can't see whether appended files are written the way Iceberg needs",
        requires=frozenset({"columnMapping"}),
        table_property="delta.enableIcebergCompatV2",
        active=lambda properties, _: properties.iceberg_compat_v2_enabled,
        append=Support.WHILE_INACTIVE,
    ),
    Feature(
        name="clustering",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Clustered Table",
        note="appended files are unclustered and must have statistics of the clustering columns",
        requires=frozenset({"domainMetadata"}),
    ),
    Feature(
        name="allowColumnDefaults",
        kind=Kind.WRITER,
        spec="PROTOCOL.md, Default Columns",
        note="the engine can't see whether appended rows got the default values",
        active=_column_key("CURRENT_DEFAULT"),
        append=Support.WHILE_INACTIVE,
    ),
    Feature(
        name="inCommitTimestamp",
        kind=Kind.WRITER,
        spec="in-commit-timestamps.md",
        note="every commit gets an in-commit timestamp while delta.enableInCommitTimestamps is true",
        table_property="delta.enableInCommitTimestamps",
        active=lambda properties, _: properties.in_commit_timestamps_enabled,
    ),
    Feature(
        name="managedCommit",
        kind=Kind.WRITER,
        spec="managed-commits.md",
        note="commits need the table's commit owner; without it only backfilled ones are seen",
        requires=frozenset({"inCommitTimestamp"}),
        table_property="delta.managedCommit.commitOwner",
        active=lambda properties, _: properties.commit_owner is not None,
        append=Support.NO,
        checkpoint=Support.NO,
    ),
    Feature(
        name="checkpointProtection",
        kind=Kind.WRITER,
        spec="checkpoint-protection.md",
        note="checkpoints of protected versions need support of the protocol at that version",
        table_property="delta.requireCheckpointProtectionBeforeVersion",
        active=lambda properties, _: properties.require_checkpoint_protection_before_version > 0,
    ),
)

# Beyond the specification, but harmless to read by what their names promise and by the published
# text of later editions.
_LATER_READABLE = (
    Feature(
        name="typeWidening",
        kind=Kind.READER_WRITER,
        spec="",
        note="files of narrower types are read; the engine changes no types itself",
        table_property="delta.enableTypeWidening",
        active=lambda properties, _: properties.type_widening_enabled,
    ),
    Feature(
        name="typeWidening-preview",
        kind=Kind.READER_WRITER,
        spec="",
        note="as typeWidening, of which it is the preview",
        table_property="delta.enableTypeWidening",
        active=lambda properties, _: properties.type_widening_enabled,
    ),
    Feature(
        name="vacuumProtocolCheck",
        kind=Kind.READER_WRITER,
        spec="",
        note="vacuum checks that it may write the table before it deletes anything",
    ),
    Feature(
        name="icebergCompatV3",
        kind=Kind.WRITER,
        spec="",
        note="the engine can't see whether appended files are written the way Iceberg needs",
        requires=frozenset({"columnMapping", "rowTracking"}),
        table_property="delta.enableIcebergCompatV3",
        active=_later_property("delta.enableIcebergCompatV3"),
        append=Support.NO,
    ),
    Feature(
        name="materializePartitionColumns",
        kind=Kind.WRITER,
        spec="",
        note="the engine can't see whether appended files have their partition values materialised",
        append=Support.NO,
    ),
    Feature(
        name="coordinatedCommits-preview",
        kind=Kind.WRITER,
        spec="",
        note="a later form of managedCommit: commits need a coordinator that the engine can't call",
        requires=frozenset({"inCommitTimestamp", "vacuumProtocolCheck"}),
        table_property="delta.coordinatedCommits.commitCoordinator-preview",
        active=lambda properties, _: (
            "delta.coordinatedCommits.commitCoordinator-preview" in properties.raw
        ),
        append=Support.NO,
        checkpoint=Support.NO,
    ),
)


def _refused(
    name: str,
    kind: Kind,
    note: str,
    *requires: str,
    active: Activation | None = None,
    readable: bool = False,
) -> Feature:
    """A feature that is known by name: nothing that binds writers is done, nor readers by default."""
    return Feature(
        name=name,
        kind=kind,
        spec="",
        note=note,
        requires=frozenset(requires),
        active=active,
        read=Support.YES if readable or kind is Kind.WRITER else Support.NO,
        append=Support.NO,
        checkpoint=Support.NO,
    )


_CATALOG = "only the table's catalog knows its newest commits, and the engine can't ask it"
_VARIANT = "the log says the same as ever; values of the variant type are neither read nor written"
_REDIRECT = "the table has moved, and the engine doesn't follow it"

_LATER_REFUSED = (
    _refused("catalogManaged", Kind.READER_WRITER, _CATALOG, "inCommitTimestamp"),
    _refused("catalogOwned", Kind.READER_WRITER, _CATALOG, "inCommitTimestamp"),
    _refused("catalogOwned-preview", Kind.READER_WRITER, _CATALOG, "inCommitTimestamp"),
    *(
        _refused(name, Kind.READER_WRITER, _VARIANT, active=activation, readable=True)
        for name, activation in (
            ("variantType", _column_type(VARIANT)),
            ("variantType-preview", _column_type(VARIANT)),
            ("variantShredding", _later_property("delta.enableVariantShredding")),
            ("variantShredding-preview", _later_property("delta.enableVariantShredding")),
        )
    ),
    _refused("geospatial", Kind.READER_WRITER, "the engine doesn't know geospatial types"),
    _refused("collations", Kind.WRITER, "the engine compares text by its bytes only"),
    _refused("collations-preview", Kind.WRITER, "the engine compares text by its bytes only"),
    _refused("redirectReaderWriter-preview", Kind.READER_WRITER, _REDIRECT),
    _refused("redirectWriterOnly-preview", Kind.WRITER, _REDIRECT),
    _refused(
        "adaptiveMetadata-preview", Kind.READER_WRITER, "the engine doesn't know its log format"
    ),
)

FEATURES: Mapping[str, Feature] = MappingProxyType(
    {
        feature.name: feature
        for feature in (*_LEGACY, *_TABLE_FEATURES, *_LATER_READABLE, *_LATER_REFUSED)
    }
)
"""Every feature that the engine knows, by name."""
