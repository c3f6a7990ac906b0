"""The committer seam: how a version of the log comes to be."""
