"""Tables inside the table's directory, around it, and in its log."""

from __future__ import annotations

import random

from tests.attacks.fuzz.files import OLD_MS, File, Folder, Link, Tree
from tests.attacks.fuzz.tables import data_file, history
from tests.attacks.fuzz.world import Trust, World, mutation
from tests.table_builder import commits

NESTED = "nested-live-"
"""How files begin that belong to tables inside this one, so that nobody but their owner may delete them."""


def inner_table(folder: str, names: tuple[str, ...] = ("a", "b", "c")) -> Tree:
    """A table with live files, all of them old."""
    first = history("simple")[0][:3]
    adds = [
        {
            "add": {
                "path": f"{NESTED}{name}.parquet",
                "partitionValues": {},
                "size": len(data_file()),
                "modificationTime": OLD_MS,
                "dataChange": True,
            }
        }
        for name in names
    ]
    tree: Tree = {f"{folder}/{p}": File(text) for p, text in commits([[*first, *adds]]).items()}
    return tree | {f"{folder}/{NESTED}{name}.parquet": File(data_file()) for name in names}


def _remove(path: str) -> dict[str, object]:
    return {
        "remove": {
            "path": path,
            "deletionTimestamp": OLD_MS,
            "dataChange": True,
            "extendedFileMetadata": True,
            "partitionValues": {"p-part": "x"},
            "size": len(data_file()),
        }
    }


_FOLDERS = ("nested", "part=x", "part=x/nested", "deep/er/nested", "_change_data/nested", "part=z")


@mutation(1, weight=4, trust=Trust.RIGHT)
def a_nested_table(world: World, rng: random.Random) -> str:
    """A table in a folder of this one, whose live files this log names as removed."""
    folder = rng.choice(_FOLDERS)
    world.tree |= inner_table(folder)
    said, name_start = folder, NESTED
    if rng.random() < 0.3:
        log = [path for path in world.tree if path.startswith(f"{folder}/_delta_log/")]
        for path in log:
            world.tree[f"elsewhere{path[len(folder) :]}"] = world.tree.pop(path)
        world.tree[f"{folder}/_delta_log"] = Link(
            "../" * (folder.count("/") + 1) + "elsewhere/_delta_log"
        )
        said += ", its log a link"
    elif rng.random() < 0.2:
        # A directory without a commit is no table; what lies in it is this table's own.
        said, name_start = f"{said}, its log empty", "nested-ended-"
        for path in inner_table(folder):
            content = world.tree.pop(path)
            if "/_delta_log/" not in path:
                world.tree[path.replace(NESTED, name_start)] = content
        world.tree[f"{folder}/_delta_log"] = Folder()
    for name in "ab":
        path = f"{folder}/{name_start}{name}.parquet"
        spelling = rng.choice((path, f"{world.places.root}/{path}", f"file:{world.places.root}/{path}",
                               f"./{path}", path.replace("/", "//"), f"{folder}/../{path}",
                               path.replace("nested", "%6eested")))  # fmt: skip
        rng.choice(world.history).append(_remove(spelling))
        world.inventory.append(path)
    return said


@mutation(2, weight=0.7, trust=Trust.EXACT)
def many_nested_tables(world: World, rng: random.Random) -> str:
    """Tables in the table by the hundred, beside one another or one in the other."""
    count, inside = rng.choice((20, 300, 3000)), rng.random() < 0.4
    log = b'{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}\n'
    for number in range(min(count, 60) if inside else count):
        folder = "n/" * (number + 1) if inside else f"n{number}/"
        world.tree[f"{folder}_delta_log/{0:020}.json"] = File(log)
        world.tree[f"{folder}{NESTED}x.parquet"] = File(data_file())
    return f"{count}{' one in the other' if inside else ''}"


@mutation(1, weight=1, trust=Trust.RIGHT)
def same_names(world: World, rng: random.Random) -> str:
    """Files of one name in many folders, removed and there."""
    count = rng.choice((50, 1500, 8000))
    for number in range(count):
        world.tree[f"d{number}/part-0.parquet"] = File(b"PAR1")
        world.history[2].append(_remove(f"d{number}/part-0.parquet"))
    return f"{count}"


@mutation(1, weight=1, trust=Trust.RIGHT)
def removes_in_the_log(world: World, rng: random.Random) -> str:
    """The table's own log and hidden files, named as removed data files."""
    paths = (f"_delta_log/{6:020}.json", "_delta_log/_last_checkpoint", "_delta_log/x",
             ".hidden/x", "_hidden",
             f"./_delta_log/{6:020}.json", f"_delta_log//{6:020}.json", f"%5fdelta_log/{6:020}.json",
             f"part=x/../_delta_log/{6:020}.json", f"_delta_log%2F{6:020}.json",
             f"{world.places.root}/_delta_log/{6:020}.json", "_delta_log", f"_DELTA_LOG/{6:020}.json",
             f"_delta_log/_commits/{6:020}.x.json",
             "_change_data/../_delta_log/_last_checkpoint")  # fmt: skip
    chosen = rng.sample(paths, 5)
    for path in chosen:
        rng.choice(world.history).append(_remove(path))
        world.inventory.append(path)
    return f"{chosen[:2]}"
