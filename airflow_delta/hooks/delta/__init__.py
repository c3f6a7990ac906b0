"""`DeltaHook`, Delta tables for tasks, with its methods by subject."""

from airflow_delta.hooks.delta.hook import DeltaHook

__all__ = ["DeltaHook"]
