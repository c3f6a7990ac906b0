"""Find the commit that set a transaction identifier: how a retry recognises its own work."""

from __future__ import annotations

import json

from airflow_delta.engine.errors import VersionNotFoundError
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["version_of_transaction"]
