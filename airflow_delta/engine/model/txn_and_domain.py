"""The actions ``txn`` and ``domainMetadata``. The newest one of each application, or domain, counts.

PROTOCOL.md, "Transaction Identifiers" and "Domain Metadata".
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_delta.engine.model.json_record import JsonRecord, fields, optional, required

__all__ = ["DomainMetadata", "Txn"]


@dataclass(frozen=True, slots=True)
class Txn(JsonRecord):
    """The last transaction of an application ("Transaction Identifiers").

    Attributes:
        app_id: the application's identifier.
        version: the application's number for the transaction; may also decrease.
        last_updated: the time of the transaction, in epoch ms.
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
        domain: the name. Names that begin with ``delta.`` are reserved for the protocol.
        configuration: opaque text, often JSON.
        removed: whether the action removes the domain.
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
        """Whether the domain belongs to the protocol, so that users may not change it."""
        # In any case of the prefix, because some implementations ignore it.
        return self.domain.lower().startswith("delta.")
