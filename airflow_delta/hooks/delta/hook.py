"""`DeltaHook`: Delta tables for tasks.

Operators, sensors and triggers call it, and get plain dictionaries of text and numbers for XCom. Its
methods are in modules by subject: `reading`, `managed`, `maintenance` and `repair`; `access` converts
connections to storage options. It is the only access from Airflow to the log engine, which it imports
inside its methods, so that parsing a DAG file is fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_delta.hooks.delta.reading import ReadMethods
from airflow_delta.hooks.delta.repair import RepairMethods

if TYPE_CHECKING:
    from airflow_delta.engine.errors import DeltaError

__all__ = ["DeltaHook"]


class DeltaHook(ReadMethods, RepairMethods):
    """Open, inspect and maintain Delta tables.

    :param delta_conn_id: the connection with the credentials, of type ``delta`` or one of the
        clouds' own types. None: the default connection of each table URI's scheme.
    :param commit_owner_conn_id: the connection with the database of the SQL commit owner, for managed
        tables. None: ``delta_commit_owner_default`` if it exists, else the environment variable.
    :param allowed_outside: locations outside of the tables below which they may read files that their logs
        name, in addition to those in the connection's extra of the same name; see `DeltaTable`.
    """

    conn_name_attr = "delta_conn_id"
    default_conn_name = "delta_default"
    conn_type = "delta"
    hook_name = "Delta Lake"

    @staticmethod
    def error(kind: str, message: str) -> DeltaError:
        """Create the error that a trigger has reported, for the task to raise.

        :param kind: the name of the error's class. A class that isn't the engine's becomes a `DeltaError`
            with this name in its text.
        :param message: its text.
        """
        from airflow_delta.engine import errors

        known = getattr(errors, kind, None)
        if isinstance(known, type) and issubclass(known, errors.DeltaError):
            return known(message)
        return errors.DeltaError(f"{kind}: {message}")
