"""Names of files: versions, part counts, odd characters, and too many of them."""

from __future__ import annotations

import random

from tests.attacks.fuzz.files import OLD_MS, File
from tests.attacks.fuzz.tables import data_file
from tests.attacks.fuzz.world import Trust, World, mutation

_UUID = "12345678-1234-1234-1234-123456789abc"
_VERSIONS = (7, 8, 100, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, 10**20 - 1, 99_999_999)
_ODD = (
    "-1.json", "+6.json", "6.json", "0000000000000000000６.json", "٠" * 20 + ".json", " 6.json",
    f"{6:020}.JSON", f"{6:020}.json.gz", f"{6:020}.json~", f".{6:020}.json", f"{6:021}.json",
    f"{6:019}.json",
    f"{7:020}.json.tmp", f"{7:020}.json\n", f"{7:020}\x1b[31m.json", f"{7:020}.json ", f"{7:020}..json",
    f"{7:020}.json.crc", f".{7:020}.json.crc", f"{7:020}.checkpoint", f"{7:020}.checkpoint.parquet.crc",
    f"{7:020}.checkpoint.parquet.tmp", f"{7:020}.checkpoint.0.0.parquet", "x" * 255, "a\nb", "\u202e.json",
    "e\u0301", "%2e%2e", "*", "con", "\udcff\udcfe.json", "_last_checkpoint ", "_LAST_CHECKPOINT", ".json",
    ".parquet", ".crc", f"{7:020}.minor.json", f"{0:020}.{6:020}.compacted",
    f"{6:020}.{0:020}.compacted.json.x",
    f"_commits/{7:020}.json", f"_commits/{_UUID}.json", "_commits/x/y.json", "_sidecars/x/y.parquet",
    "_sidecars/\x1b[31m.parquet", f"_commits/{7:020}.{_UUID.upper()}.json", "crc/x",
    f"{7:020}.00{_UUID}.json",
)  # fmt: skip


@mutation(2, weight=3, trust=Trust.EXACT)
def an_odd_name(world: World, rng: random.Random) -> str:
    """Files in the log by names that aren't names of a log."""
    names = rng.sample(_ODD, rng.choice((1, 3, 20)))
    for name in names:
        world.tree.setdefault(
            f"_delta_log/{name}", File(rng.choice((b"", b"{}", b"\0" * 9, data_file())))
        )
    return f"{names[:3]}"


@mutation(2, weight=5)
def a_version(world: World, rng: random.Random) -> str:
    """A file of a version that nobody has reached, or of a range that makes no sense."""
    version, other = rng.choice(_VERSIONS), rng.choice(_VERSIONS)
    name = rng.choice(
        (f"{version:020}.json", f"{version:020}.checkpoint.parquet", f"{version:020}.crc",
         f"{0:020}.{version:020}.compacted.json", f"{version:020}.{other:020}.compacted.json",
         f"{version:020}.{0:020}.compacted.json", f"{version:020}.checkpoint.{_UUID}.json",
         f"{version:020}.checkpoint.{_UUID}.parquet", f"_commits/{version:020}.{_UUID}.json",
         f"{5:020}.{version:020}.compacted.json",
         f"_sidecars/{version:020}.checkpoint.{1:010}.{_UUID}.parquet")
    )  # fmt: skip
    sources = world.log_files(name.rpartition(".")[2]) or world.log_files()
    content = world.content(rng.choice(sources)) if sources and rng.random() < 0.7 else b""
    world.tree.setdefault(f"_delta_log/{name}", File(content))
    return name


@mutation(2, weight=3, trust=Trust.RIGHT)
def part_counts(world: World, rng: random.Random) -> str:
    """Parts of checkpoints that have more parts than there are numbers."""
    version = rng.choice((3, 4, 6))
    parts = rng.choice((0, 1, 2, 1000, 10**6, 2**31 - 1, 2**32 - 1, 10**10 - 1))
    numbers = [*rng.sample(range(1, 10), 3), 0, parts, parts + 1]
    sources = world.log_files(".parquet")
    content = world.content(rng.choice(sources)) if sources else b"x"
    if parts in (1, 2):
        world.trust = Trust.OPEN  # they may be whole, and then they count
    for number in numbers[: rng.choice((1, 6))]:
        name = f"_delta_log/{version:020}.checkpoint.{number:010}.{parts:010}.parquet"
        world.tree.setdefault(name, File(content))
    return f"{parts} parts of {version}"


@mutation(2, weight=1.5, trust=Trust.RIGHT)
def many_checkpoints(world: World, rng: random.Random) -> str:
    """Damaged checkpoints in the hundreds; each of them invites another try."""
    count = rng.choice((50, 300, 3000))
    kind = rng.choice(("v2", "v2", "parts", "compacted"))
    content = rng.choice((b"x", b"PAR1PAR1", b"{", b'{"checkpointMetadata":{"version":6}}\n'))
    if content.endswith(b"\n"):
        world.trust = Trust.OPEN  # it may pass for a checkpoint of a table without files
    for number in range(count):
        uuid = f"{number:08x}{_UUID[8:]}"
        name = {
            "v2": f"{rng.choice((5, 6)):020}.checkpoint.{uuid}.{'json' if number % 2 else 'parquet'}",
            "parts": f"{6:020}.checkpoint.{1:010}.{number + 1:010}.parquet",
            "compacted": f"{number % 6:020}.{number % 6 + 1:020}.compacted.json",
        }[kind]
        world.tree.setdefault(f"_delta_log/{name}", File(content, OLD_MS))
    return f"{count} {kind} {content[:9]!r}"


@mutation(2, weight=1, trust=Trust.OPEN)
def many_commits(world: World, rng: random.Random) -> str:
    """Names of commits by the thousand: after a gap, or going on with nothing to say."""
    count, first = rng.choice((100, 3000)), rng.choice((7, 7, 9, 1000))
    content = rng.choice((b"", b"{}\n", b'{"commitInfo":{"timestamp":1}}\n', b"x"))
    for number in range(first, first + count):
        world.tree[f"_delta_log/{number:020}.json"] = File(content, OLD_MS + number * 1000)
    return f"{count} from {first} {content[:20]!r}"


@mutation(2, weight=1, trust=Trust.EXACT)
def many_foreign_files(world: World, rng: random.Random) -> str:
    """Files of no version in the log's directory, or of no commit in the table's, by the thousand."""
    count = rng.choice((200, 4000))
    folder = rng.choice(
        ("_delta_log/", "_delta_log/_commits/", "_delta_log/_sidecars/", "part=x/", "new/", "")
    )
    name = rng.choice(
        ("foreign-{}", "x{}.parquet", f"{{:020}}.{_UUID}.json", "part=x{}/same.parquet")
    )
    if folder == "_delta_log/_commits/":
        world.trust = Trust.RIGHT
    for number in range(count):
        world.tree[folder + name.format(number)] = File(b"x")
    return f"{count} of {folder}{name}"


@mutation(2, weight=2, trust=Trust.EXACT)
def odd_data_names(world: World, rng: random.Random) -> str:
    """Files of the table's directory by odd names, which a vacuum looks at."""
    names = (
        "a\nb.parquet", "\x1b[31mred.parquet", "\udcff.parquet", "%2e%2e.parquet", "a%00b", "%",
        "%zz", "x" * 255,
        "é.parquet", "e\u0301.parquet", "part=x/ .parquet", "part=x/%.parquet", "a:b/c.parquet", "~", "-rf",
        "s3:/evil/x.parquet", "file:/x.parquet", "/".join(["d" * 200] * 15) + "/x", "_hidden/x", ".x/y",
        "part=x/a.parquet.crc", "\\..\\x", "con", "\u202e", "?x", "#x", "a b", "part=%2F/x.parquet",
    )  # fmt: skip
    chosen = rng.sample(names, rng.choice((1, 5, 20)))
    for name in chosen:
        world.tree.setdefault(name, File(data_file()))
        world.inventory.append(name)
    return f"{chosen[:3]}"
