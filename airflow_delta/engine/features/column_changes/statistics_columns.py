"""Update ``delta.dataSkippingStatsColumns`` when columns are renamed or dropped.

The property lists columns by their names. An outdated name would refer to no column, and writers would no
longer write statistics of the renamed one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.features.statistics_columns import STATISTICS_COLUMNS
from airflow_delta.engine.model.sql_names import split_names, sql_name

__all__ = ["drop_listed_column", "rename_listed_column"]


def rename_listed_column(
    configuration: Mapping[str, str], path: SchemaPath, name: str
) -> dict[str, str]:
    """The properties after a column is renamed.

    Args:
        configuration: the table's properties.
        path: the column, by its old name.
        name: its new name.
    """

    def _rename(listed: SchemaPath) -> SchemaPath:
        return (*path[:-1], name, *listed[len(path) :])

    return _change_list(configuration, path, _rename)


def drop_listed_column(configuration: Mapping[str, str], path: SchemaPath) -> dict[str, str]:
    """The properties after a column is dropped. The list stays, even if it is empty.

    Args:
        configuration: the table's properties.
        path: the column.
    """
    return _change_list(configuration, path, lambda _: None)


def _change_list(
    configuration: Mapping[str, str],
    path: SchemaPath,
    change: Callable[[SchemaPath], SchemaPath | None],
) -> dict[str, str]:
    listed = configuration.get(STATISTICS_COLUMNS)
    if listed is None:
        return dict(configuration)
    names = split_names(listed)
    prefix = [part.lower() for part in path]
    changed = [
        change(name) if [part.lower() for part in name[: len(path)]] == prefix else name
        for name in names
    ]
    if changed == names:
        return dict(configuration)
    text = ",".join(sql_name(name) for name in changed if name is not None)
    return {**configuration, STATISTICS_COLUMNS: text}
