"""Check changes of a table's metadata, and find what they require of existing files.

Existing files stay as they were written, so not every change is possible. `check_transition` refuses
changes that are impossible with any files; `find_requirements` returns what the others require of the
files. The reason of each is in its message.

Columns are identified by their names in files, so a change of their logical names requires nothing. Nor
does column mapping by ``name``, because the columns keep their names as physical ones.

PROTOCOL.md, the sections of the features.
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

# The keys in a column's metadata with a rule about rows, each with its feature and a name for messages.
_ROW_RULES = {
    "delta.invariants": ("invariants", "invariant"),
    "delta.generationExpression": ("generatedColumns", "generation expression"),
}


class Condition(Enum):
    """A condition on the table's files that a change may require."""

    NO_FILES = "the table has no data files"
    CHECKED_ROWS = "the table has no data files, or their rows were checked"
    ROW_IDS = "every data file has a base row id and a default row commit version"


@dataclass(frozen=True, slots=True)
class FileRequirement:
    """A requirement of a change on existing files.

    Attributes:
        condition: the requirement on the files that are live before the commit.
        reason: why, and what to do instead; a sentence without its full stop.
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
    """Refuse changes of the metadata that no commit can make.

    Args:
        old: the metadata before.
        new: the metadata after.
        protocols: the protocols before and after. A mode counts only if they support column mapping.
        with_files: whether the commit may rewrite files. If so, column mapping may be turned off, with the
            requirement from `find_requirements`.
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
            "the columns of the data files wouldn't be found any more; drop the feature columnMapping with "
            "DeltaTable.drop_feature, which rewrites the files"
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
    """Find what a change of a table requires of its existing files.

    Args:
        old: protocol and metadata before.
        new: protocol and metadata after.
        table: the table's location, for messages.

    Raises:
        InvalidTableError: a schema or property can't be read, or a partition column doesn't exist.
    """
    return tuple(_requirements(_Side.of(*old, table), _Side.of(*new, table)))


@dataclass(frozen=True, slots=True)
class _Side:
    """The table before or after the change, as far as it matters here.

    Attributes:
        iceberg_compat: the version of Iceberg compatibility in force; None if none is.
        row_tracking: whether row tracking is enabled.
        mapped: whether column mapping is on.
        row_rules: a name for messages of each rule about rows, by a key that identifies the rule.
        logical: the logical path of each physical path in the schema.
        not_null: the physical paths that can't hold null.
        partition_columns: the logical names of the partition columns, by physical names.
    """

    iceberg_compat: int | None
    row_tracking: bool
    mapped: bool
    row_rules: Mapping[tuple[str, ...], str]
    logical: Mapping[SchemaPath, SchemaPath]
    not_null: frozenset[SchemaPath]
    partition_columns: Mapping[str, str]

    @classmethod
    def of(cls, protocol: Protocol, metadata: Metadata, table: str) -> _Side:
        """The table with a protocol and metadata. Features that the protocol lacks don't count."""
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
            frozenset(path for path, nullable in physical.items() if not nullable),
            {name: field.name for name, field in partitioning.items()},
        )

    def newly_not_null(self, old: _Side) -> Iterator[SchemaPath]:
        """The logical paths of what can no longer hold null, without fields inside new columns.

        Those have no values in existing files, not even null.
        """
        for path in sorted(self.not_null - old.not_null):
            if len(path) == 1 or path[:-1] in old.logical:
                yield self.logical[path]


def _constraints(properties: TableProperties) -> dict[tuple[str, ...], str]:
    return {
        ("constraint", name, text): f"constraint {name!r}, {text!r}"
        for name, text in properties.constraints.items()
    }


def _rules_of_columns(
    schema: StructType, in_files: StructType, supported: frozenset[str]
) -> dict[tuple[str, ...], str]:
    rules: dict[tuple[str, ...], str] = {}
    for (path, field), (physical, _) in zip(all_fields(schema), all_fields(in_files), strict=True):
        for key, (feature, what) in _ROW_RULES.items():
            if key in field.metadata and feature in supported:
                text = str(field.metadata[key])
                rule = (key, *physical, text)
                rules[rule] = f"{what} of the column {'.'.join(path)}, {text!r}"
    return rules


def _nullability(schema: StructType) -> dict[SchemaPath, bool]:
    """For each path in the schema, whether it may hold null. A map's key may not."""
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
        # The other requirements compare columns by physical names, which are gone.
        yield FileRequirement(
            Condition.NO_FILES,
            "without column mapping the columns of the data files wouldn't be found any more; remove all "
            "files in the same commit, and add rewritten ones",
        )
        return
    if new.row_tracking and not old.row_tracking:
        yield FileRequirement(
            Condition.ROW_IDS,
            "row tracking can only be enabled when every file has row ids; first add the feature "
            "rowTracking, then add the files without row ids again, unchanged and with dataChange=false, "
            "so that they get theirs",
        )
    compat = new.iceberg_compat
    if compat is not None and compat != old.iceberg_compat:
        if compat == 2:
            yield FileRequirement(
                Condition.NO_FILES,
                "icebergCompatV2 needs files with materialised partition columns and ids of nested "
                "fields, which the table's files lack; use airflow_delta.spark.enable_iceberg_compat, "
                "which writes them anew",
            )
        elif new.partition_columns and old.iceberg_compat is None:
            yield FileRequirement(
                Condition.NO_FILES,
                "icebergCompatV1 needs files with materialised partition columns, which the table's files "
                "lack; use airflow_delta.spark.enable_iceberg_compat, which writes them anew",
            )
    rules = [new.row_rules[rule] for rule in sorted(new.row_rules.keys() - old.row_rules.keys())]
    rules += [f"NOT NULL of the column {'.'.join(path)}" for path in new.newly_not_null(old)]
    for rule in rules:
        yield FileRequirement(
            Condition.CHECKED_ROWS,
            f"the rows of the table aren't checked against the {rule}; the engine doesn't see rows, so use "
            "airflow_delta.spark.add_constraint or set_not_null, which check them with Spark",
        )
    if [*new.partition_columns] != [*old.partition_columns]:
        yield FileRequirement(
            Condition.NO_FILES,
            f"the files are partitioned by {[*old.partition_columns.values()]}; create a new table with "
            "other partition columns",
        )
