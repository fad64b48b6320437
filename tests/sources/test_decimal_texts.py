"""A text becomes a decimal without loss, or is refused, also where pyarrow reads another number."""

from __future__ import annotations

from decimal import Context, Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.sources.landed_types import decimals_of
from tests.support.depth import examples

EXACT = Context(prec=1000)


def decimals(scale: int, *texts: str | None) -> list[Decimal | None]:
    found: list[Decimal | None] = decimals_of(
        pa.chunked_array([texts], pa.string()), pa.decimal128(38, scale)
    ).to_pylist()
    return found


@st.composite
def numbers(draw: st.DrawFn) -> str:
    digits = st.text("0123456789", max_size=60)
    fraction, zeros = draw(digits), draw(st.sampled_from(["", "0" * 30]))
    point = "." if fraction + zeros else ""
    return f"{draw(st.sampled_from(['', '-']))}{draw(digits) or '0'}{point}{fraction}{zeros}"


@settings(max_examples=examples(100))
@given(numbers(), st.sampled_from([0, 2, 18, 37, 38]))
def test_decimal_is_exact_or_refused(text: str, scale: int) -> None:
    value, unit = Decimal(text), Decimal(1).scaleb(-scale)
    fits = EXACT.remainder(value, unit) == 0 and EXACT.abs(value) < Decimal(10) ** (38 - scale)
    try:
        found = decimals(scale, "0", None, text)
    except pa.ArrowInvalid:
        assert not fits
    else:
        assert fits and found == [0, None, value]


@pytest.mark.parametrize("text", ["1e3", "1.5E+2", "+1", ".5", "5.", "0e400", "-0", "100e-2", "1" + "0" * 19])
def test_number_in_another_form_is_read(text: str) -> None:
    assert decimals(18, text) == [Decimal(text)]


OTHERS = ["NaN", "Infinity", "", " 1", "1_0", "\u0661", "1e400", "1e-19", "1e9999999999", "0x1", "1" + "0" * 300]


@pytest.mark.parametrize("text", OTHERS)
def test_other_texts_are_refused_by_value(text: str) -> None:
    with pytest.raises(pa.ArrowInvalid, match="is not a number of decimal128"):
        decimals(18, "1", text)
