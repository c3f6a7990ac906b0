"""``delta.dataSkippingStatsColumns`` follows its columns: renamed ones, and dropped ones.

The property lists columns by their names, so a list that stays behind would name columns that aren't
there, and writers would keep no statistics of those that it meant.
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
    """The properties once a column has another name.

    Args:
        configuration: the table's properties.
        path: the column, by its old name.
        name: its new name.
    """

    def _renamed(listed: SchemaPath) -> SchemaPath:
        return (*path[:-1], name, *listed[len(path) :])

    return _changed(configuration, path, _renamed)


def drop_listed_column(configuration: Mapping[str, str], path: SchemaPath) -> dict[str, str]:
    """The properties once a column is dropped; the list may be empty then, and stays.

    Args:
        configuration: the table's properties.
        path: the column.
    """
    return _changed(configuration, path, lambda _: None)


def _changed(
    configuration: Mapping[str, str],
    path: SchemaPath,
    change: Callable[[SchemaPath], SchemaPath | None],
) -> dict[str, str]:
    listed = configuration.get(STATISTICS_COLUMNS)
    if listed is None:
        return dict(configuration)
    names = split_names(listed)
    place = [part.lower() for part in path]
    changed = [
        change(name) if [part.lower() for part in name[: len(path)]] == place else name
        for name in names
    ]
    if changed == names:
        return dict(configuration)
    text = ",".join(sql_name(name) for name in changed if name is not None)
    return {**configuration, STATISTICS_COLUMNS: text}
