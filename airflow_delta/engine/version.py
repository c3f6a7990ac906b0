"""The version of the package. The build reads it from here, and nothing else states it."""

__all__ = ["VERSION"]

VERSION = "0.1.0"
