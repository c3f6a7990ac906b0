"""Convert the datasets of a task to the objects of OpenLineage.

This is the only module that imports the OpenLineage client and Airflow's provider for it, from the extra
``openlineage``. Import it only in the methods by which Airflow's listener gets the datasets of a task.

https://openlineage.io/docs/spec/facets/dataset-facets
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from airflow.providers.openlineage.extractors import OperatorLineage
from openlineage.client.event_v2 import Dataset, InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    DatasetFacet,
    OutputDatasetFacet,
    column_lineage_dataset,
    dataset_version_dataset,
    lifecycle_state_change_dataset,
    output_statistics_output_dataset,
    schema_dataset,
    storage_dataset,
)

from airflow_delta.hooks.lineage.datasets import (
    Column,
    ColumnOrigin,
    Lineage,
    LineageDataset,
    WrittenData,
    dataset_name,
)

__all__ = ["operator_lineage", "plain_dataset"]

_FILE_FORMATS = ("parquet", "orc", "avro", "json", "csv", "text", "xml")
"""The formats of the storage facet."""


def operator_lineage(lineage: Lineage) -> OperatorLineage[Any, Any]:
    """The lineage of a task as its operator returns it to Airflow's provider.

    :param lineage: the datasets.
    """
    return OperatorLineage(
        inputs=[_input_dataset(dataset) for dataset in lineage.inputs],
        outputs=[_output_dataset(dataset) for dataset in lineage.outputs],
    )


def plain_dataset(dataset: LineageDataset) -> Dataset:
    """A dataset, without what is special to an input or an output.

    :param dataset: the dataset.
    """
    namespace, name = dataset_name(dataset.uri)
    return Dataset(namespace=namespace, name=name, facets=_facets(dataset))


def _input_dataset(dataset: LineageDataset) -> InputDataset:
    namespace, name = dataset_name(dataset.uri)
    return InputDataset(namespace=namespace, name=name, facets=_facets(dataset))


def _output_dataset(dataset: LineageDataset) -> OutputDataset:
    namespace, name = dataset_name(dataset.uri)
    statistics: dict[str, OutputDatasetFacet] = {}
    written = dataset.written
    if written is not None and written != WrittenData():
        statistics["outputStatistics"] = (
            output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                rowCount=written.rows, size=written.size, fileCount=written.files
            )
        )
    facets = _facets(dataset)
    if dataset.change is not None:
        facets["lifecycleStateChange"] = (
            lifecycle_state_change_dataset.LifecycleStateChangeDatasetFacet(
                lifecycle_state_change_dataset.LifecycleStateChange(dataset.change)
            )
        )
    if origins := (*_identical_columns(dataset), *dataset.origins):
        facets["columnLineage"] = _column_lineage(origins)
    return OutputDataset(namespace=namespace, name=name, facets=facets, outputFacets=statistics)


def _facets(dataset: LineageDataset) -> dict[str, DatasetFacet]:
    """The facets of a dataset that is read or written."""
    facets: dict[str, DatasetFacet] = {}
    file_format = "parquet" if dataset.is_table else dataset.file_format
    if file_format in _FILE_FORMATS:
        # The layer of files without a table format is "default", as in OpenLineage's events of Spark.
        facets["storage"] = storage_dataset.StorageDatasetFacet(
            storageLayer="delta" if dataset.is_table else "default", fileFormat=file_format
        )
    if dataset.version is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(
            datasetVersion=str(dataset.version)
        )
    if dataset.columns:
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=_fields(dataset.columns))
    return facets


def _fields(columns: tuple[Column, ...]) -> list[schema_dataset.SchemaDatasetFacetFields]:
    return [
        schema_dataset.SchemaDatasetFacetFields(
            name=column.name,
            type=column.type,
            description=column.comment,
            fields=_fields(column.fields),
        )
        for column in columns
    ]


def _identical_columns(dataset: LineageDataset) -> list[ColumnOrigin]:
    """The columns that a dataset has unchanged from the one that it is copied from."""
    source = dataset.copied_from
    if source is None:
        return []
    names = {column.name for column in source.columns}
    return [
        ColumnOrigin(column.name, source.uri, column.name)
        for column in dataset.columns
        if column.name in names
    ]


def _column_lineage(
    origins: Iterable[ColumnOrigin],
) -> column_lineage_dataset.ColumnLineageDatasetFacet:
    found: dict[str, dict[tuple[str, str], list[str]]] = {}
    for one in origins:
        subtypes = found.setdefault(one.name, {}).setdefault((one.uri, one.origin), [])
        subtypes.append("IDENTITY" if one.is_unchanged else "TRANSFORMATION")
    return column_lineage_dataset.ColumnLineageDatasetFacet(
        fields={
            name: column_lineage_dataset.Fields(
                inputFields=[_input_field(*origin, subtypes) for origin, subtypes in given.items()]
            )
            for name, given in found.items()
        }
    )


def _input_field(uri: str, field: str, subtypes: list[str]) -> column_lineage_dataset.InputField:
    namespace, name = dataset_name(uri)
    return column_lineage_dataset.InputField(
        namespace=namespace,
        name=name,
        field=field,
        transformations=[
            column_lineage_dataset.Transformation(type="DIRECT", subtype=subtype)
            for subtype in subtypes
        ],
    )
