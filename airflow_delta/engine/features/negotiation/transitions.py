"""What may change from a table's metadata to its next, and what its files must be like for that.

Much that is fine for a new table isn't for one with data: files that are there stay as they were
written. A change is either illegal whatever the files are (`check_transition`), or it demands
something of them (`demands`), which whoever knows the files makes sure of:

===========================================  ===================================================
change                                       what it demands
===========================================  ===================================================
column mapping on, by ``name``               nothing: the columns keep their names as physical ones
column mapping off                           no files: they have names that nobody would know any
                                             more, so that it is for who writes them all anew
column mapping on by ``id``, or from one     illegal: the files lack field ids, or have other names
mode to the other
row tracking on                              every file has row ids (a *backfill* gives them)
``icebergCompatV1`` on                       no files, if the table is partitioned: they lack the
                                             partition columns
``icebergCompatV2`` on                       no files: they lack the partition columns and the ids
                                             of what is in arrays and maps
a constraint, an invariant or a generation   no files, unless somebody has checked their rows
expression added or changed
NOT NULL, of a column that is there or new   no files, unless somebody has checked their rows; a new
                                             column reads as null in them
other partition columns                      no files: they lie and are cut by the old ones
===========================================  ===================================================

Columns are told by what files call them, so that a change of their names alone is none. A mode of
column mapping that the protocol doesn't support means nothing, before as after.

Spec: PROTOCOL.md, the sections of these features.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.column_mapping import (
    mapping_mode,
    partition_fields,
    physical_schema,
)
from airflow_delta.engine.features.iceberg_compat import iceberg_compat_version
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.features.schema_walk import SchemaPath, all_fields, all_types
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import ArrayType, MapType, StructType
from airflow_delta.engine.model.schema_json import parse_schema

__all__ = ["Condition", "FileRequirement", "check_transition", "find_requirements"]

# Feature and name of what a key in a column's metadata says about the values of rows.
_ROW_RULES = {
    "delta.invariants": ("invariants", "invariant"),
    "delta.generationExpression": ("generatedColumns", "generation expression"),
}


class Condition(Enum):
    """What a change demands of the table's files."""

    NO_FILES = "the table has no data files"
    CHECKED_ROWS = "the table has no data files, or their rows were checked"
    ROW_IDS = "every data file has a base row id and a default row commit version"


@dataclass(frozen=True, slots=True)
class FileRequirement:
    """One thing that a change demands.

    Attributes:
        condition: of the files that are live before the commit.
        reason: a sentence without its end: why, and what to do otherwise.
    """

    condition: Condition
    reason: str


def check_transition(
    old: Metadata,
    new: Metadata,
    *,
    protocols: tuple[Protocol, Protocol],
    with_files: bool = False,
    table: str,
) -> None:
    """Make sure that a change of metadata is none of those that no commit can make.

    Args:
        old: the metadata before.
        new: the metadata after.
        protocols: the protocols before and after; a mode counts only where they support column
            mapping.
        with_files: whether the commit may write files anew: then column mapping may be turned off, and
            `demands` has what that takes.
        table: the table's location, for messages.

    Raises:
        InvalidArgumentError: column mapping is turned on by id, off, or from one mode to the other.
        InvalidTableError: a property can't be read.
    """
    before, after = (
        mapping_mode(protocol, metadata, table=table)
        for protocol, metadata in zip(protocols, (old, new), strict=True)
    )
    if before == after or (before, after) == ("none", "name"):
        return
    if after == "none" and with_files:
        return
    if before == "none":
        reason = "the data files have no field ids to find columns by; use 'name'"
    elif after == "none":
        reason = (
            "the columns of the data files wouldn't be found any more; drop the feature columnMapping, by "
            "DeltaTable.drop_feature, which has the files written anew"
        )
    else:
        reason = "the columns of the data files wouldn't be found any more; copy the table into a new one"
    raise InvalidArgumentError(
        f"delta.columnMapping.mode can't be changed from {before!r} to {after!r}: {reason}",
        table=table,
        property="delta.columnMapping.mode",
    )


def find_requirements(
    old: tuple[Protocol, Metadata], new: tuple[Protocol, Metadata], *, table: str
) -> tuple[FileRequirement, ...]:
    """What a change of a table demands of the files that it has.

    Args:
        old: protocol and metadata before.
        new: protocol and metadata after.
        table: the table's location, for messages.

    Raises:
        InvalidTableError: a schema or property can't be read, or a partition column isn't there.
    """
    return tuple(_requirements(_Side.of(*old, table), _Side.of(*new, table)))


@dataclass(frozen=True, slots=True)
class _Side:
    """What counts of one side of the change.

    Attributes:
        row_rules: what to call each rule for the values of rows, by what tells it from others.
        places: every place in the schema, physical names, with its logical path.
        not_null: those of them that hold no null.
        partition_columns: the logical names, by physical names.
    """

    iceberg_compat: int | None
    row_tracking: bool
    mapped: bool
    row_rules: Mapping[tuple[str, ...], str]
    places: Mapping[SchemaPath, SchemaPath]
    not_null: frozenset[SchemaPath]
    partition_columns: Mapping[str, str]

    @classmethod
    def of(cls, protocol: Protocol, metadata: Metadata, table: str) -> _Side:
        """What counts of a protocol and metadata: that of which the feature is supported."""
        supported = supported_features(protocol)
        properties = TableProperties(metadata.configuration, table)
        mode = mapping_mode(protocol, metadata, table=table)
        schema = parse_schema(metadata.schema_string, table)
        in_files = physical_schema(schema, mode)
        partitioning = partition_fields(schema, metadata.partition_columns, mode)
        physical, logical = _nullability(in_files), _nullability(schema)
        return cls(
            iceberg_compat_version(supported, properties),
            "rowTracking" in supported and properties.row_tracking_enabled,
            mode != "none",
            {
                **(_constraints(properties) if "checkConstraints" in supported else {}),
                **_rules_of_columns(schema, in_files, supported),
            },
            dict(zip(physical, logical, strict=True)),
            frozenset(place for place, nullable in physical.items() if not nullable),
            {name: field.name for name, field in partitioning.items()},
        )

    def newly_not_null(self, old: _Side) -> Iterator[SchemaPath]:
        """The logical paths of places that hold no null any more.

        What lies inside of something that is new has no values yet in the files that are there.
        """
        for place in sorted(self.not_null - old.not_null):
            if len(place) == 1 or place[:-1] in old.places:
                yield self.places[place]


def _constraints(properties: TableProperties) -> dict[tuple[str, ...], str]:
    return {
        ("constraint", name, text): f"constraint {name!r}, {text!r}"
        for name, text in properties.constraints.items()
    }


def _rules_of_columns(
    schema: StructType, in_files: StructType, supported: frozenset[str]
) -> dict[tuple[str, ...], str]:
    rules: dict[tuple[str, ...], str] = {}
    for named, placed in zip(all_fields(schema), all_fields(in_files), strict=True):
        (path, field), place = named, placed[0]
        for key, (feature, what) in _ROW_RULES.items():
            if key in field.metadata and feature in supported:
                text = str(field.metadata[key])
                rule = (key, *place, text)
                rules[rule] = f"{what} of the column {'.'.join(path)}, {text!r}"
    return rules


def _nullability(schema: StructType) -> dict[SchemaPath, bool]:
    """Whether each place below the schema may hold null; that of a map's key may not."""
    found: dict[SchemaPath, bool] = {}
    for path, data_type in all_types(schema):
        inner: dict[str, bool] = {}
        match data_type:
            case StructType():
                inner = {field.name: field.nullable for field in data_type}
            case ArrayType():
                inner = {"element": data_type.contains_null}
            case MapType():
                inner = {"key": False, "value": data_type.value_contains_null}
            case _:
                pass
        found |= {(*path, name): nullable for name, nullable in inner.items()}
    return found


def _requirements(old: _Side, new: _Side) -> Iterator[FileRequirement]:
    if old.mapped and not new.mapped:
        # What else can be told of columns is told by what files call them, which nothing is left of.
        yield FileRequirement(
            Condition.NO_FILES,
            "without column mapping the columns of the data files wouldn't be found any more; take all "
            "files out by the same commit, and add them written anew",
        )
        return
    if new.row_tracking and not old.row_tracking:
        yield FileRequirement(
            Condition.ROW_IDS,
            "row tracking can be enabled once every file has row ids; add the feature rowTracking first, "
            "and then the files that lack them once more, as they are and with dataChange=false: that "
            "gives them theirs",
        )
    compat = new.iceberg_compat
    if compat is not None and compat != old.iceberg_compat:
        if compat == 2:
            yield FileRequirement(
                Condition.NO_FILES,
                "icebergCompatV2 needs files with materialised partition columns and ids of nested "
                "fields, which those of the table lack; create a new table with it",
            )
        elif new.partition_columns and old.iceberg_compat is None:
            yield FileRequirement(
                Condition.NO_FILES,
                "icebergCompatV1 needs files with materialised partition columns, which those of the "
                "table lack; create a new table with it",
            )
    rules = [new.row_rules[rule] for rule in sorted(new.row_rules.keys() - old.row_rules.keys())]
    rules += [f"NOT NULL of the column {'.'.join(path)}" for path in new.newly_not_null(old)]
    for rule in rules:
        yield FileRequirement(
            Condition.CHECKED_ROWS,
            f"nobody has checked the rows of the table against the {rule}; the engine doesn't see rows, "
            "so use airflow_delta.spark.add_constraint or set_not_null, which check them with Spark",
        )
    if [*new.partition_columns] != [*old.partition_columns]:
        yield FileRequirement(
            Condition.NO_FILES,
            f"the files are partitioned by {[*old.partition_columns.values()]}; create a new table with "
            "other partition columns",
        )
