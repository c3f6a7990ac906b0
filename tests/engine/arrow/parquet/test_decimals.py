from __future__ import annotations

from decimal import localcontext

from hypothesis import given
from hypothesis import strategies as st

from airflow_delta.engine.arrow.parquet.decimals import decimal_of, unscaled_of


@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 38), st.integers(16, 20))
def test_every_physical_form_of_a_value_is_that_value(
    unscaled: int, scale: int, width: int
) -> None:
    raw = unscaled.to_bytes(width, "big", signed=True)
    with localcontext() as context:
        context.prec = 3
        values = [decimal_of(form, scale) for form in (raw, unscaled)]
    assert unscaled_of(raw) == unscaled
    for value in values:
        sign, digits, exponent = value.as_tuple()
        assert (-1) ** sign * int("".join(map(str, digits))) == unscaled
        assert exponent == -scale
