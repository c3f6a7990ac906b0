"""`read_alike` reads what `json.loads` reads, or nothing."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.arrow.statistics import alike as alike_stats
from airflow_delta.engine.arrow.statistics import parse as stats
from airflow_delta.engine.arrow.statistics.alike import read_alike

ROWS = 70
BOUNDS = pa.struct([("id", pa.int64()), ("t", pa.string()), ("f", pa.float64())])
TYPE = pa.struct(
    [
        ("numRecords", pa.int64()),
        ("tightBounds", pa.bool_()),
        ("minValues", BOUNDS),
        ("nullCount", pa.struct([("id", pa.int64())])),
    ]
)


def text(number: int, name: str = "") -> str:
    return (
        f'{{"numRecords":{number},"tightBounds":{"false" if number % 3 else "true"},'
        f'"minValues":{{"id":{number * 17 - 99},"t":"{name or "x" * (number % 5)}","f":{number}.5e1}},'
        f'"nullCount":{{"id":{number * number}}}}}'
    )


def read(texts: list[str], type_: pa.DataType = TYPE) -> list[Any] | None:
    result = read_alike(pa.array(texts, pa.string()), type_)
    if result is None:
        return None
    result.validate(full=True)
    return result.to_pylist()


def oracle(value: Any, type_: pa.DataType) -> Any:
    """What of a JSON value is of a type."""
    if pa.types.is_struct(type_):
        if not isinstance(value, dict):
            return None
        return {field.name: oracle(value.get(field.name), field.type) for field in type_}
    if pa.types.is_boolean(type_) or pa.types.is_string(type_):
        return value if isinstance(value, bool if pa.types.is_boolean(type_) else str) else None
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return None
    if pa.types.is_integer(type_):
        return int(value) if value == int(value) and -(2**63) <= value < 2**63 else None
    return Decimal(value) if pa.types.is_decimal(type_) else float(str(value))


def expected(texts: list[str], type_: pa.DataType = TYPE) -> list[Any]:
    return [oracle(json.loads(each, parse_float=Decimal), type_) for each in texts]


def test_texts_that_are_alike() -> None:
    texts = [text(number) for number in range(ROWS)]
    assert read(texts) == expected(texts)


@pytest.mark.parametrize(
    "name", ["a,b", '},"f":1', "{}[]:", "'", "\x7f", "žluť \U0010ffff", "\ufffd", "null"]
)
def test_strings_may_hold_what_json_is_made_of(name: str) -> None:
    texts = [text(number, name if number % 2 else "") for number in range(ROWS)]
    if '"' in name:
        assert read(texts) is None
    else:
        assert read(texts) == expected(texts)


ONE = pa.struct([("a", pa.struct([("b", pa.int64())])), ("b", pa.int64())])


@pytest.mark.parametrize(
    "shape",
    [
        '{{"a":{{"b":{0}}},"b":1}}', '{{"b":{0}}}', '{{"b":{0},"a":{{"a":{{"b":7}},"b":{0}}}}}',
        '{{"a":{{"b":null,"c":{0}}},"b":{0}}}', '{{"a":{0},"b":{{"b":{0}}}}}', '{{"a":{{}},"b":{0}}}',
        '{{"a,b":{0},"a":{{"b":1,"a:b":"x,y"}}}}', '{{"x.*[(|":{0},"$^\\u007b":1}}', "{{}}",
        '{{ "a" :\t{{\n "b" : {0} }} , "b" : {0}.0e1 }} ', '{{"ß":"{0}","b":{0},"a":{{"ß":1,"b":{0}}}}}',
        '{{"b":"{0}","a":null}}', '{{"b":true,"a":{{"b":false}}}}', '{{"":{0},"b":{0}}}',
    ],
)  # fmt: skip
def test_shapes(shape: str) -> None:
    texts = [shape.format(number) for number in (5, -60, 700, 0, 9999) for _ in range(ROWS)]
    result = read(texts, ONE)
    needs_parser = "\\u" in shape or ".0e1" in shape
    assert result == (None if needs_parser else expected(texts, ONE))


HOSTILE = [
    text(1).replace('"id":', '"jd":'), text(1).replace('"t":', '"T":'), text(1) + " ", " " + text(1),
    text(1).replace("-82", "-082"), text(1).replace("-82", "+82"), text(1).replace("-82", "8.2"),
    text(1).replace("-82", "NaN"), text(1).replace("-82", '"-82"'), text(1).replace("-82", "null"),
    text(1).replace("-82", "9223372036854775808"), text(1).replace("-82", "1e3"),
    text(1).replace("-82", ""), text(1).replace("-82", "1\\u0000"),
    text(1).replace("-82", "[1]"), text(1).replace("-82", "{}"), text(1).replace("-82", '1,"id":2'),
    text(1).replace("-82", "١"), text(1).replace("1.5e1", "1.e1"), text(1).replace("1.5e1", ".5"),
    text(1).replace("1.5e1", "Infinity"), text(1).replace("false", "False"), text(1).replace("false", "0"),
    text(1, r"a\"b"), text(1, r"\u0041"), text(1, "\\"), text(1, "a\tb"), text(1, "\n"),
    text(1, '","id":5,"t":"'),
    text(1)[:-1], text(1) + "}", text(1) + text(2), "", "{}", "null", "x",
    text(1).replace('"numRecords":1,', ""), text(1).replace(',"tightBounds":false', ""),
    text(1).replace('"tightBounds":false,', '"numRecords":2,"tightBounds":false,'),
    text(1).replace('"minValues"', '"maxValues"'), text(1).replace('{"id":-82,', '{"id":-82},"x":{'),
]  # fmt: skip


@pytest.mark.parametrize("hostile", HOSTILE)
def test_one_text_of_another_shape_is_for_the_parser(hostile: str) -> None:
    assert hostile != text(1)
    alike = [text(number) for number in range(2, ROWS)]
    for texts in ([*alike, hostile], [alike[0], hostile, *alike], [hostile, *alike]):
        assert read(texts) is None


@pytest.mark.parametrize("hostile", HOSTILE)
def test_texts_of_a_hostile_shape(hostile: str) -> None:
    """Read right, or left to the parser, which may know better."""
    result = read([hostile] * ROWS)
    assert result is None or result == expected([hostile] * ROWS)


@pytest.mark.parametrize(
    "raw", [b"\xff", b"\xed\xa0\x80", b"\xc0\xa2", b"\xf4\x90\x80\x80", b"\xe0\x80\xa2"]
)
def test_what_is_no_utf8_is_for_the_parser(raw: bytes) -> None:
    good, bad = text(1, "good").encode(), text(1, "bad").encode().replace(b"bad", raw)
    for texts in (
        [good] * ROWS + [bad],
        [bad] * ROWS,
        [bad.replace(b'"t"', b'"' + raw + b'"')] * ROWS,
    ):
        assert read_alike(pa.array(texts, pa.binary()).view(pa.string()), TYPE) is None


def test_what_is_null_few_or_long_is_for_the_parser() -> None:
    assert read([text(1)] * 3) is None
    assert read([*[text(1)] * ROWS, None]) is None  # type: ignore[list-item]
    assert read([text(1, "x" * 500)] * ROWS) is None
    assert read([text(1)] * ROWS) is not None


def test_a_slice_starts_where_it_starts() -> None:
    texts = [text(number) for number in range(3 * ROWS)]
    part = pa.array([None, "{", *texts], pa.string()).slice(ROWS, ROWS)
    result = read_alike(part, TYPE)
    assert result is not None
    assert result.to_pylist() == expected(part.to_pylist())


_numbers = st.sampled_from(
    ["0", "-0", "-1", "9007199254740993", "-9223372036854775808", "9223372036854775807", "1" * 18]
)  # fmt: skip
_odd_numbers = st.sampled_from(
    ["-0.0", "1e3", "1E+3", "-1.50", "5e-324", "9223372036854775808", "1" * 30, "0.1"]
)
_plain = st.text(
    st.characters(codec="utf-8", exclude_characters='"\\', exclude_categories=["Cc"]), max_size=4
)
_strings = st.one_of(_plain, _plain, st.text(st.characters(codec="utf-8"), max_size=3))
_keys = st.one_of(st.sampled_from(["minValues", "id", "a,b"]), _plain)
_types = st.sampled_from([pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.decimal128(38, 2)])
_scalars = st.sampled_from(["number", "string", "flag", "null"])
_shapes = st.dictionaries(
    _keys,
    st.recursive(_scalars, lambda inner: st.dictionaries(_keys, inner, max_size=3)),
    max_size=4,
)


def _type_like(data: st.DataObject, shape: dict[str, Any]) -> pa.StructType:
    """A type with some of the keys of a shape, nearly always of its kinds, and one more."""
    fields: list[tuple[str, pa.DataType]] = [("missing", data.draw(_types))]
    for key, kind in shape.items():
        if isinstance(kind, dict) and data.draw(st.booleans()):
            fields.append((key, _type_like(data, kind)))
        elif key != "missing" and data.draw(st.booleans()):
            fields.append((key, data.draw(_types)))
    return pa.struct(fields)


def _filled(data: st.DataObject, shape: Any, numbers: st.SearchStrategy[str]) -> str:
    if isinstance(shape, dict):
        members = (
            f"{json.dumps(key, ensure_ascii=False)}: {_filled(data, kind, numbers)}"
            for key, kind in shape.items()
        )
        return "{" + ", ".join(members) + "}"
    if shape == "string":
        return json.dumps(data.draw(_strings), ensure_ascii=False)
    return data.draw(
        numbers if shape == "number" else st.just("true" if shape == "flag" else "null")
    )


@settings(max_examples=50, deadline=None)
@given(_shapes, st.sampled_from([_numbers, _odd_numbers]), st.data())
def test_it_reads_what_json_reads_or_nothing(
    shape: dict[str, Any], numbers: st.SearchStrategy[str], data: st.DataObject
) -> None:
    texts = [_filled(data, shape, numbers) for _ in range(4)] * 20
    type_ = _type_like(data, shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alike_stats, "_LONGEST", 10_000)
        result = read(texts, type_)
        if result is not None:
            assert result == expected(texts, type_)
            patch.setattr(stats, "read_alike", lambda *_: None)
            assert stats.parse_stats_array(pa.array(texts), type_).to_pylist() == result
