"""From staged actions to the text of a commit, in stages.

A stage is one feature's rule: a pure function that takes the actions of one attempt and the table that
they will give, and returns the actions, changed or not, or refuses them. `stages` has their order, and
a module for each: what it makes sure of, and where the protocol says so. They run anew for each
attempt, against the version that the attempt builds on, and nothing of an attempt is written before
the last of them has passed.

Spec: PROTOCOL.md, "Requirements for Writers" and the sections of the features; edge cases B14, E11 to
E15.
"""

from __future__ import annotations

from airflow_delta.engine.transaction.prepare.commit_text import commit_text
from airflow_delta.engine.transaction.prepare.stages import Prepared, prepare

__all__ = ["Prepared", "commit_text", "prepare"]
