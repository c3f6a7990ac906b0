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
from airflow_delta.hooks.storage_options import TEST_LOCATION, plain_extra, storage_options

if TYPE_CHECKING:
    from airflow_delta.engine.errors import DeltaError

__all__ = ["DeltaHook"]


class DeltaHook(ReadMethods, RepairMethods):
    """Open, inspect and maintain Delta tables.

    :param delta_conn_id: the connection with the credentials, of type ``delta`` or one of the
        clouds' own types. None: the default connection of each table URI's scheme.
    :param commit_owner_conn_id: the connection with the database of the SQL commit owner, for managed
        tables. None: ``delta_commit_owner_default`` if it exists, else the environment variable
        ``AIRFLOW_DELTA_COMMIT_OWNER_URL``.
    :param allowed_outside: locations outside of the tables below which they may read files that their logs
        name, in addition to those in the connection's extra of the same name; see `DeltaTable`.
    """

    conn_name_attr = "delta_conn_id"
    default_conn_name = "delta_default"
    conn_type = "delta"
    hook_name = "Delta Lake"

    def test_connection(self) -> tuple[bool, str]:
        """Test the connection, for the button of Airflow's form and ``airflow connections test``.

        It lists and reads below the location in the extra ``test_location``, and changes nothing. It needs
        the setting ``[core] test_connection``, and runs where Airflow's API server or the command runs.

        :returns: whether the store accepts the connection, and what was tried; never a secret.
        """
        from airflow_delta.hooks.connection_check import check_connection

        try:
            connection = self.get_connection(self.delta_conn_id or self.default_conn_name)
            extra = plain_extra(connection, connection.extra_dejson)
            options = storage_options(connection, extra)
        except Exception as error:  # noqa: BLE001 - the form must show any error
            return False, f"{type(error).__name__}: {error}"
        return check_connection(str(extra.get(TEST_LOCATION) or "").strip(), options)

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
