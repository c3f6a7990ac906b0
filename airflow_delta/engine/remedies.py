"""Remedies for damaged tables, as texts for errors and for the findings of a check.

"Restore" means `DeltaTable.restore`, which needs a readable log. So texts about a missing or damaged file
of the log say "put back from a backup".
"""

from __future__ import annotations

__all__ = ["PUT_COMMIT_BACK_OR_DELETE", "PUT_FILES_BACK", "PUT_FILE_BACK", "PUT_VECTOR_BACK"]

PUT_FILE_BACK = "the engine can't restore it: put the file back from a backup"
"""For a file of the log that is missing or damaged, and that nothing replaces."""

PUT_FILES_BACK = "nothing here brings them back: put the files back from a backup"
"""For several such files."""

PUT_COMMIT_BACK_OR_DELETE = (
    f"{PUT_FILE_BACK}; or delete it, if it is the newest commit and no reader has seen it"
)
"""For an empty commit file, whose writer may have died."""

PUT_VECTOR_BACK = (
    "put the file back from a backup; or DeltaTable.restore() or RestoreOperator to a version "
    "before it"
)
"""For the file of a deletion vector. The log is intact, so the table can be restored."""
