"""Programs for deploy mode ``cluster`` on YARN: one for the driver's container, one for the worker."""

from __future__ import annotations

__all__: list[str] = []
