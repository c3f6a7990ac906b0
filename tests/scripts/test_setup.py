"""The set-up: what it asks uv and pip for, in a checkout whose virtual environment only takes notes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "setup.sh"

# The interpreter of the virtual environment, and uv: each writes down how it was called.
PYTHON = '#!/bin/sh\necho "python $* [$PIP_CONSTRAINT]" >>{notes}\n{then}\n'
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
    assert set(notes[2:]) == {
        "UV_DEFAULT_INDEX=https://index.example/simple",
        "UV_INDEX=https://a.example/simple https://b.example/simple",
        "UV_INDEX_STRATEGY=unsafe-best-match",
        "SSL_CERT_FILE=/etc/company ca.pem",
        f"VIRTUAL_ENV={checkout / 'venv'}",
    }
    assert notes[0].startswith("python -m pip install")
    assert notes[1].startswith("uv pip install")


def test_without_settings_uv_gets_none(checkout: Path) -> None:
    assert set_up(checkout, uv=0)[2:] == [f"VIRTUAL_ENV={checkout / 'venv'}"]


@pytest.mark.parametrize(
    ("uv", "then"),
    [(2, ""), (0, 'case "$*" in *" uv") exit 1;; esac')],
    ids=["uv fails", "uv can't be installed"],
)
def test_pip_does_it_where_uv_does_not(checkout: Path, uv: int, then: str) -> None:
    last = set_up(checkout, uv=uv, then=then)[-1]
    assert last.startswith("python -m pip install")
    assert last.endswith("--constraint constraints.txt --editable .[dev] [constraints.txt]")
