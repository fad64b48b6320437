"""Payloads of JSON, whether they fit a schema, and the values that Spark reads in them."""

from __future__ import annotations

FITS = [
    b'{"id": "a", "amount": 1.5}', b'{"id": "a"}', b'{"id": "a", "amount": null, "more": 1}', b' {"id": 5} \n',
]  # fmt: skip
DOES_NOT_FIT = {
    b"": "is not JSON",
    b"no": "is not JSON",
    b'{"id": "a"': "is not JSON",
    b"{'id': 'a'}": "is not JSON",
    b"null": "is not a JSON object",
    b"5": "is not a JSON object",
    b'[{"id": "a"}]': "is not a JSON object",
    b'{"id": "a"}{"id": "b"}': "not one JSON object",
    b'{"id": "a"}\n{"id": "b"}': "not one JSON object",
    b'{"id": "a"}, {"id": "b"}': "not one JSON object",
    b'{"id": "a"} more': "not one JSON object",
    b'{"id": "a"}]}': "not one JSON object",
    b'{"id": "\xff"}': "is not UTF-8",
    b'{"id": "a", "amount": "x"}': "field 'amount' is no DOUBLE",
    b'{"amount": 1}': "field 'id' is missing",
    b'{"id": null}': "field 'id' is missing",
}


TEXTS: dict[str, list[tuple[str, str]]] = {
    "x STRING": [
        (number, number)
        for number in (
            "1.10", "1E-130", "12345678901234567890.123", "-9.99999999999999999999999999999999999999E+125", "-0",
            "-0.0", "1e400", "7", "12345678901234567890123", "true", "[1.50,1E5]",
        )
    ] + [
        ('"1.10"', "1.10"),
        ('{"a": 1.10, "b": ["1.10", -0, 1e400], "1.5": "é \\" 2.50"}',
         '{"a":1.10,"b":["1.10",-0,1e400],"1.5":"é \\" 2.50"}'),
        ('["' + "\\n" * 20_000 + '",1.50]', '["' + "\\n" * 20_000 + '",1.50]'),
    ],
    "x ARRAY<STRING>": [('[1.10, "1.10", null, {"a": 1E5}]', "[1.10, 1.10, null, {\"a\":1E5}]")],
    "x MAP<STRING, STRING>": [('{"a": 1.10, "b": "x"}', "{a -> 1.10, b -> x}"), ('{"a": "x"}', "{a -> x}")],
    "x STRUCT<a: STRUCT<b: STRING>, c: INT>": [
        ('{"a": {"b": 1E-130}, "c": 5}', "{{1E-130}, 5}"), ('{"c": 5}', "{null, 5}"), ('{"a": null}', "{null, null}"),
    ],
    "x DECIMAL(38,10)": [("12345678901234567890.1230", "12345678901234567890.1230000000"), ("1500e-3", "1.5000000000")],
    "x BIGINT": [("7.0", "7"), ("12345678.0", "12345678"), ("1e3", "1000")],
    "x TIMESTAMP": [
        ("1769817600", "2026-01-31 00:00:00"), ("2024", "1970-01-01 00:33:44"), ('"2024"', "2024-01-01 00:00:00"),
        ('"2024-05-06T07:08:09.123456000Z"', "2024-05-06 07:08:09.123456"),
    ],
    "x TIMESTAMP_NTZ": [('"2024-05-06T07:08:09.5"', "2024-05-06 07:08:09.5")],
    "x DATE": [('"2024-05-06"', "2024-05-06"), ('"2024-05-06T00:00:00Z"', "2024-05-06")],
    "x DOUBLE": [("9007199254740992", "9.007199254740992E15"), ("100000000000000000000", "1.0E20"), ("0.1", "0.1")],
    "x ARRAY<FLOAT>": [("[16777216, 0.1]", "[1.6777216E7, 0.1]")],
}  # fmt: skip
"""By schema, the JSON of a field and the text of its value, as Spark writes it."""
