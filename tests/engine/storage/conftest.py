"""Keeps the credentials of the user who runs the tests out of them."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the variables that the clients of the object stores read."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")) and name != "AWS_CA_BUNDLE":
            monkeypatch.delenv(name)
