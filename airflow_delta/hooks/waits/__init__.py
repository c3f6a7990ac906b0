"""The checks of sensors and triggers that wait for a table."""
