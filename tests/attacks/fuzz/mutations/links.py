"""Links, pipes, sockets and directories in the places of files and folders."""

from __future__ import annotations

import random

from tests.attacks.fuzz.files import File, Folder, Link, Node, Pipe, Socket
from tests.attacks.fuzz.world import Trust, World, mutation

_UUID = "12345678-1234-1234-1234-123456789abc"


def _target(world: World, rng: random.Random, name: str) -> str:
    """Where a link to a file goes."""
    out, other = world.places.outside, world.places.outside.rpartition("/")[2]
    up = "../" * rng.randrange(1, 4)
    return rng.choice(
        (f"{out}/secret.txt", f"{out}/x.parquet", f"{out}/{name}", f"{up}{other}/secret.txt", name, "loop",
         f"{out}/missing", "/proc/self/environ", "/dev/zero", "/dev/stdin", "/dev/full", "/",
         out, ".", "..",
         "missing", "x" * 300, "a/" * 1000 + "b", f"{out}/victim/_delta_log/00000000000000000000.json",
         "00000000000000000000.json", "/proc/self/fd/0", "/proc/self/root/etc/passwd")
    )  # fmt: skip


def _special(world: World, rng: random.Random, name: str) -> tuple[Node, str]:
    kind = rng.randrange(10)
    if kind < 5:
        link = Link(_target(world, rng, name))
        return link, f"a link to {link.target[:100]!r}"
    if kind < 7:
        return Pipe(), "a pipe"
    if kind < 8:
        return Folder(), "a folder"
    if kind < 9:
        return Socket(), "a socket"
    return File(b"", sparse_size=rng.choice((2**31, 2**33, 2**40))), "a hole"


@mutation(2, weight=6)
def in_the_place_of_a_file(world: World, rng: random.Random) -> str | None:
    """Something else where the log has a file."""
    paths = world.log_files() if rng.random() < 0.8 else world.files()
    if not paths:
        return None
    path = rng.choice(paths)
    moved = world.tree[path]
    world.tree[path], said = _special(world, rng, path.rpartition("/")[2])
    if rng.random() < 0.2:
        # A link to what was there: the same content by another way.
        world.tree["moved"], world.tree[path] = moved, Link(f"{world.places.root}/moved")
        said = "a link to itself elsewhere"
    return f"{path}: {said}"


@mutation(2, weight=4, trust=Trust.RIGHT)
def a_special_hint(world: World, rng: random.Random) -> str:
    """Something else where a hint is expected: reading it must neither hang nor leave the root."""
    names = ("_last_checkpoint", "_last_vacuum_info", f"{6:020}.crc", f"{4:020}.crc")
    name = rng.choice(names)
    world.tree[f"_delta_log/{name}"], said = _special(world, rng, name)
    return f"{name}: {said}"


@mutation(2, weight=4, trust=Trust.RIGHT)
def a_foreign_entry(world: World, rng: random.Random) -> str:
    """Something else by a name that the log doesn't have yet."""
    names = (
        "foreign", ".hidden", "_tmp", ".tmp", f"{7:020}.crc", f"_commit_{_UUID}.json.tmp",
        "_sidecars/x.parquet",
        f"_sidecars/{_UUID}.parquet", f".tmp/_commit_{_UUID}.json.tmp", f"_commits/{7:020}.{_UUID}.json",
        f"_commits/{6:020}.{_UUID}.json", f".{6:020}.json.{_UUID}.tmp", "_staged_commits",
        f"{2:020}.checkpoint.{_UUID}.parquet", f"{0:020}.{4:020}.compacted.json",
        f"{5:020}.checkpoint.{1:010}.{2:010}.parquet",
    )  # fmt: skip
    name = rng.choice(names)
    path = f"_delta_log/{name}"
    if path in world.tree:
        return f"{name} is there"
    world.tree[path], said = _special(world, rng, name.rpartition("/")[2])
    return f"{name}: {said}"


@mutation(2, weight=5, trust=Trust.RIGHT)
def a_linked_folder(world: World, rng: random.Random) -> str:
    """A folder of the table that is a link, mostly to old files of somebody else."""
    folders = ("_delta_log/.tmp", "_delta_log/_sidecars", "_delta_log/_commits", "_change_data", "part=x",
               "part=y", "part=z", "ab", "linked", "_delta_log/_staged_commits")  # fmt: skip
    folder = rng.choice(folders)
    out, other = world.places.outside, world.places.outside.rpartition("/")[2]
    up = "../" * (folder.count("/") + 1)
    target = rng.choice((f"{out}/files", f"{out}/files", out, f"{up}{other}", f"{out}/victim",
                         "/", ".", "..",
                         "missing", "/proc/self", "/dev", folder.rpartition("/")[2],
                         f"{world.places.root}"))  # fmt: skip
    below = [path for path in world.tree if path.startswith(f"{folder}/")]
    if below:
        world.trust = Trust.OPEN if folder.startswith("_delta_log/") else world.trust
    for path in below:
        node = world.tree.pop(path)
        if rng.random() < 0.3:
            world.tree[f"moved/{path}"] = node
    world.tree[folder] = Link(target)
    return f"{folder} to {target}"


@mutation(2, weight=1.5)
def a_linked_log(world: World, rng: random.Random) -> str:
    """``_delta_log`` itself is a link: to the log of another table, to itself, to the log moved away."""
    log = [path for path in world.tree if path.startswith("_delta_log/")]
    out, other = world.places.outside, world.places.outside.rpartition("/")[2]
    victims = (f"{out}/victim/_delta_log", f"../{other}/victim/_delta_log", out)
    target = rng.choice((*victims, "_delta_log", "real", "missing", ".", "/"))
    for path in log:
        node = world.tree.pop(path)
        if target == "real":
            world.tree["real" + path[len("_delta_log") :]] = node
    world.tree["_delta_log"] = Link(target)
    return f"to {target}"


@mutation(2, weight=1, trust=Trust.EXACT)
def loops(world: World, rng: random.Random) -> str:
    """Folders of links to themselves and to each other."""
    root = world.places.root
    for number in range(rng.choice((1, 5, 40))):
        world.tree[f"loop{number}/self"] = Link(".")
        world.tree[f"loop{number}/up"] = Link("..")
        world.tree[f"loop{number}/root"] = Link(root)
        world.tree[f"loop{number}/other"] = Link(f"../loop{number + 1}")
        world.tree[f"loop{number}/x.parquet"] = Link("x.parquet")
    return "of links"


@mutation(2, weight=0.7)
def no_permission(world: World, rng: random.Random) -> str | None:
    """A file that can't be read, except by root."""
    paths = world.log_files()
    if not paths:
        return None
    path = rng.choice(paths)
    node = world.tree[path]
    assert isinstance(node, File)
    world.tree[path] = File(node.content, node.modified_ms, node.sparse_size, 0)
    return path
