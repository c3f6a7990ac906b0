"""Restore an earlier version of a table as a new one."""
