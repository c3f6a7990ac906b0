"""The assets by which hooks report tables, and their datasets in OpenLineage.

Airflow's provider for OpenLineage knows the dataset of an asset only if a provider has registered the
scheme of its URI. So these assets have schemes of their own, such as ``delta+s3``, which
`airflow_delta.provider` registers. Their datasets have versions, and no other provider is needed.

Airflow imports this module wherever assets are made, so it imports nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openlineage.client.event_v2 import Dataset

__all__ = ["PREFIX", "SCHEMES", "TABLE_URI", "VERSION", "convert_asset"]

PREFIX = "delta+"
"""The start of the scheme; the URI of the table follows."""

SCHEMES = ("delta+file", "delta+s3", "delta+gs", "delta+abfss", "delta+hdfs")
"""The registered schemes."""

TABLE_URI, VERSION = "table_uri", "version"
"""The entries of an asset's ``extra``."""


def convert_asset(asset: Any, lineage_context: Any) -> Dataset:  # noqa: ARG001  (Airflow's signature)
    """Convert the asset of a table to a dataset of OpenLineage.

    :param asset: the asset.
    :param lineage_context: the hook that has reported it.
    """
    from airflow_delta.hooks.lineage.datasets import LineageDataset
    from airflow_delta.hooks.lineage.facets import plain_dataset

    uri = asset.extra.get(TABLE_URI) or asset.uri.removeprefix(PREFIX)
    return plain_dataset(LineageDataset(uri, asset.extra.get(VERSION)))
