"""Read the columns of the tables of a task, at the versions that it read and wrote."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_delta.hooks.lineage.datasets import Column, Lineage, LineageDataset

if TYPE_CHECKING:
    from airflow_delta.engine.model.schema import DataType, StructType
    from airflow_delta.hooks.delta import DeltaHook

__all__ = ["TableColumns"]

_GENERATION_EXPRESSION = "delta.generationExpression"


class TableColumns:
    """Adds columns to the datasets of a task; each version of a table is opened once.

    :param hook: gives access to the tables.
    """

    def __init__(self, hook: DeltaHook) -> None:
        self._hook = hook
        self._known: dict[tuple[str, int], tuple[Column, ...]] = {}

    def add(self, lineage: Lineage) -> Lineage:
        """Add the columns of all tables whose version is known.

        :raises DeltaError: a table can't be read.
        """
        return Lineage(
            tuple(map(self._with_columns, lineage.inputs)),
            tuple(map(self._with_columns, lineage.outputs)),
        )

    def _with_columns(self, dataset: LineageDataset) -> LineageDataset:
        source = dataset.copied_from
        if source is not None:
            source = self._with_columns(source)
        if dataset.is_table:
            columns = self._columns(dataset.uri, dataset.version)
        else:
            # Files that are a copy have the columns of what they are copied from.
            columns = () if source is None else source.columns
        return self._with_origins(replace(dataset, columns=columns, copied_from=source))

    def _with_origins(self, dataset: LineageDataset) -> LineageDataset:
        from airflow_delta.hooks.lineage.column_origins import column_origins

        changes = dataset.row_changes
        if changes is None:
            return dataset
        if changes.source is not None:
            changes = replace(changes, source=self._with_columns(changes.source))
        known = replace(dataset, row_changes=changes)
        return replace(known, origins=column_origins(known))

    def _columns(self, uri: str, version: int | None) -> tuple[Column, ...]:
        if version is None:
            return ()
        if (uri, version) not in self._known:
            schema = self._hook.table(uri).snapshot(version).schema
            self._known[uri, version] = _columns_of(schema)
        return self._known[uri, version]


def _columns_of(schema: StructType) -> tuple[Column, ...]:
    return tuple(
        Column(
            field.name,
            _type_text(field.data_type),
            field.metadata.get("comment"),
            _fields_of(field.data_type),
            is_generated=_GENERATION_EXPRESSION in field.metadata,
        )
        for field in schema
    )


def _type_text(data_type: DataType) -> str:
    """The type; that of a struct without its fields, which OpenLineage lists below it."""
    from airflow_delta.engine.model.schema import StructType

    return "struct" if isinstance(data_type, StructType) else str(data_type)


def _fields_of(data_type: DataType) -> tuple[Column, ...]:
    from airflow_delta.engine.model.schema import StructType

    return _columns_of(data_type) if isinstance(data_type, StructType) else ()
