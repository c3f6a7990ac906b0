"""What applications leave at a table: the actions ``txn`` and ``domainMetadata``.

Spec: PROTOCOL.md, "Transaction Identifiers" and "Domain Metadata". The newest of each application,
and of each domain, holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_delta.engine.model.json_record import JsonRecord, fields, optional, required

__all__ = ["DomainMetadata", "Txn"]


@dataclass(frozen=True, slots=True)
class Txn(JsonRecord):
    """How far an application has come with its writes ("Transaction Identifiers").

    Attributes:
        app_id: the application's identifier.
        version: its progress; may also decrease.
        last_updated: epoch ms.
    """

    app_id: str
    version: int
    last_updated: int | None = None

    log_fields = fields(
        app_id=required("appId", str),
        version=required("version", int),
        last_updated=optional("lastUpdated", int),
    )


@dataclass(frozen=True, slots=True)
class DomainMetadata(JsonRecord):
    """The configuration of a named metadata domain ("Domain Metadata").

    Attributes:
        domain: the name; ``delta.`` in front marks those that only the protocol defines.
        configuration: opaque text, often JSON.
        removed: whether the action deletes the domain.
    """

    domain: str
    configuration: str
    removed: bool = False

    log_fields = fields(
        domain=required("domain", str),
        configuration=required("configuration", str),
        removed=required("removed", bool),
    )

    @property
    def is_system_controlled(self) -> bool:
        """Whether the domain belongs to the protocol, so that users may not change it.

        The case of its prefix doesn't matter, as some implementations compare without.
        """
        return self.domain.lower().startswith("delta.")
