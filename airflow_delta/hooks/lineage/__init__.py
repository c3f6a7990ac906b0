"""Lineage: the datasets that tasks read and write, and their events of OpenLineage."""
