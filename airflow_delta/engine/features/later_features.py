"""Rows of the registry for features of later editions of the protocol.

The engine reads some of them, and writes a few. The others are refused by name.
"""

from __future__ import annotations

from types import MappingProxyType

from airflow_delta.engine.features.activations import column_type, flag
from airflow_delta.engine.features.feature import Activation, Drop, Feature, Kind, Support
from airflow_delta.engine.model.schema import VARIANT

__all__ = ["LATER"]

_NARROW_TYPES = Drop(
    "Spark rewrites data files with columns of narrower types",
    hides_history=True,
    disabling_properties=MappingProxyType({"delta.enableTypeWidening": None}),
)

# Read according to the published text of later editions; `append` says which are written too.
_READABLE = (
    Feature(
        name="typeWidening",
        kind=Kind.READER_WRITER,
        spec="",
        note="files with narrower types are read; table.alter changes the types of columns",
        table_property="delta.enableTypeWidening",
        active=lambda properties, _: properties.type_widening_enabled,
        concurrent=True,
        drop=_NARROW_TYPES,
    ),
    Feature(
        name="typeWidening-preview",
        kind=Kind.READER_WRITER,
        spec="",
        note="the preview of typeWidening, with the same support",
        table_property="delta.enableTypeWidening",
        active=lambda properties, _: properties.type_widening_enabled,
        concurrent=True,
        drop=_NARROW_TYPES,
    ),
    Feature(
        name="vacuumProtocolCheck",
        kind=Kind.READER_WRITER,
        spec="",
        note="a vacuum checks the table's protocol before it deletes anything",
        concurrent=True,
        drop=Drop("nothing has to be changed first", hides_history=True),
    ),
    Feature(
        name="icebergCompatV3",
        kind=Kind.WRITER,
        spec="",
        note="the engine can't verify that appended files have the form that Iceberg needs",
        requires=frozenset({"columnMapping", "rowTracking"}),
        table_property="delta.enableIcebergCompatV3",
        active=flag("delta.enableIcebergCompatV3"),
        append=Support.NO,
        drop="set delta.enableIcebergCompatV3 to false instead, then it has no effect",
    ),
    Feature(
        name="materializePartitionColumns",
        kind=Kind.WRITER,
        spec="",
        note="a writer of files must declare that partition values are materialised in them",
        append=Support.IF_ENFORCED,
        drop=Drop(
            "nothing has to be changed first",
            removed_properties=frozenset(
                {
                    "delta.enableMaterializePartitionColumnsFeature",
                    "delta.writePartitionColumnsToParquet",
                }
            ),
        ),
    ),
    Feature(
        name="coordinatedCommits-preview",
        kind=Kind.WRITER,
        spec="",
        note="a later form of managedCommit: commits need a coordinator, which the engine can't call",
        requires=frozenset({"inCommitTimestamp", "vacuumProtocolCheck"}),
        table_property="delta.coordinatedCommits.commitCoordinator-preview",
        active=lambda properties, _: (
            "delta.coordinatedCommits.commitCoordinator-preview" in properties.raw
        ),
        append=Support.NO,
        checkpoint=Support.NO,
        drop="only an engine that can call the table's coordinator can drop it",
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
    """The row of a feature that the engine can't write, and by default can't read."""
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


_CATALOG = "only the table's catalog knows its newest commits, and the engine can't query it"
_VARIANT = "the log can be read as usual; values of the variant type are neither read nor written"
_REDIRECT = "the table has moved, and the engine doesn't follow it"

_REFUSED = (
    _refused("catalogManaged", Kind.READER_WRITER, _CATALOG, "inCommitTimestamp"),
    _refused("catalogOwned", Kind.READER_WRITER, _CATALOG, "inCommitTimestamp"),
    _refused("catalogOwned-preview", Kind.READER_WRITER, _CATALOG, "inCommitTimestamp"),
    *(
        _refused(name, Kind.READER_WRITER, _VARIANT, active=activation, readable=True)
        for name, activation in (
            ("variantType", column_type(VARIANT)),
            ("variantType-preview", column_type(VARIANT)),
            ("variantShredding", flag("delta.enableVariantShredding")),
            ("variantShredding-preview", flag("delta.enableVariantShredding")),
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

LATER = (*_READABLE, *_REFUSED)
"""The rows of all these features."""
