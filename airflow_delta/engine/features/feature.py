"""`Feature`: a row of the registry, with the columns of the support matrix.

PROTOCOL.md, "Table Features", "Supported Features" and "Active Features".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TypeAlias

from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import StructType

__all__ = ["Activation", "Drop", "Feature", "Kind", "Support"]

Activation: TypeAlias = Callable[[TableProperties, StructType], bool]
"""Decides whether a table's properties and schema use a feature."""


class Kind(Enum):
    """The clients that a feature binds."""

    WRITER = "writer"
    READER_WRITER = "reader-writer"


class Support(Enum):
    """Whether the engine does what a feature requires.

    ``IF_ENFORCED`` is for features with rules about the values of rows, which the engine doesn't see. While
    the feature is active, the writer of data files must declare that it enforced the rules on its rows.
    """

    YES = "yes"
    IF_ENFORCED = "if enforced"
    NO = "no"


@dataclass(frozen=True, slots=True)
class Drop:
    """The way in which a feature is dropped from a table.

    Attributes:
        note: the procedure, as a phrase, for plans and the reference.
        hides_history: whether clients that don't know the feature can misread or damage older versions
            that use it. Such versions must be hidden behind checkpoints, or deleted.
        disabling_properties: table properties that stop the use of the feature, by name. A commit of its
            own sets them before anything else is done; it removes those whose value is None.
        removed_properties: table properties that are removed together with the feature.
    """

    note: str
    hides_history: bool = False
    disabling_properties: Mapping[str, str | None] = field(
        default_factory=lambda: MappingProxyType({})
    )
    removed_properties: frozenset[str] = frozenset()


_STAYS = "no procedure to drop it is known"


@dataclass(frozen=True, slots=True)
class Feature:
    """One table feature.

    Attributes:
        name: the name in the protocol; case-sensitive.
        kind: which clients it binds.
        spec: document and section that define it; empty if the specification lacks it.
        note: one sentence on what the engine does with it, for messages and the reference.
        reader_version: the legacy reader version that implies it; None if there is none.
        writer_version: the legacy writer version that implies it; None if there is none.
        requires: other features that the table must support too.
        table_property: the table property that turns it on; None if there is none.
        active: decides whether a table's metadata use it; None if it is active as soon as it is supported.
        read: whether the engine reads tables that support it.
        append: whether the engine commits data files to such tables; if not, it makes no commits at all.
        checkpoint: whether the engine writes checkpoints and similar files for such tables.
        concurrent: whether a commit may follow a concurrent commit that adds the feature: either the
            feature requires nothing of that commit, or the stages of its next attempt do what it requires.
        drop: how it is dropped from a table; or, as a text, why it can't be.
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
    concurrent: bool = False
    drop: Drop | str = _STAYS

    @property
    def is_legacy(self) -> bool:
        """Whether a writer version before table features implies it."""
        return self.writer_version is not None
