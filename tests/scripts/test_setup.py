"""The set-up: what it asks uv and pip for, with a virtual environment that takes notes; and its locks."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "setup.sh"
LOCKS = (
    "constraints.txt",
    "constraints-build.txt",
    "docker/constraints.txt",
    "tests/cloud_providers/libraries.txt",
    "tests/cloud_providers/providers.txt",
)

# The interpreter of the virtual environment, and uv: each writes down how it was called.
PYTHON = '#!/bin/sh\necho "python $*" >>{notes}\n{then}\n'
UV = """#!/bin/sh
echo "uv $*" >>{notes}
env | grep -E '^(UV_|SSL_CERT_FILE|VIRTUAL_ENV)' | sort >>{notes}
exit {status}
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "a checkout"
    (root / "scripts").mkdir(parents=True)
    (root / "venv" / "bin").mkdir(parents=True)
    (root / "constraints.txt").touch()
    shutil.copy(SCRIPT, root / "scripts")
    return root


def program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def set_up(root: Path, *, uv: int, then: str = "", **settings: str) -> list[str]:
    """Run the script, with an uv that ends with a status: the notes that were taken."""
    notes = root.parent / "notes"
    bin_ = root / "venv" / "bin"
    program(bin_ / "python", PYTHON.format(notes=notes, then=then))
    program(bin_ / "uv", UV.format(notes=notes, status=uv))
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PIP_", "UV_", "SSL_", "VIRTUAL_ENV"))
    }
    command = [str(root / "scripts" / "setup.sh"), "venv"]
    subprocess.run(command, check=True, env={**inherited, **settings}, timeout=60)
    return notes.read_text().splitlines()


def test_pips_settings_are_handed_on_to_uv(checkout: Path) -> None:
    notes = set_up(
        checkout,
        uv=0,
        PIP_INDEX_URL="https://index.example/simple",
        PIP_EXTRA_INDEX_URL="https://a.example/simple https://b.example/simple",
        PIP_CERT="/etc/company ca.pem",
    )
    # No strategy by which one index could give a newer file than the one that is meant.
    assert set(notes[2:-1]) == {
        "UV_DEFAULT_INDEX=https://index.example/simple",
        "UV_INDEX=https://a.example/simple https://b.example/simple",
        "SSL_CERT_FILE=/etc/company ca.pem",
        f"VIRTUAL_ENV={checkout / 'venv'}",
    }


def test_without_settings_uv_gets_none(checkout: Path) -> None:
    assert set_up(checkout, uv=0)[2:-1] == [f"VIRTUAL_ENV={checkout / 'venv'}"]


LOCKED = "--require-hashes --no-build-isolation --requirement constraints.txt"


def test_everything_that_is_downloaded_has_a_hash(checkout: Path) -> None:
    tools, packages, _, this = set_up(checkout, uv=0)
    assert tools.startswith("python -m pip install")
    assert tools.endswith(
        "--require-hashes --only-binary :all: --requirement constraints-build.txt"
    )
    assert packages == f"uv pip install --quiet {LOCKED}"
    assert this.startswith("python -m pip install")
    assert this.endswith("--no-deps --no-build-isolation --editable .")


def test_pip_does_it_where_uv_does_not(checkout: Path) -> None:
    *_, packages, this = set_up(checkout, uv=2)
    assert packages.startswith("python -m pip install")
    assert packages.endswith(LOCKED)
    assert this.endswith("--no-deps --no-build-isolation --editable .")


def test_without_what_builds_the_others_the_set_up_ends(checkout: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        set_up(checkout, uv=0, then='case "$*" in *constraints-build.txt) exit 1;; esac')
    assert len((checkout.parent / "notes").read_text().splitlines()) == 1


@pytest.mark.parametrize("name", LOCKS)
def test_locks_pin_each_package_by_hashes_and_hold_no_address(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "://" not in text
    assert not re.search(r"^-", text, re.MULTILINE)  # no option, such as an index
    entries = re.split(r"\n(?=[A-Za-z0-9])", text.partition("\n")[2])
    assert len(entries) > 5
    for entry in entries:
        pin, *hashes = entry.rstrip().split(" \\\n    ")
        assert re.fullmatch(r"[a-z0-9][a-z0-9._-]*(\[[a-z0-9,-]+\])?==\S+( ; .+)?", pin), pin
        assert hashes
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes)


def _pins(name: str) -> set[str]:
    lines = (ROOT / name).read_text().splitlines()
    return {re.split(r"[ ;]", line)[0] for line in lines if line[:1].isalnum()}


def test_the_locks_agree() -> None:
    assert _pins("docker/constraints.txt") <= _pins("constraints.txt")
    # What is put beside the environment replaces nothing in it.
    aside = _pins("tests/cloud_providers/libraries.txt")
    names = {pin.partition("==")[0] for pin in aside}
    assert not names & {pin.partition("==")[0] for pin in _pins("constraints.txt")}


def test_the_emulators_lock_has_hashes_and_no_address_of_a_registry() -> None:
    folder = ROOT / "tests" / "azurite"
    wanted = json.loads((folder / "package.json").read_text())["dependencies"]
    text = (folder / "package-lock.json").read_text()
    assert "://" not in text
    packages = json.loads(text)["packages"]
    assert packages.pop("")["dependencies"] == wanted
    assert packages["node_modules/azurite"]["version"] == wanted["azurite"]
    for package in packages.values():
        assert package["integrity"].startswith("sha512-")
        assert "resolved" not in package


def test_images_are_named_by_digests() -> None:
    """Whatever tag is meant, the file that is there has the address of its content."""
    compose = (ROOT / "docker" / "compose.yaml").read_text()
    images = re.findall(r"(?:^\s*image: |^\s*FROM )(\S+)", compose, re.MULTILINE)
    foreign = [image for image in images if image != "airflow-delta-trial"]
    assert len(foreign) == 3
    for image in foreign:
        assert re.fullmatch(r"[a-z0-9./-]+@\$\{[A-Z_]+_DIGEST:\?[^}]*\}", image), image
