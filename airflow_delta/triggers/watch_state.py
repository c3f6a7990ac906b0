"""What a watcher has reported, its mark, and when it is stored in the state of its asset and in a Variable.

So that no version is lost in a crash, the mark is stored only after Airflow has stored the event
(`shared_looks`): in between, a restarted triggerer reports the versions again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from functools import partial
from typing import Any

from airflow_delta.hooks.table_locations import canonical_uri
from airflow_delta.hooks.waits.look import WaitLog
from airflow_delta.hooks.waits.new_versions import Filters, Mark, VersionWatcher
from airflow_delta.triggers import shared_pace
from airflow_delta.triggers.blocking_calls import BlockingCalls
from airflow_delta.triggers.shared_looks import SharedLook
from airflow_delta.version_compat import (
    asset_states,
    conf,
    find_variables,
    is_inactive_asset,
    set_variable,
)

__all__ = ["WANTED", "WatchState"]

_LOGGER = logging.getLogger(__name__)

WANTED = "new versions"
"""What a watcher waits for, in words."""

_TAKE_SECONDS = 60.0
"""So long a watcher waits for a comparison at most before the next look; see `_take_seconds`."""

_LEFT_OUT_SECONDS = 900.0
"""So long nothing is stored for an asset that no DAG uses: Airflow logs an error for each try."""

_EARLY = 0.75
"""The part of an interval after which a look counts."""


class WatchState:
    """The state of one watcher while the triggerer runs it.

    :param table_uri: the table.
    :param filters: which versions it reports.
    :param interval: the seconds between two looks.
    :param store: the ``asset_state_store`` of its trigger; None: nothing is stored.
    """

    def __init__(
        self, table_uri: str, filters: Filters, interval: float, store: Any | None
    ) -> None:
        self._watcher = VersionWatcher(table_uri, filters)
        self._interval = interval
        self._stores = [
            _MarkStore(asset, state, table_uri, filters)
            for asset, state in asset_states(store).items()
        ]
        self._log = WaitLog(_LOGGER, table_uri, WANTED)
        self._beginning: BlockingCalls[tuple[Any, Mark]] = BlockingCalls()
        self._examining: BlockingCalls[tuple[Any, Mark, Mark, dict[str, Any] | None]] = (
            BlockingCalls()
        )
        self._mark: Mark | None = None
        self._is_begin_stored = True
        # The snapshot that was compared with the mark last. A poll without news yields the same object.
        self._seen: Any = None
        # The marks of events that Airflow may not have stored yet, with the looks of the events.
        self._unstored: list[tuple[SharedLook, Mark]] = []
        self._taking: asyncio.Task[dict[str, Any] | None] | None = None
        self._failures = 0
        self._due = 0.0

    async def take(self, newest: Any) -> dict[str, Any] | None:
        """Compare a look with the mark; return the payload of an event, if there is one.

        If that takes long, because the store or Airflow hardly answers, a later call returns the payload.
        """
        seconds = 0.0
        if self._taking is None:
            if time.monotonic() < self._due:
                return None
            self._taking = asyncio.ensure_future(self._take_safely(newest))
            seconds = _take_seconds()
        await asyncio.wait([self._taking], timeout=seconds)
        if not self._taking.done():
            return None
        taken, self._taking = self._taking, None
        return taken.result()

    def stop(self) -> None:
        """Give up what `take` has begun."""
        if self._taking is not None:
            self._taking.cancel()

    def emitted(self, look: SharedLook) -> None:
        """Remember that the event of the mark was handed over.

        :param look: the look that the watcher was given last.
        """
        assert self._mark is not None
        self._unstored.append((look, self._mark))

    async def _take_safely(self, newest: Any) -> dict[str, Any] | None:
        try:
            payload = await self._take(newest)
        except Exception as error:  # noqa: BLE001 - Airflow would start a failed trigger again at once
            self._failures, payload = self._failures + 1, None
            self._log.failed(error)
        else:
            self._failures = 0
        # A poll that is shared with a more eager watcher looks more often. Its pauses vary, so that a look
        # that is a little early counts.
        pause = shared_pace.pause_seconds(self._interval, self._failures)
        self._due = time.monotonic() + pause * (1.0 if self._failures else _EARLY)
        return payload

    async def _take(self, newest: Any) -> dict[str, Any] | None:
        if self._mark is None:
            self._mark = await self._load()
        if self._mark is None:
            self._seen, self._mark = await self._beginning(partial(self._begin, newest))
            self._is_begin_stored = False
        await self._go_back()
        if not self._is_begin_stored:
            await self._store(self._mark)
            self._is_begin_stored = True
        await self._store_due()
        if newest is None or newest is self._seen:
            return None
        seen, before, mark, payload = await self._examining(
            partial(self._examine, newest, self._mark)
        )
        if before is not self._mark:
            # The watcher went back while the call hung (`_go_back`): the next look compares again.
            return None
        if payload is None and mark != self._mark and not self._unstored:
            await self._store(mark)
        self._seen, self._mark = seen, mark
        return payload

    # These return what they were given, too: after a call that has hung it may be something earlier.

    def _begin(self, newest: Any) -> tuple[Any, Mark]:
        return newest, self._watcher.begin(newest)

    def _examine(self, newest: Any, mark: Mark) -> tuple[Any, Mark, Mark, dict[str, Any] | None]:
        return newest, mark, *self._watcher.examine(newest, mark)

    async def _load(self) -> Mark | None:
        """The stored mark; of several assets the earliest, so that none misses a version."""
        marks = [mark for store in self._stores if (mark := await store.load()) is not None]
        return min(marks, key=lambda mark: mark.version) if marks else None

    async def _go_back(self) -> None:
        """Go back to the mark of an asset that a DAG uses again: it didn't get the events since."""
        assert self._mark is not None
        left_out = [store for store in self._stores if store.is_left_out]
        are_all = len(left_out) == len(self._stores)
        missing: Exception | None = None
        for store in left_out:
            if store.rests and not are_all:
                continue
            mark = await store.load() or self._mark
            if error := await self._store_in(store, mark):
                missing = error
            elif mark.version < self._mark.version:
                self._mark, self._seen = mark, None
                self._unstored.clear()
        self._raise_if_alone(missing)

    async def _store(self, mark: Mark) -> None:
        """Store a mark for all assets but those that no DAG uses any more."""
        missing: Exception | None = None
        for store in self._stores:
            if not store.is_left_out and (error := await self._store_in(store, mark)):
                missing = error
        self._raise_if_alone(missing)

    async def _store_in(self, store: _MarkStore, mark: Mark) -> Exception | None:
        """Store a mark for an asset; if no DAG uses it any more, leave it out, and return the error."""
        try:
            await store.store(mark)
        except Exception as error:
            if not is_inactive_asset(error):
                raise
            store.leave_out()
            return error
        return None

    def _raise_if_alone(self, missing: Exception | None) -> None:
        """Fail if an asset is missing, and no other is left."""
        if missing is not None and all(store.is_left_out for store in self._stores):
            raise missing

    async def _store_due(self) -> None:
        due = [mark for look, mark in self._unstored if look.is_settled]
        if due:
            await self._store(due[-1])
            del self._unstored[: len(due)]


def _take_seconds() -> float:
    """How long a watcher waits for a comparison.

    Airflow stops a watcher that isn't done with a look after a time, by default of five minutes. The next
    looks wait meanwhile.
    """
    timeout = conf.getfloat("triggerer", "shared_stream_ack_timeout", fallback=300.0)
    return min(_TAKE_SECONDS, timeout / 5)


class _MarkStore:
    """The mark of a watcher in the state of one of its assets, with a copy in a Variable.

    When no DAG uses an asset any more, Airflow deletes its state, but no Variables. If the asset is used
    again, the watcher goes on from the Variable. So does a watcher whose filters are new: the state of an
    asset can't be searched for the marks of other filters.

    :param asset: the asset's name.
    :param state: its key-value store.
    :param table_uri: the table.
    :param filters: which versions the watcher reports.
    """

    def __init__(self, asset: str, state: Any, table_uri: str, filters: Filters) -> None:
        own, table = filters.key(table_uri), Filters().key(table_uri)
        self._asset = asset
        self._table_uri = table_uri
        self._state = state
        self._left_out_until: float | None = None
        self._key = f"airflow_delta.watch.{own}"
        digest = hashlib.sha256(json.dumps([asset, table]).encode()).hexdigest()[:32]
        self._variable_prefix = f"airflow_delta.watch.{digest}."
        self._variable = f"{self._variable_prefix}{own}"
        self._description = (
            f"What a watcher of the asset {asset!r} has reported of {canonical_uri(table_uri)}"
        )

    async def load(self) -> Mark | None:
        """The stored mark, or one of a watcher of the same table and asset that has other filters."""
        if own := Mark.from_json(await self._state.aget(self._key)):
            return own
        variables = await find_variables(self._variable_prefix)
        marks = {key: _parse_mark(key, value) for key, value in variables.items()}
        if self._variable in marks:
            return marks[self._variable]
        if not marks:
            return None
        # Those of earlier filters stay where the watcher was when its filters were changed.
        return max(marks.values(), key=lambda mark: mark.examined).for_other_filters()

    async def store(self, mark: Mark) -> None:
        """Store the mark."""
        # First in the state, which fails if no DAG uses the asset any more: nobody may have got the event.
        await self._state.aset(self._key, mark.to_json())
        self._left_out_until = None
        await set_variable(self._variable, json.dumps(mark.to_json()), self._description)

    @property
    def is_left_out(self) -> bool:
        """Whether nothing is stored for the asset, because no DAG has used it."""
        return self._left_out_until is not None

    @property
    def rests(self) -> bool:
        """Whether it is too early to try whether a DAG uses the asset again."""
        return self._left_out_until is not None and time.monotonic() < self._left_out_until

    def leave_out(self) -> None:
        """Store nothing until a DAG uses the asset again."""
        if self._left_out_until is None:
            _LOGGER.warning(
                "%s: no DAG uses the asset %r any more, so what is reported isn't stored for it",
                self._table_uri,
                self._asset,
            )
        self._left_out_until = time.monotonic() + _LEFT_OUT_SECONDS


def _parse_mark(variable: str, text: str) -> Mark:
    """The mark in a Variable.

    :raises ValueError: there is none, so that somebody must have changed the Variable.
    """
    try:
        mark = Mark.from_json(json.loads(text))
    except (TypeError, ValueError):
        mark = None
    if mark is None:
        raise ValueError(
            f"the Variable {variable} isn't what a watcher has stored: delete it, and the watcher begins "
            "at the newest version"
        )
    return mark
