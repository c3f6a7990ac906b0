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

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TypeAlias

from airflow_delta.engine.features.schema_walk import all_fields, all_types
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import TIMESTAMP_NTZ, VARIANT, DataType, StructType

__all__ = ["FEATURES", "Activation", "Feature", "Kind", "Support"]

Activation: TypeAlias = Callable[[TableProperties, StructType], bool]
"""Whether a table's properties and schema use a feature."""


class Kind(Enum):
    """Whom a feature binds."""

    WRITER = "writer"
    READER_WRITER = "reader-writer"


class Support(Enum):
    """How far the engine fulfils what a feature asks for."""

    YES = "yes"
    WHILE_INACTIVE = "while inactive"
    NO = "no"


@dataclass(frozen=True, slots=True)
class Feature:
    """One table feature.

    Attributes:
        name: as the protocol lists it; case-sensitive.
        kind: whom it binds.
        spec: document and section that define it; empty for what the specification lacks.
        note: one sentence on what the engine does with it, for messages and the reference.
        reader_version: the legacy reader version that implies it; None without one.
        writer_version: the legacy writer version that implies it; None without one.
        requires: features that a table must support along with it.
        table_property: the table property that turns it on; None without one.
        active: whether a table's metadata uses it; None where it is active once supported.
        read: whether the engine reads tables that support it.
        append: whether the engine commits data files to them.
        checkpoint: whether the engine writes checkpoints of them, and the like.
    """

    name: str
    kind: Kind
    spec: str
    note: str
    reader_version: int | None = None
    writer_version: int | None = None
    requires: frozenset[str] = frozenset()
    table_property: str | None = None
    active: Activation | None = None
    read: Support = Support.YES
    append: Support = Support.YES
    checkpoint: Support = Support.YES

    @property
    def is_legacy(self) -> bool:
        """Whether a writer version before table features implies it."""
        return self.writer_version is not None


def _flag(name: str) -> Activation:
    """Active while a table property is ``true``."""

    def active(properties: TableProperties, schema: StructType) -> bool:  # noqa: ARG001
        return properties.flag(name)

    return active


def _field_key(*prefixes: str) -> Activation:
    """Active while some column's metadata has a key with one of the prefixes."""

    def active(properties: TableProperties, schema: StructType) -> bool:  # noqa: ARG001
        return any(key.startswith(prefixes) for _, field in all_fields(schema) for key in field.metadata)

    return active


def _column_type(data_type: DataType) -> Activation:
    """Active while some column, at any depth, is of a type."""

    def active(properties: TableProperties, schema: StructType) -> bool:  # noqa: ARG001
        return any(found == data_type for _, found in all_types(schema))

    return active
