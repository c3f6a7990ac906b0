"""Prepare staged actions for a commit, in stages, and write them as text.

A stage is the rule of one feature. It is a pure function from the actions of one attempt, and the table
after the commit, to the actions; it may complete them or refuse them. There is a module for each stage, and
`stages` has their order. All of them run again for each attempt. Nothing is written before the last one has
passed.

PROTOCOL.md, "Requirements for Writers" and the sections of the features.
"""

from __future__ import annotations

from airflow_delta.engine.transaction.prepare.commit_text import commit_text
from airflow_delta.engine.transaction.prepare.stages import Prepared, check_definition, prepare

__all__ = ["Prepared", "check_definition", "commit_text", "prepare"]
