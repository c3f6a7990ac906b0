"""The one module that knows Airflow's names and versions.

All other modules import Airflow's names from here, so that only this module changes when a release of
Airflow moves a name. Airflow 3.3 and newer are supported. 3.3 is the first release that keeps the state of
a task over its retries (`task_state`), and the state of an asset over DAG runs (`asset_state`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.providers.common.compat.connection import (
    get_async_connection,
    get_async_extra_dejson,
)
from airflow.sdk import (
    Asset,
    AssetAlias,
    BaseHook,
    BaseOperator,
    BaseSensorOperator,
    Connection,
    Context,
    PokeReturnValue,
    XComArg,
    conf,
    get_current_context,
)
from airflow.sdk.definitions._internal.contextmanager import DagContext
from airflow.sdk.definitions._internal.expandinput import (
    DictOfListsExpandInput,
    MappedArgument,
)
from airflow.sdk.definitions._internal.mixins import ResolveMixin
from airflow.sdk.definitions.asset import AssetNameRef, AssetUriRef
from airflow.sdk.definitions.mappedoperator import MappedOperator
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    AirflowRuntimeError,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    ErrorType,
)
from airflow.sdk.log import amask_secret, mask_secret
from airflow.triggers.base import BaseEventTrigger, BaseTrigger, TriggerEvent
from airflow.triggers.shared_stream import SharedStreamProducer

__all__ = [
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowRuntimeError",
    "AirflowSensorTimeout",
    "AirflowSkipException",
    "AirflowTaskTimeout",
    "Asset",
    "AssetAlias",
    "AssetNameRef",
    "AssetUriRef",
    "BaseEventTrigger",
    "BaseHook",
    "BaseOperator",
    "BaseSensorOperator",
    "BaseTrigger",
    "Connection",
    "Context",
    "PokeReturnValue",
    "ResolveMixin",
    "SharedStreamProducer",
    "TriggerEvent",
    "XComArg",
    "amask_secret",
    "ask_secrets_backend",
    "asset_state",
    "asset_states",
    "conf",
    "find_variables",
    "get_async_connection",
    "get_async_extra_dejson",
    "get_current_context",
    "has_dag",
    "hook_lineage_collector",
    "is_inactive_asset",
    "is_made_from_mapped",
    "is_openlineage_enabled",
    "is_unknown_asset",
    "is_written_none",
    "mapped_references",
    "mask_secret",
    "openlineage_timeout",
    "properties_of_parent_job",
    "reference_text",
    "secrets_backends",
    "set_variable",
    "task_state",
    "template_starts",
]

_TEMPLATE_STARTS = {
    "variable_start_string": "{{",
    "block_start_string": "{%",
    "comment_start_string": "{#",
}


def template_starts(dag: Any | None) -> tuple[str, ...]:
    """The texts that begin something to be rendered in the templates of a DAG's tasks.

    :param dag: the DAG, which may have its own for Jinja; None for the one that is being written.
    """
    own = getattr(dag or DagContext.get_current(), "jinja_environment_kwargs", None) or {}
    return tuple(str(own.get(name, start)) for name, start in _TEMPLATE_STARTS.items())


def reference_text(reference: Any) -> str:
    """A reference to the result of another task, as a DAG's author writes it."""
    operator, key = getattr(reference, "operator", None), getattr(reference, "key", None)
    if operator is None:
        return repr(reference)
    output = f"{operator.task_id}.output"
    return output if key in (None, "return_value") else f"{output}[{key!r}]"


def has_dag(task: BaseOperator) -> bool:
    """Whether a task belongs to a DAG."""
    return bool(task.has_dag())  # type: ignore[no-untyped-call]  # untyped in Airflow


def is_made_from_mapped(task: BaseOperator) -> bool:
    """Whether a task was made, when it was run, as one of the instances of a mapped task."""
    return bool(getattr(task, "_BaseOperator__from_mapped", False))


def mapped_references(task: BaseOperator) -> Mapping[str, Any]:
    """By argument, where ``expand`` or ``expand_kwargs`` of a mapped task has its value from.

    Only of values that come from other tasks: those that are in the DAG file are left out.

    :param task: one of the instances of the mapped task, before it is rendered.
    """
    mapped = task.dag.task_dict.get(task.task_id) if has_dag(task) else None
    if not isinstance(mapped, MappedOperator):
        return {}
    found = mapped.expand_input.value
    if isinstance(found, Mapping):
        return {
            name: value
            for name, value in found.items()
            if isinstance(value, XComArg | MappedArgument)
        }
    arguments = getattr(task, "_BaseOperator__init_kwargs", {})
    known = {*mapped.partial_kwargs, *task.dag.default_args}
    if isinstance(found, XComArg):
        return {name: found for name in arguments if name not in known}
    # A list, whose items are dictionaries of the DAG file, or references to one of each.
    references = [item for item in found if isinstance(item, XComArg)]
    return {name: references[0] for name in arguments if name not in known} if references else {}


def is_written_none(reference: Any) -> bool:
    """Whether a None that a reference has led to may be one that is written in the DAG file.

    That is so for arguments of a mapped group of tasks whose values are listed there.
    """
    if not isinstance(reference, MappedArgument):
        return False
    source, key = reference._input, reference._key  # noqa: SLF001
    given = source.value.get(key) if isinstance(source, DictOfListsExpandInput) else source.value
    return not isinstance(given, XComArg)


def task_state(context: Context) -> Any | None:
    """The key-value store of a task, with ``get(key)`` and ``set(key, value)`` of JSON values.

    It belongs to the task in its DAG run and survives retries. None where an operator is executed
    outside a DAG run.
    """
    return context.get("task_state_store")


def asset_state(context: Context, asset: Asset) -> Any | None:
    """The key-value store of an asset, with ``get(key)`` and ``set(key, value)`` of JSON values.

    It belongs to no run, and doesn't expire. None where an operator is executed outside a DAG run.

    Raises:
        AirflowFailException: the asset is no inlet or outlet of the task, which is what leads to it.
    """
    if task_state(context) is None:
        return None
    try:
        return context["asset_state_store"][asset]
    except KeyError as error:
        raise AirflowFailException(
            f"the state of {asset.name} can't be reached: it must be among the task's inlets"
        ) from error


def asset_states(store: Any | None) -> dict[str, Any]:
    """The key-value stores of the assets that a watcher belongs to, with ``aget(key)`` and ``aset``.

    Airflow runs one trigger for all assets whose watchers have the same arguments.

    :param store: the ``asset_state_store`` of the trigger; None where it belongs to no asset.
    :returns: by the name of the asset.
    """
    if store is None:
        return {}
    return {**store._by_name, **store._by_uri}  # noqa: SLF001


def is_inactive_asset(error: Exception) -> bool:
    """Whether ``aset`` of an asset's store has failed because no DAG uses the asset any more.

    Airflow's API answers 404 then. The supervisor has no error of its own for that.
    """
    if not isinstance(error, AirflowRuntimeError):
        return False
    detail = error.error.detail or {}
    return error.error.error is ErrorType.API_SERVER_ERROR and detail.get("status_code") == 404


_NO_VARIABLE = "airflow_delta: does the database answer? "


def secrets_backends() -> list[Any]:
    """The secrets backends that Airflow looks a connection up in, in this process."""
    from airflow.sdk.execution_time.supervisor import ensure_secrets_backend_loaded

    return list(ensure_secrets_backend_loaded())


def ask_secrets_backend(backend: Any, connection_id: str) -> Connection | None:
    """Look a connection up in one secrets backend, whose failures aren't hidden; see `find_variables`.

    :param backend: one of `secrets_backends`.
    :param connection_id: the id of the connection.
    :returns: the connection, with its secrets masked in logs; None if the backend doesn't have it.
    :raises Exception: whatever the backend raises if it can't answer.
    """
    from airflow.sdk.execution_time.secrets.execution_api import ExecutionAPISecretsBackend

    if isinstance(backend, ExecutionAPISecretsBackend):
        # It answers None also if Airflow's API server or its database fails.
        connection = _ask_api_server(connection_id)
    else:
        connection = backend.get_connection(conn_id=connection_id)
    if connection is not None:
        for secret in (connection.password, connection.extra):
            if secret:
                mask_secret(secret)
    return connection


def _ask_api_server(connection_id: str) -> Connection | None:
    from airflow.sdk.execution_time.comms import (
        ConnectionResult,
        ErrorResponse,
        GetConnection,
        GetVariableKeys,
        VariableKeysResult,
    )
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    # The API server, too, says that there is no connection if its database fails. A list of Variables, of
    # which there are none, shows whether the database answers. It comes first: if the failure that hid the
    # connection has ended meanwhile, the connection is found now.
    listed = SUPERVISOR_COMMS.send(GetVariableKeys(prefix=_NO_VARIABLE, limit=1))
    if isinstance(listed, ErrorResponse):
        raise AirflowRuntimeError(listed)
    if not isinstance(listed, VariableKeysResult):
        raise RuntimeError(f"can't list Variables: the answer is a {type(listed).__name__}")  # noqa: TRY004 - no mistake of a caller
    answer = SUPERVISOR_COMMS.send(GetConnection(conn_id=connection_id))
    if isinstance(answer, ErrorResponse):
        if answer.error is ErrorType.CONNECTION_NOT_FOUND:
            return None
        raise AirflowRuntimeError(answer)
    if not isinstance(answer, ConnectionResult):
        raise RuntimeError(f"can't look up a connection: the answer is a {type(answer).__name__}")  # noqa: TRY004 - no mistake of a caller
    return Connection(**answer.model_dump(exclude={"type"}, by_alias=True))


async def find_variables(prefix: str) -> dict[str, str]:
    """The values of the Variables whose keys begin with a prefix, as a trigger finds them.

    Airflow reports a Variable as missing also if it can't be read, for example because the database
    doesn't answer. Its list of keys doesn't hide that.

    :raises AirflowRuntimeError: the keys can't be listed.
    :raises RuntimeError: a listed Variable can't be read.
    """
    from airflow.sdk.execution_time.comms import (
        GetVariable,
        GetVariableKeys,
        VariableKeysResult,
        VariableResult,
    )
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    listed = await SUPERVISOR_COMMS.asend(GetVariableKeys(prefix=prefix))
    if not isinstance(listed, VariableKeysResult):
        raise RuntimeError(f"can't list the Variables {prefix}*: {listed!r}")  # noqa: TRY004 - no mistake of a caller
    found = {}
    for key in listed.keys:
        answer = await SUPERVISOR_COMMS.asend(GetVariable(key=key))
        if not isinstance(answer, VariableResult) or answer.value is None:
            raise RuntimeError(f"can't read the Variable {key}: {answer!r}")
        found[key] = answer.value
    return found


async def set_variable(key: str, value: str, description: str) -> None:
    """Set a Variable, from a trigger.

    :raises AirflowRuntimeError: it can't be set.
    """
    from airflow.sdk.execution_time.comms import PutVariable
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    await SUPERVISOR_COMMS.asend(PutVariable(key=key, value=value, description=description))


def is_unknown_asset(error: AirflowRuntimeError) -> bool:
    """Whether Airflow's answer is that it has no asset of a name or a URI, and not that it can't answer."""
    return error.error.error is ErrorType.ASSET_NOT_FOUND


def is_openlineage_enabled() -> bool:
    """Whether Airflow's provider for OpenLineage is installed, and sends events."""
    try:
        from airflow.providers.openlineage import conf as openlineage
    except ImportError:
        return False
    return not openlineage.is_disabled()


def openlineage_timeout() -> float:
    """The seconds that a task waits for OpenLineage at most, if its provider is installed.

    That is the setting ``[openlineage] execution_timeout``.
    """
    return float(conf.getint("openlineage", "execution_timeout", fallback=10))


def hook_lineage_collector() -> Any | None:
    """Airflow's collector of the assets that hooks read and write; None if nothing reads it.

    Without a reader, Airflow's own function returns a collector that does nothing, but imports the asset
    handlers of all providers for it.
    """
    from airflow.sdk.lineage import get_hook_lineage_collector
    from airflow.sdk.plugins_manager import get_hook_lineage_readers_plugins

    return get_hook_lineage_collector() if get_hook_lineage_readers_plugins() else None


def properties_of_parent_job(properties: Mapping[str, str]) -> dict[str, str]:
    """Add to Spark properties what OpenLineage's Spark listener must know of the task that runs.

    As in Airflow's own operators for Spark, ``[openlineage] spark_inject_parent_job_info`` and
    ``spark_inject_transport_info`` decide what is added. Properties that are given already stay.

    :param properties: the properties of a submission.
    """
    wants_parent = conf.getboolean("openlineage", "spark_inject_parent_job_info", fallback=False)
    wants_transport = conf.getboolean("openlineage", "spark_inject_transport_info", fallback=False)
    if not (wants_parent or wants_transport):
        return dict(properties)
    from airflow.providers.common.compat.openlineage.utils.spark import (
        inject_parent_job_information_into_spark_properties as with_parent,
    )
    from airflow.providers.common.compat.openlineage.utils.spark import (
        inject_transport_information_into_spark_properties as with_transport,
    )

    found, context = dict(properties), get_current_context()
    if wants_parent:
        found = with_parent(found, context)
    return with_transport(found, context) if wants_transport else found
