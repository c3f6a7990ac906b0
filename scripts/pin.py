"""Write constraints.txt from what is installed in the running environment: names and versions."""

from __future__ import annotations

from importlib.metadata import distributions
from pathlib import Path

HEADER = """\
# What set-up installs, by name and version. Made by `python scripts/pin.py` in an environment where
# the tests pass; do not edit by hand.
"""


def main() -> None:
    """Write the pins of everything but the project itself and the installer."""
    names = {
        d.metadata["Name"].lower().replace("_", "-"): d.version
        for d in distributions()
        if d.metadata["Name"].lower() not in {"airflow-delta", "pip", "setuptools"}
    }
    lines = [f"{name}=={version}" for name, version in sorted(names.items())]
    target = Path(__file__).resolve().parent.parent / "constraints.txt"
    target.write_text(HEADER + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
