"""A table made hostile by a seed, and what is known of the right answers about it."""

from __future__ import annotations

import json
import posixpath
import random
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from tests.attacks.fuzz import mutations as _entered  # noqa: F401 - importing it fills MUTATIONS
from tests.attacks.fuzz.files import File, Tree
from tests.attacks.fuzz.tables import FORMS, MANAGED, Places, data_files, history, log_tree
from tests.attacks.fuzz.templates import Templates
from tests.attacks.fuzz.world import MUTATIONS, Trust, World
from tests.table_builder import Action, key_of, replay

__all__ = ["Case", "Selection", "build"]


@dataclass(frozen=True)
class Selection:
    """Which cases there are; by default all."""

    forms: tuple[str, ...] = FORMS
    mutations: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """A hostile table.

    Attributes:
        seed: makes it again.
        form: of the log; see `tables.FORMS`.
        applied: what was done, in words.
        tree: the files.
        trust: what is known of the newest version.
        version: the right answer, where something is known.
        keys: the right live files, likewise; see `file_key`.
        owner_entries: what the commit owner knows.
        inventory: paths for an inventory.
        one_truth: whether the commits alone say what the table is. Where a checkpoint or compaction says it
            too, and nothing is known of them, they may contradict each other, and then any may be believed.
    """

    seed: int
    form: str
    applied: tuple[str, ...]
    tree: Tree
    trust: Trust
    version: int
    keys: frozenset[tuple[str, str | None]]
    owner_entries: tuple[Any, ...]
    inventory: tuple[str, ...]
    one_truth: bool

    def __str__(self) -> str:
        return f"seed {self.seed}, form {self.form}: " + "; ".join(self.applied)


def build(seed: int, places: Places, templates: Templates, chosen: Selection | None = None) -> Case:
    """The case of a seed."""
    chosen = chosen or Selection()
    rng = random.Random(seed)
    form = rng.choice(chosen.forms)
    managed = form == MANAGED
    commits = [] if managed else history(form)
    tree = dict(templates.managed) if managed else data_files(form)
    owner_entries = templates.owner_entries if managed else ()
    world = World(places, form, commits, tree, blobs=templates.blobs, owner_entries=owner_entries)
    picked = _pick(rng, chosen, managed=managed)
    applied: list[str] = []
    for name in (name for name in picked if MUTATIONS[name].stage == 1):
        _apply(world, name, rng, applied)
    _lay_out_log(world, applied)
    known = _known(world)
    for name in (name for name in picked if MUTATIONS[name].stage == 2):
        _apply(world, name, rng, applied)
    version, keys = known or (-1, frozenset())
    return Case(
        seed,
        world.form,
        tuple(applied),
        world.tree,
        world.trust if known else Trust.OPEN,
        version,
        keys,
        world.owner_entries,
        tuple(world.inventory),
        not any(".checkpoint." in path or ".compacted." in path for path in world.tree),
    )


def _pick(rng: random.Random, chosen: Selection, *, managed: bool) -> list[str]:
    names = [
        name
        for name, mutation in MUTATIONS.items()
        if (not chosen.mutations or name in chosen.mutations)
        and not (managed and mutation.stage == 1)
    ]
    if not names:
        return []
    weights = [MUTATIONS[name].weight for name in names]
    return rng.choices(names, weights, k=rng.choice((1, 1, 1, 1, 2, 2, 3)))


def _apply(world: World, name: str, rng: random.Random, applied: list[str]) -> None:
    mutation = MUTATIONS[name]
    before = world.trust
    said = mutation.apply(world, rng)
    if said is None:
        world.trust = before
        return
    world.trust = min(world.trust, before, mutation.trust)
    applied.append(f"{name} ({said})")


def _lay_out_log(world: World, applied: list[str]) -> None:
    if world.form == MANAGED:
        return
    try:
        log = log_tree(world.form, world.history)
    except Exception as error:  # what is hostile needn't fit into Parquet
        world.history = _writable(world.history)
        log = log_tree("commits", world.history)
        applied.append(f"as commits only: {type(error).__name__}")
        world.form = "commits"
    for path, node in log.items():
        world.tree.setdefault(path, node)


def _writable(commits: list[list[Action]]) -> list[list[Action]]:
    """Without lone surrogates, which UTF-8 doesn't have."""
    text = json.dumps(commits, ensure_ascii=False).encode("utf-8", "replace").decode()
    made: list[list[Action]] = json.loads(text)
    return made


def _known(world: World) -> tuple[int, frozenset[tuple[str, str | None]]] | None:
    """Newest version and live files by brute force; None where the history makes no sense."""
    commits = world.history or _commits_in(world.tree)
    try:
        state = replay(commits)
        if state.protocol is None or state.metadata is None or not all(commits):
            return None
        if _has_spellings(commits, world.places.root):
            return None
        return len(commits) - 1, frozenset(map(file_key, state.files.values()))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _commits_in(tree: Tree) -> list[list[Action]]:
    """The commits of the managed table: those in the log, then those that are ratified."""
    found: dict[int, list[Action]] = {}
    for path, node in tree.items():
        name = path.rpartition("/")[2]
        if path.startswith("_delta_log/") and path.endswith(".json") and isinstance(node, File):
            found[int(name[:20])] = [json.loads(line) for line in node.content.splitlines()]
    return [found[version] for version in sorted(found)]


def _has_spellings(commits: list[list[Action]], root: str) -> bool:
    """Whether one file is named in several ways, which the oracle takes for several files."""
    spellings: dict[str, str] = {}
    for action in (action for commit in commits for action in commit):
        file = action.get("add") or action.get("remove")
        if file is not None:
            path = file["path"]
            below = _plain(path.removeprefix("file://").removeprefix("file:")).removeprefix(
                f"{root}/"
            )
            if spellings.setdefault(below, path) != path:
                return True
    return False


def file_key(file: Any) -> tuple[str, str | None]:
    """What tells a logical file from another; of its spellings some are one here, not all."""
    path, vector = key_of(file)
    return _plain(path.removeprefix("file:")), vector


def _plain(path: str) -> str:
    return posixpath.normpath(unquote(path, errors="surrogateescape"))
