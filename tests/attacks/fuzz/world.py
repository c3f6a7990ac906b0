"""A table that is being made hostile, and the registry of what is done to it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, TypeAlias

from tests.attacks.fuzz.files import File, Tree
from tests.attacks.fuzz.tables import Places
from tests.table_builder import Action

__all__ = ["MUTATIONS", "Blobs", "Mutation", "Trust", "World", "mutation"]

Blobs: TypeAlias = dict[str, bytes]
Mutate: TypeAlias = Callable[["World", random.Random], "str | None"]


class Trust(IntEnum):
    """What a mutation leaves known of the right answer about the newest version."""

    OPEN = 0
    """Nothing: any answer or a typed error."""
    RIGHT = 1
    """An answer must be right; a typed error is fine."""
    EXACT = 2
    """There must be an answer, and it must be right: what was changed is no part of the log, or a hint."""


@dataclass
class World:
    """A table that is being made hostile.

    Attributes:
        places: where it will be.
        form: of its log; see `tables.FORMS`.
        history: its commits; empty where the engine has made the table.
        tree: its files: those of the data, and once the log is laid out, of that as well.
        trust: what is known of the right answers.
        blobs: contents that take long to make, by name.
        owner_entries: what the commit owner of a managed table knows.
        inventory: paths for an inventory, beside those of the files.
    """

    places: Places
    form: str
    history: list[list[Action]]
    tree: Tree
    trust: Trust = Trust.EXACT
    blobs: Blobs = field(default_factory=dict)
    owner_entries: tuple[Any, ...] = ()
    inventory: list[str] = field(default_factory=list)

    def files(self, *beginnings: str, ends: tuple[str, ...] = ("",)) -> list[str]:
        """The paths of regular files that begin and end so, in order."""
        return sorted(
            path
            for path, node in self.tree.items()
            if isinstance(node, File) and path.startswith(beginnings or "") and path.endswith(ends)
        )

    def log_files(self, *ends: str) -> list[str]:
        """The paths of the log's regular files, by the ends of their names."""
        return self.files("_delta_log/", ends=ends or ("",))

    def content(self, path: str) -> bytes:
        """What is in a regular file."""
        node = self.tree[path]
        assert isinstance(node, File)
        return node.content

    def put(self, path: str, content: bytes) -> None:
        """Write a file, or the new content of one that is there."""
        node = self.tree.get(path)
        self.tree[path] = replace(node if isinstance(node, File) else File(), content=content)

    def json_lines(self, path: str) -> list[Any] | None:
        """The lines of a file of JSON; None where it is none any more."""
        try:
            return [json.loads(line) for line in self.content(path).splitlines() if line.strip()]
        except (ValueError, RecursionError):
            return None


@dataclass(frozen=True)
class Mutation:
    """Something hostile that is done to a table.

    Attributes:
        name: of the function.
        stage: 1 where it changes the history that a log is made of, 2 where it changes files.
        weight: how often it comes.
        trust: what it leaves known.
        apply: does it, and says in words what; None where it can't be done to this table.
    """

    name: str
    stage: int
    weight: float
    trust: Trust
    apply: Mutate


MUTATIONS: dict[str, Mutation] = {}
"""All of them, by name; filled when `mutations` is imported."""


def mutation(
    stage: int, *, weight: float = 1.0, trust: Trust = Trust.OPEN
) -> Callable[[Mutate], Mutate]:
    """Enter a function into `MUTATIONS`. One that knows better lowers ``world.trust`` by itself."""

    def enter(function: Mutate) -> Mutate:
        name = function.__name__
        assert name not in MUTATIONS, name
        MUTATIONS[name] = Mutation(name, stage, weight, trust, function)
        return function

    return enter
