"""What goes wrong once a commit is made is told, and doesn't make it look as if it had failed."""

from __future__ import annotations

import logging
import warnings

from airflow_delta.engine.errors import DeltaWarning
from airflow_delta.engine.public_text import public_text

__all__ = ["warn_afterwards"]

_LOG = logging.getLogger(__name__)


def warn_afterwards(message: str, *, stacklevel: int = 2) -> None:
    """Tell by a `DeltaWarning` of what couldn't be done after a commit.

    Where warnings are errors to the process it is logged instead: an error would undo nothing, and have the
    commit made again.

    Args:
        message: which table, what couldn't be done, and what comes of it.
        stacklevel: see `warnings.warn`, counted from the caller.
    """
    try:
        warnings.warn(message, DeltaWarning, stacklevel=stacklevel + 1)
    except DeltaWarning:
        _LOG.warning("%s", public_text(message))
