"""The Python of executors: a virtual environment of what the documentation says that they need.

Neither PySpark is in it, which comes with Spark, nor this package, which travels with the job.
"""

from __future__ import annotations

import tarfile
import venv
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

__all__ = ["EXECUTOR_PACKAGES", "executor_python", "packed"]

EXECUTOR_PACKAGES = ("pyarrow", "numpy", "pyroaring", "obstore")


def executor_python(folder: Path, packages: Iterable[str] = EXECUTOR_PACKAGES) -> Path:
    """Create an environment, whose packages are links to those installed here; its interpreter."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for package in packages:
        installed = distribution(package)
        names = {file.parts[0] for file in installed.files or []}
        for name in names - {"..", "__pycache__"}:
            (site / name).symlink_to(str(installed.locate_file(name)))
    return folder / "bin" / "python"


def packed(python: Path, archive: Path) -> Path:
    """Pack the environment of an interpreter as ``venv-pack`` does: relative to its own folder."""
    environment = python.parents[1]
    with tarfile.open(archive, "w:gz") as tar:
        for entry in sorted(environment.iterdir()):
            tar.add(entry, entry.name)
    return archive
