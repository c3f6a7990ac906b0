"""Which rules of a table rewritten files keep.

The rows of rewritten files were in the table before, so they keep all rules about rows, such as
constraints. Iceberg compatibility is a rule about files.
"""

from __future__ import annotations

from airflow_delta.engine.features.feature import Support
from airflow_delta.engine.features.registry import FEATURES

__all__ = ["ENFORCED"]

_OF_FILES = frozenset({"icebergCompatV1", "icebergCompatV2"})

ENFORCED = frozenset(
    name for name, feature in FEATURES.items() if feature.append is Support.IF_ENFORCED
).difference(_OF_FILES)
"""The features whose rules about rows rewritten files keep, but for row tracking."""
