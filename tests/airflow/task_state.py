"""What Airflow keeps of a task beyond a try, as operators find it in their context."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["AssetStates", "TaskState"]


class TaskState:
    """The state of a task as Airflow keeps it: JSON values that survive a try."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def get(self, key: str, default: Any = None) -> Any:
        return json.loads(self.values[key]) if key in self.values else default

    def set(self, key: str, value: Any) -> None:
        assert value is not None, "Airflow stores no None"
        self.values[key] = json.dumps(value)

    def delete(self, key: str) -> None:
        self.values.pop(key, None)


class AssetStates:
    """The states of the assets that a task has as inlets or outlets, by the asset."""

    def __init__(self, *names: str) -> None:
        self._stores = {name: TaskState() for name in names}

    def __getitem__(self, asset: Any) -> TaskState:
        return self._stores[asset.name]
