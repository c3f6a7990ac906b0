"""Fuzz: whatever lies in a table's directory, each public operation gives a right answer or a typed error.

Within ten seconds and 500 MB, and nothing outside the root is touched, and nobody spoken to; see `fuzz`.
The many cases are run by ``make test-deep``.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from airflow_delta.engine.errors import ObjectNotFoundError
from airflow_delta.engine.storage.location import open_storage
from tests.attacks.fuzz.case import build
from tests.attacks.fuzz.files import File, Tree
from tests.attacks.fuzz.named import named_objects
from tests.attacks.fuzz.operations import OPERATIONS
from tests.attacks.fuzz.probes import PROBES
from tests.attacks.fuzz.runner import Report, Runner, make_templates
from tests.attacks.fuzz.s3_server import S3Server
from tests.attacks.fuzz.tables import FORMS, MANAGED, Places
from tests.attacks.fuzz.templates import load
from tests.attacks.fuzz.world import MUTATIONS
from tests.table_builder import Action, lines, parquet

SOME = range(20)
MANY = range(10_000, 10_000 + int(os.environ.get("FUZZ_CASES", "500")))
"""The same five hundred each time: with every mutation, so that a change which breaks a defence is found.

``FUZZ_CASES=10000`` looks for what nobody has found yet; see CONTRIBUTING.
"""
BLOCK = 250
FEW = 4
"""Operations of each of the many tables: other ones of each, so that all are asked of hundreds."""
HEALTHY = {"forms": ["classic"], "mutations": ["none of them"]}
IN_A_BUCKET = {
    "forms": [form for form in FORMS if form != MANAGED],
    "mutations": ["a_path", "a_path_that_goes", "many_paths", "a_vector", "a_sidecar_path",
    "a_hint", "a_text",
                  "a_nested_table", "removes_in_the_log", "odd_data_names", "an_odd_name", "a_long_path"],
}  # fmt: skip


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_templates(tmp_path_factory.mktemp("templates"))


@pytest.fixture(scope="module")
def runner(templates: Path) -> Iterator[Runner]:
    with Runner(templates=templates) as runner:
        yield runner


@pytest.fixture(scope="module")
def bucket_runner(templates: Path) -> Iterator[Runner]:
    with Runner(templates=templates, store=True) as runner:
        yield runner


@pytest.fixture
def healthy(runner: Runner) -> Runner:
    """Runs every operation on a table to which nothing was done."""
    return runner.choose(HEALTHY, sample=None)


@pytest.fixture
def healthy_bucket(bucket_runner: Runner) -> Runner:
    """The same in a bucket."""
    return bucket_runner.choose(HEALTHY, sample=None)


def check(report: Report) -> None:
    """Nothing was found; or what, each with how to run it again."""
    shown = "\n".join(map(str, report.findings[:20]))
    assert not report.findings, f"{len(report.findings)} findings\n{shown}"


def test_some_hostile_tables(runner: Runner) -> None:
    report = runner.choose(sample=3).run(SOME)
    check(report)
    assert report.cases == len(SOME)


@pytest.mark.deep
def test_some_hostile_tables_in_a_bucket(bucket_runner: Runner) -> None:
    """Nothing outside the root is listed, written or deleted, or read unless the log names it."""
    check(bucket_runner.choose(IN_A_BUCKET, sample=5).run(SOME[:5]))


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_many_hostile_tables_in_a_bucket(templates: Path) -> None:
    with Runner(templates=templates, store=True, chosen=IN_A_BUCKET, sample=FEW) as runner:
        check(runner.run(MANY[:50]))


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", MANY[::BLOCK])
def test_many_hostile_tables(templates: Path, first: int) -> None:
    with Runner(templates=templates, sample=FEW) as runner:
        report = runner.run(range(first, first + BLOCK))
    check(report)
    assert report.cases == BLOCK
    assert len(report.mutations) > 0.8 * len(MUTATIONS)
    # Each operation was asked of a few.
    asked = Counter[str]()
    for answer, count in report.answers.items():
        asked[answer.partition(": ")[0]] += count
    assert asked.keys() == {operation.name for operation in OPERATIONS}


@pytest.mark.deep
def test_many_hostile_tables_have_each_mutation(templates: Path) -> None:
    made = load(str(templates.parent))
    places = Places("/the/table", "/the/other", 1)
    missing = set(MUTATIONS)
    for seed in MANY[:500]:
        missing -= {said.partition(" (")[0] for said in build(seed, places, made).applied}
        if not missing:
            break
    assert not missing


@pytest.mark.parametrize(
    ("probe", "kind", "said"),
    [
        ("raises", "untyped error", "KeyError"),
        ("opens by Python", "left the root", "open"),
        ("opens by C++", "left the root", "canary"),
        ("opens the environment", "left the root", "/proc/"),
        ("deletes outside", "left the root", "deleted"),
        ("starts a program", "left the root", "subprocess.Popen"),
        ("speaks", "connection", "evil.example"),
        ("takes memory", "untyped error", "MemoryError"),
        ("swallows a lack of memory", "memory", "MemoryError"),
        ("quotes", "secret", "CANARY"),
        ("steers the terminal", "control characters", "U+001B"),
        ("talks much", "long message", "100000 characters"),
        ("changes the table", "changed", "has changed the table"),
        ("deletes a live file", "deleted a live file", "f.parquet"),
        ("crashes", "crash", "crash"),
        pytest.param("never ends", "no end", "at", marks=pytest.mark.deep),
    ],
)
def test_what_must_not_happen_is_noticed(healthy: Runner, probe: str, kind: str, said: str) -> None:
    name = f"probe: {probe}"
    assert name in PROBES
    seconds = 1 if probe == "never ends" else None
    findings = healthy.run([1], operations=[name], seconds=seconds).findings
    assert any(f.kind.startswith(kind) and said in f.said + f.kind for f in findings), findings


@pytest.mark.parametrize(
    ("probe", "said"),
    [
        ("reads an object", ["HEAD /fuzz/elsewhere/secret.txt"]),
        ("deletes objects", [f"DELETE /fuzz/elsewhere/{name}.parquet" for name in "ab"]),
        ("lists objects", ["LIST /fuzz/elsewhere/"]),
        ("writes an object", ["PUT /fuzz/elsewhere/x"]),
    ],
)
def test_what_must_not_happen_in_a_bucket_is_noticed(
    healthy_bucket: Runner, probe: str, said: list[str]
) -> None:
    findings = healthy_bucket.run([1], operations=[f"probe: {probe}"]).findings
    found = [finding.said for finding in findings if finding.kind == "connection"]
    assert {*said} <= {*found}, findings


def test_a_log_names_the_objects_that_may_be_read() -> None:
    def paths(*values: str) -> list[Action]:
        return [{"add": {"path": value}} for value in values]

    written = paths(
        "a/b", "/c/d%20e", "s3://fuzz/f//g", "s3a://fuzz/h", "s3://other/i", "file:///j", "//k/l"
    )
    vector = {"deletionVector": {"storageType": "p", "pathOrInlineDv": "s3://fuzz/v.bin"}}
    text = lines(
        [*written, {"remove": {"path": "x", **vector}}, {"txn": {"appId": "s3://fuzz/no"}}]
    )
    tree: Tree = {
        "_delta_log/1.json": File(text),
        "_delta_log/1.checkpoint.parquet": File(parquet(paths("s3://fuzz/q"))),
        "data.json": File(lines(paths("s3://fuzz/no"))),
    }
    assert named_objects(tree, "fuzz") == ["c/d e", "f/g", "h", "q", "v.bin"]


def test_the_store_tells_reads_that_the_log_names_from_others() -> None:
    server = S3Server()
    storage = open_storage(server.uri, server.options)
    for path in ("root/a", "root-b", "named", "other"):
        with suppress(ObjectNotFoundError):
            storage.read(path)
    storage.delete(["root/a", "named", "other"])
    found = server.outside([f"{server.uri}/root"], ["named"])
    server.close()
    assert found == [
        "GET /fuzz/root-b",
        "GET /fuzz/other",
        "DELETE /fuzz/named",
        "DELETE /fuzz/other",
    ]


def test_an_operation_that_does_nothing_wrong_is_none(healthy: Runner) -> None:
    report = healthy.run([1])
    check(report)
    assert report.operations == len(OPERATIONS)
    errors = [answer for answer in report.answers if not answer.endswith(": answer")]
    assert len(errors) < 12, errors


def test_a_seed_makes_the_same_table_each_time(templates: Path) -> None:
    made = load(str(templates.parent))
    places = Places("/the/table", "/the/other", 1)
    for seed in range(40):
        first, again = build(seed, places, made), build(seed, places, made)
        assert str(first) == str(again)
        assert first.tree == again.tree
        assert (first.version, first.keys) == (again.version, again.keys)
