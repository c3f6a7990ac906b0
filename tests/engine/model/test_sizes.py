"""Sizes as text."""

from __future__ import annotations

import pytest

from airflow_delta.engine.model.sizes import size_text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1,023 bytes"),
        (1024, "1.0 KiB (1,024 bytes)"),
        (1_048_575, "1.0 MiB (1,048,575 bytes)"),
        (1_288_490_189, "1.2 GiB (1,288,490,189 bytes)"),
        (1 << 63, "8.0 EiB (9,223,372,036,854,775,808 bytes)"),
        (1 << 80, "1048576.0 EiB (1,208,925,819,614,629,174,706,176 bytes)"),
    ],
)
def test_a_size_is_rounded_and_exact(size: int, text: str) -> None:
    assert size_text(size) == text
