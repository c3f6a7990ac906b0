"""Report failures after a commit as warnings, because an error would mean that the commit failed."""

from __future__ import annotations

import logging
import warnings

from airflow_delta.engine.errors import DeltaWarning
from airflow_delta.engine.public_text import public_text

__all__ = ["warn_after_commit"]

_LOG = logging.getLogger(__name__)


def warn_after_commit(message: str, *, stacklevel: int = 2) -> None:
    """Warn by a `DeltaWarning` about what couldn't be done after a commit.

    If the process turns warnings into errors, the message is logged instead. An error wouldn't undo the
    commit, and the caller would commit again.

    Args:
        message: the table, what couldn't be done, and what follows from that.
        stacklevel: see `warnings.warn`, counted from the caller.
    """
    try:
        warnings.warn(message, DeltaWarning, stacklevel=stacklevel + 1)
    except DeltaWarning:
        _LOG.warning("%s", public_text(message))
