"""Encoding as the reference writer's, decoding once, one key for each file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.model.paths import (
    canonical_key,
    decode_path,
    encode_path,
    is_absolute,
    resolve,
)

# Decoded and encoded, as java.net.URI quotes paths.
ENCODED = [
    ("a b", "a%20b"),
    ("a%20b", "a%2520b"),
    ("a%2520b", "a%252520b"),
    ("a+b", "a+b"),
    ("a#b?c", "a%23b%3Fc"),
    ("é", "é"),
    ("\N{PILE OF POO}", "\N{PILE OF POO}"),
    ("a/b", "a/b"),
    ("k=v/part", "k=v/part"),
    ("a:b", "a%3Ab"),
    ("k=1:2/x", "k=1%3A2/x"),
    ("d/a:b", "d/a:b"),
    ("/abs/a:b", "/abs/a:b"),
    ("trailing.", "trailing."),
    ("~", "~"),
    ("p@#h", "p@%23h"),
    ("a[1]{2}", "a%5B1%5D%7B2%7D"),
    ('"<>\\^`|', "%22%3C%3E%5C%5E%60%7C"),
    ("-_.!~*'()@&=+$,;", "-_.!~*'()@&=+$,;"),
    ("tab\there\x7f", "tab%09here%7F"),
    ("nbsp\xa0 \u2028", "nbsp%C2%A0%20%E2%80%A8"),
    ("_2=bar+%2521/p", "_2=bar+%252521/p"),
    ("test%file%prefix-p", "test%25file%25prefix-p"),
]


@pytest.mark.parametrize(("decoded", "encoded"), ENCODED)
def test_encoding_and_its_inverse(decoded: str, encoded: str) -> None:
    assert encode_path(decoded) == encoded
    assert decode_path(encoded) == decoded


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
@settings(max_examples=50)
def test_every_path_round_trips(path: str) -> None:
    encoded = encode_path(path)
    assert decode_path(encoded) == path
    assert is_absolute(encoded) == path.startswith("/")
    assert encode_path(decode_path(encoded)) == encoded


def test_other_writers_encode_more() -> None:
    assert decode_path("%C3%A9%3Da%2db") == "é=a-b"
    assert decode_path("a+b") == "a+b"


@pytest.mark.parametrize("path", ["100%", "a%2", "a%zz", "%%20"])
def test_broken_escapes_are_refused(path: str) -> None:
    with pytest.raises(CorruptLogError, match="not followed by two hexadecimal digits") as caught:
        decode_path(path)
    assert caught.value.path == path


def test_escapes_that_are_no_utf8() -> None:
    with pytest.raises(CorruptLogError, match="do not decode to UTF-8"):
        decode_path("a%FFb")


@pytest.mark.parametrize(
    ("path", "absolute"),
    [
        ("part-0.parquet", False),
        ("k=1:2/x", False),
        ("./a", False),
        ("a%3Ab", False),
        ("/abs/x", True),
        ("file:/abs/x", True),
        ("file:///abs/x", True),
        ("s3://bucket/x", True),
        ("abfss://c@a.dfs.core.windows.net/x", True),
    ],
)
def test_a_slash_or_a_scheme_makes_a_path_absolute(path: str, absolute: bool) -> None:
    assert is_absolute(path) is absolute


@pytest.mark.parametrize(
    ("root", "log_path", "location"),
    [
        ("/data/t", "a%20b/p", "/data/t/a b/p"),
        ("/data/t/", "p", "/data/t/p"),
        ("/", "p", "/p"),
        ("t", "p", "t/p"),
        ("/data/t%20u", "p%2520", "/data/t%20u/p%20"),
        ("/data/t", "/abs/x%20y", "/abs/x y"),
        ("/data/t", "file:/abs/x%20y", "/abs/x y"),
        ("/data/t", "file:///abs/x", "/abs/x"),
        ("/data/t", "FILE://localhost/abs/x", "/abs/x"),
        ("/data/t", "s3://bucket/x%20y", "s3://bucket/x y"),
        ("file:///data/t%20u", "p", "/data/t u/p"),
        ("file:/data/t", "/abs", "/abs"),
        ("s3://bucket", "p", "s3://bucket/p"),
        ("s3://bucket/t", "k=a%2520b/p", "s3://bucket/t/k=a%20b/p"),
        ("s3://bucket/t", "/abs/x", "s3://bucket/abs/x"),
        ("s3://bucket/t", "s3a://Other/x", "s3a://Other/x"),
        ("s3://bucket/t", "file:/abs/x", "/abs/x"),
        ("s3://bucket/a%20b", "p", "s3://bucket/a%20b/p"),
        ("memory://m/t", "k=1:2/d", "memory://m/t/k=1:2/d"),
        ("/data/t", "%2Fp", "/data/t//p"),
    ],
)
def test_a_path_of_the_log_leads_to_one_location(root: str, log_path: str, location: str) -> None:
    assert resolve(root, log_path) == location


@pytest.mark.parametrize(
    "spellings",
    [
        ("/p", "file:/p", "file:///p", "file://localhost/p", "FILE:/p"),
        ("/a%20b/p@%23h", "file:/a%20b/p@%23h", "/a%20b/p%40%23h"),
        ("/é", "/%C3%A9", "file:/é"),
        ("file:/%C3%A9", "file:///%c3%a9", "file:/%c3%A9"),
        ("%C3%A9", "%c3%a9"),
        ("a", "./a", ".//a", "x/../a", "x/y/../../a"),
        ("../a", ".././a", "../x/../a"),
        ("x/", "x/.", "x/y/.."),
        ("./a:b", ".//a:b", "x/../a:b"),
        ("file:/x/a", "file:/x//a", "file:/x/./a", "file:/y/../x/a"),
        ("s3://b/x%2Fy", "S3://b/x%2fy", "s3://b//x%2Fy"),
    ],
)
def test_spellings_of_one_file_have_one_key(spellings: tuple[str, ...]) -> None:
    assert len({canonical_key(path) for path in spellings}) == 1


@pytest.mark.parametrize(
    "path", ["a-b.parquet", "k=a%2520b", "a%40b", ".a", "k=1:2", "100%", "../a"]
)
def test_a_relative_path_is_its_own_key(path: str) -> None:
    assert canonical_key(path) == path


def test_different_files_have_different_keys() -> None:
    paths = [
        "p",
        "/p",
        "file:/p%40q",
        "file:/p@q",
        "%C3%A9",
        "é",
        "%61",
        "a",
        "a%20b",
        "a%2520b",
        "a+b",
        "%2Fp",
        "file%3A/p",
        "s3://b/p",
        "s3://B/p",
    ]
    assert len({canonical_key(path) for path in paths}) == len(paths)


def test_an_absolute_path_belongs_to_the_file_system_of_the_table() -> None:
    key = canonical_key("s3://bucket/p%20q")
    assert canonical_key("/p%20q", table_root="s3://bucket/t") == key
    assert canonical_key("/p%20q", table_root="s3://other/t") != key
    assert canonical_key("p", table_root="s3://bucket") == "p"


@pytest.mark.parametrize("case", ["canonicalized-paths-special-a", "canonicalized-paths-special-b"])
def test_the_reference_takes_these_for_one_file(
    golden_case: Callable[[str], Path], case: str
) -> None:
    paths = [
        action["path"]
        for file in sorted((golden_case(case) / "_delta_log").glob("*.json"))
        for line in file.read_text(encoding="utf-8").splitlines()
        for name, action in json.loads(line).items()
        if name in ("add", "remove")
    ]
    assert len(set(paths)) == 2
    assert len({canonical_key(path) for path in paths}) == 1
