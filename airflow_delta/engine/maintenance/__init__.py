"""Maintenance: operations that keep a table healthy, each as a plan that is then executed."""
