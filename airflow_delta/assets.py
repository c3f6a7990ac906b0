"""The asset of a Delta table in Airflow.

An asset of a table has the table's canonical URI, so that producers and consumers that spell the
location differently share one asset::

    from airflow_delta.assets import delta_asset

    SALES = delta_asset("s3a://lake/sales/", name="sales")  # its URI is s3://lake/sales

Importing this module loads nothing but Airflow's own classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_delta.hooks.argument_rules import check_location
from airflow_delta.hooks.failures import ArgumentError
from airflow_delta.hooks.table_locations import canonical_uri
from airflow_delta.version_compat import Asset

__all__ = ["delta_asset"]

_GROUP = "delta"


def delta_asset(
    uri: str,
    *,
    name: str | None = None,
    group: str = _GROUP,
    table_id: str | None = None,
    extra: Mapping[str, Any] | None = None,
    watchers: Sequence[Any] = (),
) -> Asset:
    """Create the asset of a table.

    The same table always has the same asset: ``s3a://`` and ``s3n://`` become ``s3://``, ``gcs://`` becomes
    ``gs://``, ``abfs://`` and ``az://`` become ``abfss://``, a path becomes a ``file://`` URI, and a slash
    at the end, or a connection in front of the bucket, is left out. So neither
    ``delta_conn_id`` nor the endpoint of a store is part of it.

    :param uri: the table's absolute path or URI.
    :param name: the asset's name; None: the canonical URI. Airflow identifies an asset by both, so every
        DAG must use the same one.
    :param group: the group of the asset in Airflow's user interface.
    :param table_id: the id in the table's metadata, if it is known, for the asset's ``extra``.
    :param extra: more entries of ``extra``, as JSON values.
    :param watchers: the ``AssetWatcher`` objects of the asset.
    :raises ArgumentError: the location is relative, has a password or a query, or can't be the URI of an
        asset.
    """
    try:
        canonical = canonical_uri(check_location(uri, name="uri"))
    except ValueError as error:
        raise ArgumentError(str(error)) from None
    if "?" in canonical or "#" in canonical:
        raise ArgumentError(
            f"uri: {uri!r} has a '?' or a '#', which Airflow takes for the query or the fragment of an "
            "asset's URI: it would cut the location short. Use an Asset with a name of your own"
        )
    known = {} if table_id is None else {"table_id": table_id}
    return Asset(
        name=canonical if name is None else name,
        uri=canonical,
        group=group,
        extra={**(extra or {}), **known},
        watchers=list(watchers),
    )
