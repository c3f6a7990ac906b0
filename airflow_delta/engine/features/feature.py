"""What the registry says about a table feature: the columns of the support matrix.

Spec: PROTOCOL.md, "Table Features", "Supported Features" and "Active Features".
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
"""Whether a table's properties and schema use a feature."""


class Kind(Enum):
    """Whom a feature binds."""

    WRITER = "writer"
    READER_WRITER = "reader-writer"


class Support(Enum):
    """How far the engine fulfils what a feature asks for.

    ``IF_ENFORCED`` is about features with rules for the values of rows, which the engine doesn't see:
    while the feature is active, data files come only from a writer that declares that it enforced the
    rules on its rows.
    """

    YES = "yes"
    IF_ENFORCED = "if enforced"
    NO = "no"


@dataclass(frozen=True, slots=True)
class Drop:
    """How a feature is dropped from a table.

    Attributes:
        note: what that takes, as a phrase, for plans and the reference.
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
        concurrent: whether a table may get it while a commit is being prepared: it asks nothing of that
            commit, or the stages of the next attempt see to it.
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
