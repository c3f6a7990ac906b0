"""What helps against damage, as errors and the findings of a check say it: one text for each kind.

"Restore" is what `DeltaTable.restore` does, and that has to read the log: where a file of it is gone or
broken it fails with the very error. So what has to come from a backup is *put back*, and is never restored.
"""

from __future__ import annotations

__all__ = ["PUT_COMMIT_BACK_OR_DELETE", "PUT_FILES_BACK", "PUT_FILE_BACK", "PUT_VECTOR_BACK"]

PUT_FILE_BACK = "nothing here brings it back: put the file back from a backup"
"""For a file of the log that is gone or broken, and that nothing makes up for."""

PUT_FILES_BACK = "nothing here brings them back: put the files back from a backup"
"""For several of them."""

PUT_COMMIT_BACK_OR_DELETE = (
    f"{PUT_FILE_BACK}; or delete it, if it is the newest commit and no reader has seen it"
)
"""For a commit of zero bytes, whose writer may have died."""

PUT_VECTOR_BACK = (
    "put the file back from a backup; or DeltaTable.restore() or RestoreOperator to a version "
    "before it"
)
"""For the file of a deletion vector: the log is whole, so that the table can be restored."""
