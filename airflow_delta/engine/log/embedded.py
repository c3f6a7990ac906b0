"""Use the actions of a V2 checkpoint that ``_last_checkpoint`` repeats.

Delta Spark embeds the actions of a small top level in the hint (``v2Checkpoint.nonFileActions`` and
``sidecarFiles``, at most 30 each), so that readers needn't open the top level. The protocol doesn't
define this. So the actions are used only if nothing is in doubt: the checksum of the hint is right,
the hint has the checkpoint's name (which contains a UUID) and size, and the actions are complete.
Otherwise the file is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_delta.engine.log.files import Checkpoint, V2Checkpoint
from airflow_delta.engine.log.last_checkpoint import LastCheckpointHint

__all__ = ["embedded_actions"]


def embedded_actions(
    hint: LastCheckpointHint, checkpoint: Checkpoint | None
) -> tuple[tuple[str, Mapping[str, Any]], ...] | None:
    """The actions of a checkpoint's top level, as (kind, JSON object); None if they must be read.

    Args:
        hint: the content of ``_last_checkpoint``.
        checkpoint: the checkpoint to read.
    """
    content = hint.v2_checkpoint
    if content is None or hint.checksum is None or not isinstance(checkpoint, V2Checkpoint):
        return None
    name = str(content.get("path")).rpartition("/")[2]
    if (hint.version, name, content.get("sizeInBytes")) != (
        checkpoint.version,
        checkpoint.path.rpartition("/")[2],
        checkpoint.size,
    ):
        return None
    actions, sidecars = content.get("nonFileActions"), content.get("sidecarFiles")
    # Without sidecars the file actions are in the top level, which must be read anyway.
    if not isinstance(actions, list) or not isinstance(sidecars, list) or not sidecars:
        return None
    found = [item for action in actions for item in _kinds(action)]
    found += [("sidecar", sidecar) for sidecar in sidecars]
    if not all(isinstance(value, dict) for _, value in found):
        return None
    whole = {"checkpointMetadata", "protocol", "metaData"} <= {kind for kind, _ in found}
    return tuple(found) if whole else None


def _kinds(action: Any) -> list[tuple[str, Any]]:
    """The action in a JSON object, which may have other kinds with null."""
    if not isinstance(action, dict):
        return [("", None)]
    return [(kind, value) for kind, value in action.items() if value is not None]
