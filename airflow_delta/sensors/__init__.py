"""Sensors: tasks that wait for a state of a table."""
