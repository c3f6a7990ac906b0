"""Fixtures of all tests: the golden tables, which live beside the checkout."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import Phase, settings

# In CI the same examples every time: a run shall tell of the change, not of its luck. Elsewhere new
# ones. "explain" is left out: it can take minutes.
settings.register_profile(
    "house",
    deadline=None,
    derandomize="CI" in os.environ,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
settings.load_profile("house")

GOLDEN = Path(__file__).resolve().parents[2] / "shared" / "golden"


def golden_manifest() -> list[dict[str, Any]]:
    """The cases of the corpus; empty where the corpus isn't there."""
    manifest = GOLDEN / "manifest.json"
    if not manifest.is_file():
        return []
    cases: list[dict[str, Any]] = json.loads(manifest.read_text(encoding="utf-8"))["cases"]
    return cases


@pytest.fixture(scope="session")
def golden_root() -> Path:
    """The folder of the golden corpus."""
    if not GOLDEN.is_dir():
        pytest.skip("the golden corpus (../shared/golden beside the checkout) is not here")
    return GOLDEN


def unpack(case: dict[str, Any], target: Path) -> Path:
    """Unpack a case of the corpus, keeping modification times, and give the table's folder."""
    with tarfile.open(GOLDEN / "cases" / Path(case["file"]).name) as archive:
        archive.extractall(target, filter="data")
    template = case.get("template")
    if template:
        # A log that names its own absolute location.
        file = target / template["file"]
        stat = file.stat()
        root = quote(str((target / "delta").resolve()))
        root += "/" + template["relative"] if template["relative"] else ""
        text = file.read_text(encoding="utf-8").replace(template["placeholder"], root)
        file.write_text(text, encoding="utf-8")
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    return target / "delta"


@pytest.fixture(scope="session")
def golden_case(
    golden_root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """A function from a case's name to its table, unpacked once: for reading only."""
    cases = {case["name"]: case for case in golden_manifest()}
    unpacked: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in unpacked:
            unpacked[name] = unpack(cases[name], tmp_path_factory.mktemp("golden") / name)
        return unpacked[name]

    return get


@pytest.fixture
def golden_copy(golden_root: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A function from a case's name to a table of the test's own, which it may change."""
    cases = {case["name"]: case for case in golden_manifest()}
    return lambda name: unpack(cases[name], tmp_path / name)
