"""`DeltaHook`: Delta tables for tasks."""

from airflow_delta.hooks.delta.access import DeltaHook

__all__ = ["DeltaHook"]
