"""Write a V2 checkpoint from the previous one: refer to sidecars again if they haven't changed.

So the cost of a new checkpoint depends on the change alone:

* a sidecar whose rows all still hold is kept (`sidecars.reuse` finds out, usually without opening
  it);
* a sidecar with rows that are gone is rewritten without them, or dropped if none is left;
* the adds and removes of the commits since then go to new sidecars, together with the rows of small
  sidecars, when there are enough of these (`choose_merged_sidecars`).

The result is the same set of actions as in a full checkpoint, in other files.

docs/explanation/checkpoints-in-proportion-to-the-change.md has the reasons, and what happens if a kept
sidecar is damaged, or deleted by a cleanup. Spec: PROTOCOL.md, "Problems with multi-part checkpoints".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import POSITION, VERSION
from airflow_delta.engine.arrow.parallel import map_ordered
from airflow_delta.engine.arrow.parquet.action_file import reader_threads
from airflow_delta.engine.checkpoint.action_rows import FileActionTable
from airflow_delta.engine.checkpoint.base_check import check_expected_files
from airflow_delta.engine.checkpoint.distinct_files import DistinctFiles
from airflow_delta.engine.checkpoint.read import CheckpointReader
from airflow_delta.engine.checkpoint.sidecars.layout import (
    SIDECAR_ROWS,
    SidecarRows,
    clustered,
    sidecar_layout,
)
from airflow_delta.engine.checkpoint.sidecars.reuse import Inspector, JudgedSidecar
from airflow_delta.engine.checkpoint.sidecars.tags import SidecarFacts, facts_of_tags
from airflow_delta.engine.checkpoint.sidecars.write import (
    WrittenSidecar,
    new_sidecars,
    present_sidecars,
)
from airflow_delta.engine.checkpoint.v2_write import CheckpointTarget, publish_top_level
from airflow_delta.engine.checkpoint.write import ExpectedFiles, NonFileContent, Written
from airflow_delta.engine.errors import CorruptLogError, InvalidTableError, StorageError
from airflow_delta.engine.progress import report_progress
from airflow_delta.engine.replay.reconcile import ReconciledCommits
from airflow_delta.engine.replay.tombstones import unexpired
from airflow_delta.engine.storage.base import Storage

__all__ = ["choose_merged_sidecars", "has_all_in_sidecars", "write_incremental_v2"]

_SMALL_ROWS = SIDECAR_ROWS // 4
"""A sidecar with fewer rows is small."""

_STEP = 8
"""How many small sidecars are merged into one of the next step."""


@dataclass
class _Fate:
    """The sidecars of the previous checkpoint, by what happens to them.

    Attributes:
        kept: the new checkpoint refers to them again.
        rewritten: rewritten one by one, without the rows that are gone.
        pooled: their rows are written together with the new ones.
    """

    kept: list[JudgedSidecar] = field(default_factory=list)
    rewritten: list[JudgedSidecar] = field(default_factory=list)
    pooled: list[JudgedSidecar] = field(default_factory=list)


def write_incremental_v2(
    storage: Storage,
    content: NonFileContent,
    base: CheckpointReader,
    commits: ReconciledCommits,
    target: CheckpointTarget,
    *,
    oldest_tombstone_ms: int,
    expected: ExpectedFiles | None = None,
    expected_base: ExpectedFiles | None = None,
) -> Written:
    """Write a checkpoint from the previous one and the commits since, and publish it.

    Args:
        storage: the table's storage.
        content: the non-file state of the version.
        base: the previous checkpoint, for which `has_all_in_sidecars` holds. It should be the
            newest one, which no cleanup deletes.
        commits: the file actions of the commits after it, with all columns.
        target: the version and the path of the new checkpoint.
        oldest_tombstone_ms: see ``tombstones.expired``.
        expected: the expected totals of the live files; None if unknown.
        expected_base: the expected totals of the previous checkpoint; None if unknown. Then all its
            files are compared with each other.

    Raises:
        ObjectExistsError: there is a checkpoint of the classic name. Nothing is published.
        CorruptLogError: a sidecar of the previous checkpoint is damaged or missing, or that
            checkpoint has a file twice or doesn't have the expected files, or an action lacks a
            field that the protocol requires. Nothing is published, or it has been deleted again.
        InvalidTableError: the totals are wrong. Nothing is published.
        StorageError: the store failed. If it failed while writing the top level or later, the
            checkpoint may exist all the same.
    """
    version, table = target.version, target.table
    layout = sidecar_layout(content.protocol, content.metadata, table=table)
    inspector = Inspector(
        storage,
        commits,
        oldest_tombstone_ms=oldest_tombstone_ms,
        stats_form=layout.stats_form,
        checkpoint=base.path,
    )
    threads = reader_threads(storage)
    judged = list(map_ordered(inspector.judge, base.sidecars, workers=threads))
    _check_base(
        base, inspector, judged, expected_base or ExpectedFiles(), table=table, threads=threads
    )
    adds = commits.adds.drop_columns([VERSION, POSITION])
    removes = unexpired(commits.removes.drop_columns([VERSION, POSITION]), oldest_tombstone_ms)
    fate = _decide(judged, new_adds=adds.num_rows, new_removes=removes.num_rows)
    if target.has_classic_name:
        kept = (sidecar.action for sidecar in fate.kept)
        for _ in map_ordered(inspector.check_whole, kept, workers=threads):
            pass
    pool = [("add", adds), ("remove", removes)]
    with (
        report_progress(
            "checkpoint", "files", None if expected is None else expected.num_adds
        ) as reporter,
        new_sidecars(storage, layout, version=version, table=table) as sidecars,
    ):
        reporter.advance(sum(sidecar.facts.num_adds for sidecar in fate.kept))
        written = sidecars.write(_pieces(inspector, fate, pool), reporter)
        _check_numbers(judged, fate, written, pool, version=version, table=table)
        if expected is not None:
            facts = _facts(fate, written)
            expected.check(
                num_adds=sum(fact.num_adds for fact in facts),
                adds_size=sum(fact.adds_size_sum for fact in facts),
                version=version,
                table=table,
            )
        _check_presence(storage, inspector, fate.kept, base)
        actions = [*(s.action for s in fate.kept), *(s.action for s in written)]
        with sidecars.naming():
            checkpoint = publish_top_level(storage, content, actions, target)
    try:
        _check_presence(storage, inspector, fate.kept, base)
    except CorruptLogError as error:
        _take_back(storage, target, error)
        raise
    reused_bytes = sum(sidecar.action.size_in_bytes for sidecar in fate.kept)
    return Written(
        checkpoint, len(written), len(fate.kept), checkpoint.size_in_bytes - reused_bytes
    )


def has_all_in_sidecars(reader: CheckpointReader) -> bool:
    """Whether a checkpoint can be the base of an incremental V2 one.

    The protocol requires all file actions in sidecars or all in the top level. If a checkpoint has
    both, those in the top level must not be lost.

    Args:
        reader: the reader of the checkpoint; its top level is read.

    Raises:
        CorruptLogError: the checkpoint is damaged.
        ObjectNotFoundError: it is gone.
    """
    return bool(reader.sidecars) and not reader.has_files_inline


def choose_merged_sidecars(new_rows: int, small: Sequence[int]) -> list[int]:
    """Choose the small sidecars with which new rows are merged.

    Each checkpoint adds a sidecar or two, so small ones must be merged now and then. They have sizes in
    steps of eight. New rows are merged with the small sidecars of their own step and below, as soon as
    there are eight of those. The result is larger, and may in turn be merged with eight of its step. So a
    row is rewritten about once per step up to a full sidecar, at most five times, and at most about eight
    sidecars of each step remain.

    Args:
        new_rows: the number of rows to be written.
        small: the number of rows of each small sidecar.

    Returns:
        Indices in ``small``.
    """
    indices = sorted(range(len(small)), key=small.__getitem__)
    taken = 0
    rows = new_rows
    while 0 < rows < _SMALL_ROWS:
        reach = taken
        while reach < len(indices) and _size_step(small[indices[reach]]) <= _size_step(rows):
            reach += 1
        if reach - taken < _STEP:
            break
        rows += sum(small[index] for index in indices[taken:reach])
        taken = reach
    return sorted(indices[:taken])


def _size_step(rows: int) -> int:
    """The number of times that a number can be divided by eight."""
    return (rows.bit_length() - 1) // 3


def _decide(judged: Iterable[JudgedSidecar], *, new_adds: int, new_removes: int) -> _Fate:
    fate = _Fate()
    new = {"add": new_adds, "remove": new_removes}
    for sidecar in judged:
        if sidecar.holds:
            fate.kept.append(sidecar)
        elif not sidecar.remaining:
            continue
        elif sidecar.remaining >= _SMALL_ROWS or _kind(sidecar.facts) is None:
            fate.rewritten.append(sidecar)
        else:
            fate.pooled.append(sidecar)
            new[_kind(sidecar.facts) or "add"] += sidecar.remaining
    for kind, rows in new.items():
        small = [s for s in fate.kept if _kind(s.facts) == kind and s.facts.rows < _SMALL_ROWS]
        merged = [
            small[index] for index in choose_merged_sidecars(rows, [s.facts.rows for s in small])
        ]
        fate.pooled += merged
        fate.kept = [sidecar for sidecar in fate.kept if sidecar not in merged]
    return fate


def _kind(facts: SidecarFacts) -> str | None:
    """The kind of actions in a sidecar; None for both, as other writers may have it."""
    if facts.num_adds and facts.num_removes:
        return None
    return "remove" if facts.num_removes else "add"


def _pieces(
    inspector: Inspector, fate: _Fate, pool: Iterable[FileActionTable]
) -> Iterator[SidecarRows]:
    """The rows of the sidecars to write."""
    for sidecar in fate.rewritten:
        kind = _kind(sidecar.facts)
        if kind is None or sidecar.facts.rows > SIDECAR_ROWS:
            yield from clustered(_rows_of(inspector, [sidecar]))
        else:
            # They are sorted already. They are read on the thread that writes them.
            yield SidecarRows(kind, partial(_load, inspector, sidecar, kind))
    yield from clustered(_chained(pool, _rows_of(inspector, fate.pooled)))


def _chained(*sources: Iterable[FileActionTable]) -> Iterator[FileActionTable]:
    for source in sources:
        yield from source


def _rows_of(inspector: Inspector, sidecars: Iterable[JudgedSidecar]) -> Iterator[FileActionTable]:
    for sidecar in sidecars:
        for kind in ("add", "remove"):
            for rows in inspector.rows(sidecar.action, kind):
                yield kind, rows


def _load(inspector: Inspector, sidecar: JudgedSidecar, kind: str) -> pa.Table:
    return pa.concat_tables(inspector.rows(sidecar.action, kind))


def _check_base(
    base: CheckpointReader,
    inspector: Inspector,
    judged: Iterable[JudgedSidecar],
    expected: ExpectedFiles,
    *,
    table: str,
    threads: int,
) -> None:
    """Check, as far as possible, that the previous checkpoint holds each file once."""
    ours = all(facts_of_tags(sidecar.tags) is not None for sidecar in base.sidecars)
    if expected.num_adds is None or not ours:
        distinct = DistinctFiles(path=base.path, version=base.version, table=table)
        add_files = partial(inspector.add_files_to, distinct=distinct)
        for _ in map_ordered(add_files, base.sidecars, workers=threads):
            pass
    check_expected_files(
        expected,
        num_adds=sum(sidecar.facts.num_adds for sidecar in judged),
        adds_size=sum(sidecar.facts.adds_size_sum for sidecar in judged),
        path=base.path,
        version=base.version,
        table=table,
    )


def _check_numbers(
    judged: Iterable[JudgedSidecar],
    fate: _Fate,
    written: Iterable[WrittenSidecar],
    pool: Iterable[FileActionTable],
    *,
    version: int,
    table: str,
) -> None:
    """Compare what was written with what was counted before a row was written."""
    counted, found = {}, {}
    new = {kind: rows.num_rows for kind, rows in pool}
    new["bytes"] = sum(pc.sum(rows["size"]).as_py() or 0 for kind, rows in pool if kind == "add")
    now = _facts(fate, written)
    for what, count, lost in (
        ("add", "num_adds", "lost_adds"),
        ("bytes", "adds_size_sum", "lost_size"),
        ("remove", "num_removes", "lost_removes"),
    ):
        before = sum(getattr(s.facts, count) - getattr(s, lost) for s in judged)
        counted[what] = before + new[what]
        found[what] = sum(getattr(facts, count) for facts in now)
    if counted != found:
        raise InvalidTableError(
            f"the checkpoint of version {version} was not written: by the previous checkpoint and the "
            f"commits since it must hold {counted['add']} adds of {counted['bytes']} bytes and "
            f"{counted['remove']} removes, but it would hold {found['add']} adds of {found['bytes']} bytes "
            f"and {found['remove']} removes. Load the version anew and try again",
            table=table,
            version=version,
            found=found,
            expected=counted,
        )


def _facts(fate: _Fate, written: Iterable[WrittenSidecar]) -> list[SidecarFacts]:
    """The facts about the sidecars of the new checkpoint."""
    return [*(sidecar.facts for sidecar in fate.kept), *(new.facts for new in written)]


def _check_presence(
    storage: Storage,
    inspector: Inspector,
    kept: Iterable[JudgedSidecar],
    base: CheckpointReader,
) -> None:
    """Check, with one listing, that the kept sidecars exist."""
    present = present_sidecars(storage)
    for sidecar in kept:
        file = inspector.file_of(sidecar.action)
        if present.get(file.path) != file.size:
            found = present.get(file.path)
            state = "missing" if found is None else f"of {found} bytes"
            raise CorruptLogError(
                f"the checkpoint {base.path} is damaged: its sidecar {file.path} is {state}, expected "
                f"{file.size} bytes",
                table=storage.root,
                version=base.version,
                path=file.path,
            )


def _take_back(storage: Storage, target: CheckpointTarget, finding: CorruptLogError) -> None:
    """Delete a checkpoint that has turned out damaged: readers would prefer it to an older one."""
    try:
        storage.delete([target.path])
    except StorageError as error:
        raise StorageError(
            f"{target.path} refers to a sidecar that no longer exists ({finding.message}), and can't be "
            f"taken back ({error.message}). Write the checkpoint of version {target.version} again, which "
            "replaces it, or delete it",
            table=target.table,
            version=target.version,
            path=target.path,
            operation="delete",
        ) from error
