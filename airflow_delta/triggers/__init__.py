"""Triggers: the waiting part of deferrable tasks, run by the triggerer."""
