"""Alterations of a table that must look at its rows first."""
