"""Arguments of tasks in DAG runs: a template that renders to nothing is never the default."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.hooks.failures import ArgumentError
from airflow_delta.operators.change_feed import ChangeFeedOperator
from airflow_delta.operators.checkpoint import CheckpointOperator
from airflow_delta.operators.commit_ownership import ConvertToManagedCommitOperator
from airflow_delta.operators.optimize import OptimizeOperator
from airflow_delta.operators.restore import RestoreOperator
from airflow_delta.operators.table_profile import TableProfileOperator
from airflow_delta.operators.time_travel_snapshot import TimeTravelSnapshotOperator
from airflow_delta.operators.vacuum import VacuumOperator
from airflow_delta.sensors.backfill import BackfillSensor
from airflow_delta.sensors.table_version import TableVersionSensor
from airflow_delta.templates import optional
from tests.airflow.dag_runs import new_dag, run_of

PARAMS = {"nothing": None, "empty": "", "table": "/data/t", "memory": "2g"}

NOTHING = [
    "{{ params.nothing }}",
    "{{ params.empty }}",
    " {{ none }} ",
    "{{ params.nothing | tojson }}",
]


def rendered(task: Any) -> Any:
    task.render_template_fields({"params": PARAMS})
    return task


@pytest.mark.parametrize("template", NOTHING)
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (TimeTravelSnapshotOperator, "version"),
        (TimeTravelSnapshotOperator, "timestamp"),
        (TimeTravelSnapshotOperator, "target_uri"),
        (TimeTravelSnapshotOperator, "delta_conn_id"),
        (TableVersionSensor, "min_version"),
        (TableVersionSensor, "after_version"),
        (BackfillSensor, "version"),
        (CheckpointOperator, "policy"),
        (OptimizeOperator, "where"),
        (OptimizeOperator, "max_bytes"),
        (VacuumOperator, "inventory"),
        (VacuumOperator, "dry_run"),
        (TableProfileOperator, "columns"),
        (ChangeFeedOperator, "end_version"),
    ],
)
def test_what_the_author_gives_and_renders_to_nothing_is_an_error(
    kind: Any, name: str, template: str
) -> None:
    task = kind(task_id="t", table_uri="/data/t", **{name: template})
    with pytest.raises(ArgumentError) as failed:
        rendered(task)
    message = str(failed.value)
    assert message.startswith(f"{kind.__name__} 't': {name}: the template {template!r} rendered to")
    assert "optional(...)" in message


@pytest.mark.parametrize("template", NOTHING)
def test_a_table_is_never_a_directory_of_the_worker(template: str) -> None:
    for uri in (template, "{{ params.nothing }}/t"):
        with pytest.raises(ArgumentError, match="table_uri: "):
            rendered(CheckpointOperator(task_id="t", table_uri=uri))


def test_nested_templates_are_looked_at_too() -> None:
    conf: dict[str, Any] = {"spark.a": "{{ params.memory }}", "spark.b": ["{{ params.nothing }}"]}
    task = CheckpointOperator(task_id="t", table_uri="/data/t", spark_conf=conf)
    with pytest.raises(ArgumentError, match=r"spark_conf\['spark.b'\]\[0\]: the template"):
        rendered(task)
    profile = TableProfileOperator(
        task_id="t", table_uri="/data/t", columns=["id", "{{ params.nothing }}"]
    )
    with pytest.raises(ArgumentError, match=r"columns\[1\]: the template"):
        rendered(profile)


def test_an_optional_template_may_render_to_nothing() -> None:
    task = rendered(
        TimeTravelSnapshotOperator(
            task_id="t",
            table_uri="{{ params.table }}",
            version=optional("{{ params.nothing }}"),
            target_format=optional("{{ params.empty }}"),
            spark_conf={
                "spark.a": optional("{{ params.memory }}"),
                "spark.b": optional("{{ none }}"),
            },
        )
    )
    assert (task.table_uri, task.version, task.argument("target_format")) == (
        "/data/t",
        None,
        "delta",
    )
    assert task.spark_conf == {"spark.a": "2g"}
    profile = TableProfileOperator(
        task_id="t", table_uri="/data/t", columns=optional("{{ params.nothing | tojson }}")
    )
    assert rendered(profile).columns is None
    # Not the empty dictionary, which is a configuration, nor the empty list, which are no columns.
    convert = ConvertToManagedCommitOperator(
        task_id="t", table_uri="/data/t", conf={"backfill": optional("{{ params.nothing }}")}
    )
    assert rendered(convert).argument("conf") is None
    some = TableProfileOperator(
        task_id="t", table_uri="/data/t", columns=[optional("{{ params.nothing }}")]
    )
    assert rendered(some).argument("columns") is None


def test_an_optional_template_that_says_something_counts() -> None:
    pin = {"task_id": "t", "table_uri": "/data/t"}
    task = TimeTravelSnapshotOperator(**pin, target_uri=optional("{{ params.table }}"))
    assert rendered(task).target_uri == "/data/t"
    with pytest.raises(
        ArgumentError,
        match="version: expected a version such as 24, or 'triggering_event', found '2g'",
    ):
        rendered(TimeTravelSnapshotOperator(**pin, version=optional("{{ params.memory }}")))


def test_what_must_be_given_may_not_be_left_open() -> None:
    with pytest.raises(ArgumentError, match=r"table_uri: expected .* found None$"):
        rendered(CheckpointOperator(task_id="t", table_uri=optional("{{ params.nothing }}")))


def test_python_s_none_and_nothing_at_all_mean_the_default() -> None:
    for arguments in ({}, {"mode": None, "dry_run": None, "retention_hours": None, "engine": None}):
        task = rendered(VacuumOperator(task_id="t", table_uri="/data/t", **arguments))
        names = ("mode", "dry_run", "retention_hours", "engine")
        assert [task.argument(name) for name in names] == ["full", False, None, "local"]


def test_native_rendering_is_no_way_around() -> None:
    def task(**arguments: Any) -> Any:
        with new_dag(render_template_as_native_obj=True):
            return TimeTravelSnapshotOperator(task_id="t", table_uri="/data/t", **arguments)

    def render(task: Any) -> Any:
        task.render_template_fields({"params": PARAMS}, task.dag.get_template_env())
        return task

    with pytest.raises(ArgumentError, match="rendered to None"):
        render(task(version="{{ params.nothing }}"))
    assert render(task(version=optional("{{ params.nothing }}"))).version is None
    assert render(task(version="{{ 7 }}")).version == 7


def test_templates_of_other_delimiters_are_templates() -> None:
    with new_dag(
        jinja_environment_kwargs={"variable_start_string": "<<", "variable_end_string": ">>"}
    ):
        task = TimeTravelSnapshotOperator(
            task_id="t", table_uri="/t", version="<< params.nothing >>"
        )
        TimeTravelSnapshotOperator.partial(task_id="m", version="<< 1 >>").expand(table_uri=["/t"])
    with pytest.raises(ArgumentError, match=r"version: the template '<< params\.nothing >>'"):
        task.render_template_fields({"params": PARAMS}, task.dag.get_template_env())


# What is written in the DAG file is checked when it is parsed


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (OptimizeOperator, {"max_bytes": 0}, "max_bytes: expected a number of bytes from 1 on"),
        (OptimizeOperator, {"max_deleted_ratio": 5}, "max_deleted_ratio: expected a number from 0"),
        (VacuumOperator, {"mode": "ful"}, "mode: expected one of full, lite, found 'ful'"),
        (VacuumOperator, {"engine": "sparc"}, "engine: expected one of local, spark"),
        (VacuumOperator, {"engine": "spark", "mode": "lite"}, "a vacuum by Spark is 'full'"),
        (VacuumOperator, {"mode": "lite", "inventory": "/i"}, "with an inventory is 'full'"),
        (VacuumOperator, {"inventory": "i"}, "inventory: expected an absolute path"),
        (VacuumOperator, {"retention_hours": "a week"}, "retention_hours: expected a number"),
        (VacuumOperator, {"retention_hours": -1}, "retention_hours: expected a number of hours"),
        (VacuumOperator, {"enforce_retention": "{{ params.x }}"}, "True or False"),
        (CheckpointOperator, {"engine": "sparc"}, "engine: expected one of auto, local, spark"),
        (CheckpointOperator, {"policy": "v3"}, "policy: expected one of classic, v2, found 'v3'"),
        (CheckpointOperator, {"version": -1}, "or 'triggering_event', found -1"),
        (CheckpointOperator, {"version": "newest"}, "version: expected a version"),
        (CheckpointOperator, {"spark_conf": "a=b"}, "spark_conf: expected a dictionary"),
        (CheckpointOperator, {"delta_conn_id": 7}, "delta_conn_id: expected a text"),
        (
            TimeTravelSnapshotOperator,
            {"version": 1, "timestamp": 1},
            "both version=1 and timestamp=1",
        ),
        (TimeTravelSnapshotOperator, {"timestamp": "yesterday"}, "timestamp: expected ISO-8601"),
        (
            TimeTravelSnapshotOperator,
            {"target_format": "orc"},
            "target_format: expected one of delta",
        ),
        (
            TimeTravelSnapshotOperator,
            {"target_uri": "pins"},
            "target_uri: expected an absolute path",
        ),
        (
            TimeTravelSnapshotOperator,
            {"target_uri": "/pins", "expire_after": "7 days"},
            "expire_after: expected a timedelta",
        ),
        (TimeTravelSnapshotOperator, {"expire_after": "P7D"}, "without target_uri"),
        (TableVersionSensor, {"min_version": 1, "after_version": 0}, "both min_version=1 and"),
        (TableVersionSensor, {"min_version": -1}, "min_version: expected a version"),
        (ChangeFeedOperator, {"start_version": 5, "end_version": 3}, "start_version=5 is after"),
        (RestoreOperator, {}, "give a version or a timestamp to restore"),
        (RestoreOperator, {"version": "{{ a }}", "timestamp": "{{ b }}"}, "both version="),
        (CheckpointOperator, {"table_uri": "data/t"}, "table_uri: expected an absolute path"),
        (CheckpointOperator, {"table_uri": Path("/t")}, "table_uri: expected a path or a URI"),
        (CheckpointOperator, {"table_uri": ""}, "table_uri: expected an absolute path"),
    ],
    ids=str,
)
def test_a_mistake_fails_when_the_dag_is_parsed(
    kind: Any, arguments: dict[str, Any], message: str
) -> None:
    task = {"task_id": "t", "table_uri": "/data/t", **arguments}
    with pytest.raises(ArgumentError) as failed:
        kind(**task)
    assert f"{kind.__name__} 't': " in str(failed.value)
    assert message in str(failed.value)
    if "without" in message or "give a version" in message:
        kind.partial(**task)  # What is missing may come with ``expand``.
        return
    with pytest.raises(ArgumentError) as failed:
        kind.partial(**task)
    assert message in str(failed.value)


def test_the_same_mistake_in_a_template_fails_when_it_is_rendered() -> None:
    task = VacuumOperator(
        task_id="t", table_uri="/data/t", mode="{{ 'ful' }}", engine="{{ 'spark' }}"
    )
    with pytest.raises(ArgumentError, match="mode: expected one of full, lite, found 'ful'"):
        rendered(task)
    task = VacuumOperator(task_id="t", table_uri="/data/t", mode="{{ 'lite' }}", engine="spark")
    with pytest.raises(ArgumentError, match="a vacuum by Spark is 'full'"):
        rendered(task)


def test_the_formats_are_those_of_the_jobs() -> None:
    from airflow_delta.change_feeds import request as changes_rules
    from airflow_delta.copies import formats as copy_formats
    from airflow_delta.operators import change_feed, time_travel_snapshot

    assert set(time_travel_snapshot.FORMATS) == set(copy_formats.FORMATS)
    assert set(change_feed.FORMATS) == set(changes_rules.FORMATS)


def test_every_argument_of_every_operator_has_a_reader() -> None:
    import inspect

    from airflow_delta.operators.arguments import attribute_of
    from airflow_delta.operators.spark_task import JobTask
    from airflow_delta.operators.table_task import TableTask
    from airflow_delta.sensors.table_wait import TableWait

    kinds = [kind for kind in all_kinds(TableTask) if kind not in (TableWait, JobTask)]
    assert len(kinds) >= 14
    for kind in kinds:
        given = set(inspect.signature(kind.__init__).parameters) - {"self", "kwargs"}
        assert given <= set(kind.arguments), kind
        fields = {attribute_of(name) for name in kind.arguments}
        assert set(kind.template_fields) <= fields, kind


def all_kinds(kind: Any) -> list[Any]:
    import importlib
    import pkgutil

    import airflow_delta.operators
    import airflow_delta.sensors

    for package in (airflow_delta.operators, airflow_delta.sensors):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    direct = [k for k in kind.__subclasses__() if k.__module__.startswith("airflow_delta.")]
    return [*direct, *(below for k in direct for below in all_kinds(k))]


# In DAG runs


def test_a_version_that_nobody_has_pushed_is_not_the_newest(
    airflow_database: Path, sales_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from airflow.sdk import task

    with new_dag() as dag:

        @task
        def nothing() -> None:
            """Push nothing."""

        late = nothing()
        table = str(sales_copy)
        by_text = TimeTravelSnapshotOperator(
            task_id="by_text",
            table_uri=table,
            version="{{ ti.xcom_pull(task_ids='nope') }}",
            retries=3,
        )
        by_reference = TimeTravelSnapshotOperator(
            task_id="by_reference", table_uri=table, version=late, retries=3
        )
        left_open = TimeTravelSnapshotOperator(
            task_id="left_open", table_uri=table, version=optional(late)
        )
        late >> by_text
    assert by_reference.upstream_task_ids == left_open.upstream_task_ids == {"nothing"}
    run = run_of(dag)
    assert run.states["by_text"] == run.states["by_reference"] == "failed", "and not tried again"
    assert run.results["left_open"]["version"] == 3
    out = capsys.readouterr().out
    assert re.search(
        r"version: the template .*xcom_pull\(task_ids='nope'\).* rendered to 'None'", out
    )
    assert "version: the template nothing.output rendered to None" in out


def test_mapped_tasks_are_checked_one_by_one(airflow_database: Path, sales_copy: Path) -> None:
    from airflow.sdk import task

    table = str(sales_copy)
    with new_dag() as dag:

        @task
        def versions() -> list[int | None]:
            """What to pin, one of them missing."""
            return [1, None]

        @task
        def tables() -> list[dict[str, Any]]:
            """What to pin, by whole arguments."""
            return [{"table_uri": table, "version": None}, {"table_uri": table}]

        pin = TimeTravelSnapshotOperator
        pin.partial(task_id="by_result", table_uri=table).expand(version=versions())
        pin.partial(task_id="by_arguments").expand_kwargs(tables())
        pin.partial(task_id="by_list", table_uri=table).expand(
            version=[2, None, "{{ 1 }}", "{{ none }}"]
        )
        pin.partial(task_id="shared", version=optional("{{ none }}")).expand(table_uri=[table])
        pin.partial(task_id="missing", version="{{ none }}").expand(table_uri=[table])
        listed = pin.partial(task_id="listed").expand_kwargs(
            [{"table_uri": table, "version": None}]
        )
    assert listed.operator_class is pin
    run = run_of(dag)
    failed = {"by_result[1]", "by_arguments[0]", "by_list[3]", "missing[0]"}
    assert {name for name, state in run.states.items() if state == "failed"} == failed
    pinned = {
        name: found["version"]
        for name, found in run.results.items()
        if name in run.states and isinstance(found, dict)
    }
    assert pinned == {
        "by_result[0]": 1,
        "by_arguments[1]": 3,
        "by_list[0]": 2,
        "by_list[1]": 3,
        "by_list[2]": 1,
        "shared[0]": 3,
        "listed[0]": 3,
    }


def test_a_resumed_sensor_is_rendered_and_checked_again(
    airflow_database: Path, sales_copy: Path
) -> None:
    def dag_of(template: Any) -> Any:
        with new_dag(params={"table": str(sales_copy), "after": None}) as dag:
            TableVersionSensor(
                task_id="wait",
                table_uri="{{ params.table }}",
                after_version=template,
                deferrable=True,
                timeout=0.2,
                poke_interval=0.05,
            )
        return dag

    # It waits in the trigger for version 4, and is made anew when that gives up.
    assert run_of(dag_of("{{ 3 }}")).states == {"wait": "failed"}
    assert run_of(dag_of(optional("{{ params.after }}"))).results["wait"]["version"] == 3
    assert run_of(dag_of("{{ params.after }}")).states == {"wait": "failed"}


def test_an_optional_template_survives_serialization_and_copies() -> None:
    import copy

    from airflow.serialization.serialized_objects import DagSerialization

    template = optional("{{ params.nothing }}")
    assert type(copy.deepcopy(template)) is type(template)
    with new_dag(params=PARAMS, default_args={"delta_conn_id": template}) as dag:
        first = TimeTravelSnapshotOperator(task_id="a", table_uri="/t", version=template)
        TimeTravelSnapshotOperator(
            task_id="b", table_uri="/t", version=optional(first.output["version"])
        )
        CheckpointOperator.partial(task_id="c", version=template).expand(table_uri=["/t"])
    found = json.dumps(DagSerialization.to_dict(dag))
    assert found.count("{{ params.nothing }}") >= 3
    assert "optional(a.output['version'])" in found
    DagSerialization.from_dict(json.loads(found))
    assert dag.get_task("b").upstream_task_ids == {"a"}
    with pytest.raises(TypeError, match="optional\\(\\) takes a template or a reference"):
        optional(7)
