"""Compute alterations of a table's properties, constraints, clustering, name and description."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.clustering import (
    DOMAIN,
    FEATURE,
    clustering_domain,
    parse_clustering_columns,
)
from airflow_delta.engine.features.clustering_choice import clustering_paths, without_statistics
from airflow_delta.engine.features.column_changes.column_paths import ColumnName, column_path
from airflow_delta.engine.features.column_mapping import mapping_mode, physical_paths
from airflow_delta.engine.features.known_properties import FEATURE_PREFIX
from airflow_delta.engine.features.negotiation.upgrade import upgrade_protocol
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.features.requests.property_changes import change_properties
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.features.statistics_columns import STATISTICS_COLUMNS
from airflow_delta.engine.model.arguments import (
    check_list,
    check_mapping,
    check_text,
    check_texts,
    wrong_argument,
)
from airflow_delta.engine.model.properties import CONSTRAINT_PREFIX, TableProperties
from airflow_delta.engine.model.sql_names import sql_name
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.transaction.alter.plan import Alteration
from airflow_delta.engine.transaction.unique import unique_text

__all__ = [
    "add_constraint",
    "add_feature",
    "cluster_by",
    "drop_constraint",
    "set_description",
    "set_name",
    "set_properties",
    "unset_properties",
]

_SET, _UNSET = "SET TBLPROPERTIES", "UNSET TBLPROPERTIES"
_ABOUT_STATISTICS = ("delta.dataSkippingNumIndexedCols", STATISTICS_COLUMNS)


def set_properties(base: Snapshot, properties: Mapping[str, str]) -> Alteration:
    """Set properties; see `change_properties`."""
    check_mapping("properties", properties, "a mapping of names to texts")
    if not properties:
        raise InvalidArgumentError("there are no properties to set")
    return _change_properties(base, _SET, {"properties": dict(properties)}, set=properties)


def unset_properties(base: Snapshot, names: Iterable[str], *, if_exists: bool) -> Alteration:
    """Remove properties; see `change_properties`."""
    expected = "a list of properties to unset"
    given = list(check_texts("names", names, expected))
    if not given:
        raise wrong_argument("names", expected, names)
    parameters = {"properties": given, "ifExists": if_exists}
    return _change_properties(base, _UNSET, parameters, unset=given, if_exists=if_exists)


def add_feature(base: Snapshot, name: str) -> Alteration:
    """Add a feature and all features that it requires."""
    check_text("name", name)
    return set_properties(base, {f"{FEATURE_PREFIX}{name}": "supported"})


def add_constraint(base: Snapshot, name: str, expression: str) -> Alteration:
    """Add a CHECK constraint. Its name is stored in lower case, as the reference implementation expects.

    Raises:
        InvalidArgumentError: the name or the expression is empty, or the name is taken.
    """
    check_text("name", name)
    check_text("expression", expression)
    if not name.strip() or not expression.strip():
        raise InvalidArgumentError(
            f"the constraint {name!r}, {expression!r}: expected a name and a SQL expression"
        )
    if (key := _constraint_key(base, name)) is not None:
        raise InvalidArgumentError(
            f"there is a constraint {key.removeprefix(CONSTRAINT_PREFIX)!r} already, "
            f"{base.metadata.configuration[key]!r}; drop it first"
        )
    text = expression.strip()
    configuration = {**base.metadata.configuration, CONSTRAINT_PREFIX + name.lower(): text}
    metadata = replace(base.metadata, configuration=configuration)
    return Alteration("ADD CONSTRAINT", {"name": name, "expr": text}, metadata)


def drop_constraint(base: Snapshot, name: str, *, if_exists: bool) -> Alteration:
    """Drop a CHECK constraint. The case of its name doesn't matter.

    Raises:
        InvalidArgumentError: there is no constraint of that name.
    """
    check_text("name", name)
    key = _constraint_key(base, name)
    if key is None and not if_exists:
        raise InvalidArgumentError(
            f"there is no constraint {name!r}; the table has {sorted(base.properties.constraints)}"
        )
    kept = dict(base.metadata.configuration)
    expression = {} if key is None else {"expr": kept.pop(key)}
    return Alteration(
        "DROP CONSTRAINT",
        {"name": name, **expression, "existed": str(key is not None).lower()},
        replace(base.metadata, configuration=kept),
    )


def cluster_by(base: Snapshot, columns: Sequence[ColumnName]) -> Alteration:
    """Cluster the table by other columns, or by none; see `clustering_paths`.

    Raises:
        InvalidArgumentError: the table can't be clustered by these columns; or no columns are given, and
            the table isn't clustered.
    """
    check_list("columns", columns, "a list of columns")
    if not columns and FEATURE not in supported_features(base.protocol):
        raise InvalidArgumentError("the table isn't clustered; expected columns to cluster it by")
    paths = clustering_paths(
        base.schema,
        columns,
        base.metadata.partition_columns,
        base.properties,
        mode=mapping_mode(base.protocol, base.metadata, table=base.table),
    )
    parameters = {
        "oldClusteringColumns": ",".join(map(sql_name, _clustering_columns(base))),
        "newClusteringColumns": ",".join(sql_name(column_path(column)) for column in columns),
    }
    return Alteration(
        "CLUSTER BY",
        parameters,
        base.metadata,
        upgrade_protocol(
            base.protocol,
            base.metadata,
            before=base.metadata,
            requested=frozenset({FEATURE}),
            table=base.table,
        ),
        domain=clustering_domain(paths),
    )


def set_name(base: Snapshot, name: str | None) -> Alteration:
    """Set or remove the table's name.

    Delta Spark has no such operation, so ``commitInfo`` describes it as deltalake does.
    """
    check_text("name", name, optional=True)
    parameters = {"metadataUpdate": {"name": name}}
    return Alteration("UPDATE TABLE METADATA", parameters, replace(base.metadata, name=name))


def set_description(base: Snapshot, description: str | None) -> Alteration:
    """Set or remove the table's description, which SQL calls its comment."""
    check_text("description", description, optional=True)
    metadata = replace(base.metadata, description=description)
    if description is None:
        return Alteration(_UNSET, {"properties": ["comment"], "ifExists": True}, metadata)
    return Alteration(_SET, {"properties": {"comment": description}}, metadata)


def _change_properties(
    base: Snapshot, operation: str, parameters: Mapping[str, Any], **changes: Any
) -> Alteration:
    protocol, metadata = change_properties(
        base.protocol, base.metadata, unique=unique_text, table=base.table, **changes
    )
    old, new = base.metadata.configuration, metadata.configuration
    alteration = Alteration(operation, parameters, metadata, protocol)
    if all(old.get(name) == new.get(name) for name in _ABOUT_STATISTICS):
        return alteration
    _check_statistics_stay(base, TableProperties(new, base.table))
    return replace(alteration, relies_on=DOMAIN)


def _check_statistics_stay(base: Snapshot, properties: TableProperties) -> None:
    """Refuse properties under which a clustering column would lose its statistics; see `clustering_paths`.

    A column that has no statistics before the change doesn't matter: the change may be a step towards them.
    """
    columns = _clustering_columns(base)
    before = without_statistics(columns, base.schema, base.properties)
    for path in without_statistics(columns, base.schema, properties):
        if path not in before:
            raise InvalidArgumentError(
                f"the table is clustered by {sql_name(path)}, which would get no statistics; include it in "
                f"{' and '.join(_ABOUT_STATISTICS)}, or cluster the table by other columns first"
            )


def _clustering_columns(base: Snapshot) -> list[SchemaPath]:
    """The logical paths of the clustering columns; physical paths for columns that the schema lacks."""
    domain = base.domains.get(DOMAIN)
    if domain is None:
        return []
    mode = mapping_mode(base.protocol, base.metadata, table=base.table)
    logical = {physical: path for path, physical in physical_paths(base.schema, mode).items()}
    columns = parse_clustering_columns(domain.configuration, table=base.table)
    return [logical.get(path, path) for path in columns]


def _constraint_key(base: Snapshot, name: str) -> str | None:
    """The property of a constraint. The case of the constraint's name doesn't matter."""
    wanted = CONSTRAINT_PREFIX.lower() + name.lower()
    return next((key for key in base.metadata.configuration if key.lower() == wanted), None)
