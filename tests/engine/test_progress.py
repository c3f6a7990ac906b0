"""Progress: what a listener hears of each operation, and that it changes nothing about the operation."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_delta.engine import (
    LONG,
    AddFile,
    DeltaTable,
    Progress,
    StructField,
    StructType,
    listen_to_progress,
    progress,
)
from airflow_delta.engine.checkpoint import action_rows
from airflow_delta.engine.checkpoint.sidecars import layout
from airflow_delta.engine.maintenance.convert import footers, source_files
from airflow_delta.engine.maintenance.log_compaction import plan as log_compaction
from airflow_delta.engine.maintenance.metadata_cleanup import execution as cleanup
from airflow_delta.engine.maintenance.optimize import rounds
from airflow_delta.engine.maintenance.row_tracking.execution import enable_row_tracking
from airflow_delta.engine.maintenance.table_files import listing
from airflow_delta.engine.maintenance.vacuum import execution as vacuum
from airflow_delta.engine.progress import Reporter, report_progress
from tests.engine.maintenance import test_rounded_statistics as rounded_statistics
from tests.engine.maintenance.convert.parquet_folders import write_parquet
from tests.watched_owner import WatchedOwner

FILES, ROWS = 12, 50


class Heard:
    """A listener that keeps what it hears, and in which thread."""

    def __init__(self) -> None:
        self.reports: list[Progress] = []
        self.threads: set[int] = set()

    def __call__(self, report: Progress) -> None:
        self.reports.append(report)
        self.threads.add(threading.get_ident())

    def steps(self) -> list[list[Progress]]:
        """The reports by step; the first one of each has ``done=0``."""
        begins = [i for i, report in enumerate(self.reports) if not report.done]
        return [self.reports[a:b] for a, b in pairwise([*begins, len(self.reports)])]

    def last(self, step: str) -> Progress:
        """The last report of a step."""
        return [report for report in self.reports if report.step == step][-1]

    def check(self, *unfinished: str) -> None:
        """Check the steps. Those that are named may end before their total."""
        assert self.reports
        assert not self.reports[0].done
        for reports in self.steps():
            last = reports[-1]
            same = {(report.step, report.unit, report.total) for report in reports}
            assert same == {(last.step, last.unit, last.total)}
            assert all(before.done < after.done for before, after in pairwise(reports))
            assert last.total != 0
            if last.total is not None:
                assert last.done <= last.total
                assert last.done == last.total or last.step in unfinished, last
        assert self.threads == {threading.get_ident()}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in small pieces, and report each."""
    monkeypatch.setattr(progress, "_INTERVAL_S", 0)
    for module in (listing, source_files, footers, vacuum, cleanup):
        monkeypatch.setattr(module, "_BATCH", 5)
    monkeypatch.setattr(log_compaction, "_RUN_FILES", 5)
    monkeypatch.setattr(action_rows, "_GROUP_ROWS", 5)
    monkeypatch.setattr(layout, "SIDECAR_ROWS", 5)


def write_files(root: Path) -> None:
    for n in range(FILES):
        ids = list(range(n * ROWS, (n + 1) * ROWS))
        write_parquet(root / f"{n:02}.parquet", {"id": ids, "text": [f"text {i}" for i in ids]})


def convert(root: Path, **properties: str) -> DeltaTable:
    write_files(root)
    DeltaTable.convert(str(root), properties=properties)
    return DeltaTable(str(root))


def append(table: DeltaTable, *paths: str) -> None:
    for path in paths:
        transaction = table.transaction("WRITE")
        stats = '{"numRecords":1}'
        transaction.add_file(AddFile(path, {}, 1, 1, data_change=True, stats=stats))
        transaction.commit()


def nothing(root: Path) -> None:
    write_files(root)


def converted(root: Path) -> None:
    convert(root)


def v2(root: Path) -> None:
    convert(root, **{"delta.checkpointPolicy": "v2"})


def optimized(root: Path) -> None:
    convert(root).optimize()


def with_commits(root: Path) -> None:
    append(convert(root), *(f"more-{n}" for n in range(11)))


def with_old_commits(root: Path) -> None:
    with_commits(root)
    DeltaTable(str(root)).checkpoint()
    for file in (root / "_delta_log").iterdir():
        os.utime(file, (0, 0))


def with_checkpoint(root: Path) -> None:
    convert(root).checkpoint()
    append(DeltaTable(str(root)), "more-0", "more-1")


def with_v2_checkpoint(root: Path) -> None:
    v2(root)
    DeltaTable(str(root)).checkpoint()
    append(DeltaTable(str(root)), "more-0", "more-1")


def managed(root: Path) -> None:
    properties = {
        "delta.managedCommit.commitOwner": "owner-db",
        "delta.managedCommit.commitOwnerConf": json.dumps({"backfill": "on-request"}),
    }
    schema = StructType((StructField("id", LONG),))
    owners = {"owner-db": OWNERS.setdefault(root.parent, WatchedOwner())}
    table = DeltaTable.create(str(root), schema, properties=properties, commit_owners=owners)
    append(table, *(f"f{n}" for n in range(7)))


def rounded(root: Path) -> None:
    DeltaTable.create(str(root), rounded_statistics.SCHEMA)
    values = [rounded_statistics.LOW, rounded_statistics.HIGH]
    rounded_statistics.add(root, "rounded", values, rounded_statistics.rounded)


OWNERS: dict[Path, WatchedOwner] = {}


def backfill(root: Path) -> Any:
    owners = {"owner-db": OWNERS[root.parent]}
    return DeltaTable(str(root), commit_owners=owners).backfill()


def give_row_ids(root: Path) -> Any:
    table = DeltaTable(str(root))
    return enable_row_tracking(table.storage, table.commit_owners, batch=5)


@dataclass(frozen=True)
class Operation:
    """An operation, and what it is to report.

    Attributes:
        prepare: makes the table.
        run: runs the operation.
        steps: the last report of each step of interest, as a text, from the result.
        unfinished: the steps that may end early.
    """

    prepare: Callable[[Path], object]
    run: Callable[[Path], Any]
    steps: Callable[[Any], dict[str, str]] = field(repr=False)
    unfinished: tuple[str, ...] = ()


def table_of(root: Path) -> DeltaTable:
    return DeltaTable(str(root))


OPERATIONS = {
    "convert": Operation(
        nothing,
        lambda root: DeltaTable.convert(str(root)),
        lambda result: {
            "list": f"listed {FILES} files",
            "read footers": f"read the footers of {FILES} of {len(result.plan.files)} files",
        },
    ),
    "convert, listed files": Operation(
        nothing,
        lambda root: DeltaTable.convert(str(root), files=[f"{n:02}.parquet" for n in range(7)]),
        lambda _: {"look up": "looked up 7 of 7 files"},
    ),
    "optimize": Operation(
        converted,
        lambda root: table_of(root).optimize(),
        lambda result: {
            "rewrite": f"rewrote {size(result.bytes_removed)} of {size(result.plan.size_in_bytes)}"
        },
    ),
    "optimize, many bins": Operation(
        converted,
        lambda root: table_of(root).optimize(max_file_size=6000, min_file_size=5900),
        lambda result: {
            "rewrite": f"rewrote {size(result.bytes_removed)} of {size(result.plan.size_in_bytes)}"
        },
    ),
    "optimize, z-order": Operation(
        converted,
        lambda root: table_of(root).optimize(z_order_by=["text", "id"]),
        lambda result: {
            "rewrite": f"rewrote {size(result.bytes_removed)} of {size(result.plan.size_in_bytes)}"
        },
    ),
    "vacuum": Operation(
        optimized,
        lambda root: table_of(root).vacuum(retention_hours=0, enforce_retention=False),
        lambda result: {
            "list": f"listed {FILES + 1} files",
            "delete": f"deleted {result.num_deleted} of {FILES} files",
        },
        ("read commits",),
    ),
    "vacuum, lite": Operation(
        optimized,
        lambda root: table_of(root).vacuum(retention_hours=0, enforce_retention=False, mode="lite"),
        lambda result: {"delete": f"deleted {result.num_deleted} of {FILES} files"},
        ("read commits",),
    ),
    "checkpoint": Operation(
        converted,
        lambda root: table_of(root).checkpoint(),
        lambda result: {"checkpoint": f"checkpointed {result.num_files} of {FILES} files"},
    ),
    "checkpoint, incremental": Operation(
        with_checkpoint,
        lambda root: table_of(root).checkpoint(),
        lambda result: {"checkpoint": f"checkpointed {result.num_files} of {FILES + 2} files"},
    ),
    "checkpoint, v2": Operation(
        v2,
        lambda root: table_of(root).checkpoint(),
        lambda result: {"checkpoint": f"checkpointed {result.num_files} of {FILES} files"},
    ),
    "checkpoint, v2, incremental": Operation(
        with_v2_checkpoint,
        lambda root: table_of(root).checkpoint(),
        lambda result: {"checkpoint": f"checkpointed {result.num_files} of {FILES + 2} files"},
    ),
    "compact log": Operation(
        with_commits,
        lambda root: table_of(root).compact_log(),
        lambda result: {"read commits": f"read 12 of {len(result.plan.commits)} commits"},
    ),
    "history": Operation(
        with_commits,
        lambda root: table_of(root).history(7),
        lambda commits: {"read commits": f"read {len(commits)} of 7 commits"},
    ),
    "cleanup": Operation(
        with_old_commits,
        lambda root: table_of(root).cleanup_metadata(older_than=timedelta(0), force=True),
        lambda result: {"delete": f"deleted {result.num_deleted} of {result.plan.num_files} files"},
    ),
    "restore": Operation(
        optimized,
        lambda root: table_of(root).restore(0),
        lambda _: {"look up": f"looked up {FILES} of {FILES} files"},
    ),
    "check": Operation(
        with_commits,
        lambda root: table_of(root).check(),
        lambda _: {"list": f"listed {FILES} files", "look up": "looked up 11 of 11 files"},
        ("read commits",),
    ),
    "health": Operation(
        with_commits,
        lambda root: table_of(root).health(),
        lambda result: {"list": f"listed {result.log_files} files"},
    ),
    "row tracking": Operation(
        converted,
        give_row_ids,
        lambda result: {
            "give row ids": f"gave row ids to {result.num_backfilled} of {FILES} files"
        },
    ),
    "repair statistics": Operation(
        rounded,
        lambda root: table_of(root).repair_statistics(),
        lambda _: {"read footers": "read the footers of 1 of 1 files"},
    ),
    "backfill": Operation(
        managed,
        backfill,
        lambda result: {"backfill": f"backfilled {result.num_backfilled} of 7 commits"},
    ),
    "read rows": Operation(
        converted,
        lambda root: table_of(root).snapshot().scan().to_table(),
        lambda rows: {"read rows": f"read {rows.num_rows} rows"},
    ),
}


def size(count: int) -> str:
    from airflow_delta.engine.model.sizes import rounded_size

    return rounded_size(count)


def outcome(result: Any) -> Any:
    """A result without what differs from one run to the next."""
    if isinstance(result, pa.Table):
        return result.sort_by("id").to_pylist()
    if isinstance(result, list):
        return [(info.version, info.operation) for info in result]
    # Sizes depend on the order in which threads read rows, and on the digits of times.
    changing = re.compile("path|cutoff|age_seconds|timestamp|table_uri|gains|plan|.*bytes.*")
    return {name: fact for name, fact in result.to_dict().items() if not changing.fullmatch(name)}


@pytest.fixture(params=OPERATIONS.values(), ids=OPERATIONS)
def operation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Operation:
    found: Operation = request.param
    if found is OPERATIONS["optimize, z-order"]:
        monkeypatch.setattr(rounds, "_ALONE_BYTES", 1)
    return found


def prepared(operation: Operation, tmp_path: Path, *names: str) -> Iterator[Path]:
    """The same table at several locations."""
    for name in names:
        root = tmp_path / name / "table"
        root.mkdir(parents=True)
        operation.prepare(root)
        yield root


def test_a_listener_hears_all_that_is_done(operation: Operation, tmp_path: Path) -> None:
    first, second = prepared(operation, tmp_path, "a", "b")
    heard = Heard()
    with listen_to_progress(heard):
        result = operation.run(first)
    heard.check(*operation.unfinished)
    for step, text in operation.steps(result).items():
        assert str(heard.last(step)) == text
    assert outcome(operation.run(second)) == outcome(result)


def test_a_listener_that_fails_changes_nothing(
    operation: Operation, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    calls = []

    def fail(report: Progress) -> None:
        calls.append(report)
        if len(calls) == 2:
            raise RuntimeError("no")

    first, second = prepared(operation, tmp_path, "a", "b")
    with listen_to_progress(fail), caplog.at_level(logging.WARNING):
        result = operation.run(first)
    assert len(calls) == 2
    assert caplog.text.count("the listener of the progress failed") == 1
    assert outcome(operation.run(second)) == outcome(result)


def test_without_a_listener_nothing_is_called(
    operation: Operation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("nobody listens")

    monkeypatch.setattr(progress._CountingReporter, "__init__", refuse)
    monkeypatch.setattr(progress._CountingReporter, "advance", refuse)
    monkeypatch.setattr(progress._Listening, "report", refuse)
    (root,) = prepared(operation, tmp_path, "a")
    operation.run(root)


def test_a_vacuum_reports_batches_and_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(Reporter, "advance", lambda _, count: calls.append(count))
    optimized(tmp_path)
    calls.clear()
    table_of(tmp_path).vacuum(retention_hours=0, enforce_retention=False)
    assert sum(calls) >= 2 * FILES + 1  # listed and deleted
    assert [count for count, _ in groupby(calls[-3:])] == [5, 2]


def test_items_are_returned_themselves_without_a_listener() -> None:
    items = [1, 2, 3]
    with report_progress("list", "files") as reporter:
        assert reporter.count(items) is items


def test_items_are_counted() -> None:
    heard = Heard()
    with listen_to_progress(heard), report_progress("list", "files", 3) as reporter:
        assert list(reporter.count("abc")) == ["a", "b", "c"]
    assert [report.done for report in heard.reports] == [0, 1, 2, 3]


def test_reports_between_the_first_and_the_last_are_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress, "_INTERVAL_S", 0.1)
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    heard = Heard()
    with listen_to_progress(heard), report_progress("list", "files") as reporter:
        for _ in range(100):
            now[0] += 0.03
            reporter.advance(10)
    assert [report.done for report in heard.reports] == [*range(0, 1000, 40), 1000]


def test_steps_do_not_nest() -> None:
    heard = Heard()
    with (
        listen_to_progress(heard),
        report_progress("rewrite", "bytes", 9) as outer,
        report_progress("backfill", "commits", 1) as inner,
    ):
        inner.advance(1)
        outer.advance(9)
    assert {report.step for report in heard.reports} == {"rewrite"}


def test_a_step_that_fails_has_no_end() -> None:
    heard = Heard()
    with listen_to_progress(heard):
        with pytest.raises(OSError), report_progress("list", "files", 2):
            raise OSError
        with report_progress("delete", "files", 2) as reporter:
            reporter.advance(2)
    assert [str(report) for report in heard.reports] == [
        "listed 0 of 2 files",
        "deleted 0 of 2 files",
        "deleted 2 of 2 files",
    ]


def test_a_step_with_nothing_to_do_reports_nothing() -> None:
    heard = Heard()
    with listen_to_progress(heard), report_progress("delete", "files", 0):
        pass
    assert not heard.reports


def test_an_inner_listener_replaces_the_outer_one() -> None:
    outer, inner = Heard(), Heard()
    with listen_to_progress(outer):
        with listen_to_progress(inner), report_progress("list", "files"):
            pass
        with report_progress("delete", "files"):
            pass
    with report_progress("look up", "files"):
        pass
    assert [report.step for report in inner.reports] == ["list"]
    assert [report.step for report in outer.reports] == ["delete"]


def test_an_interrupt_in_a_listener_ends_the_operation(tmp_path: Path) -> None:
    def interrupt(report: Progress) -> None:
        if report.step == "rewrite" and report.done:
            raise KeyboardInterrupt

    converted(tmp_path)
    with pytest.raises(KeyboardInterrupt), listen_to_progress(interrupt):
        table_of(tmp_path).optimize(max_file_size=6000, min_file_size=5900)
    assert table_of(tmp_path).latest_version() == 0
    assert len(list(tmp_path.glob("*.parquet"))) == FILES  # no new file is left


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (Progress("delete", 12_000, 109_000, "files"), "deleted 12,000 of 109,000 files"),
        (Progress("list", 40_000, None, "files"), "listed 40,000 files"),
        (Progress("rewrite", 1 << 20, 3 << 30, "bytes"), "rewrote 1.0 MiB of 3.0 GiB"),
        (Progress("rewrite", 5, None, "bytes"), "rewrote 5 bytes"),
    ],
)
def test_a_report_is_a_line_for_people(report: Progress, text: str) -> None:
    assert str(report) == text
