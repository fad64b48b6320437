from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.decoding.columns import PayloadField, columns_of_rows
from airflow_provider_coordination.spark.payload_schema import check_time_formats, time_pattern


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("yyyy-MM-dd HH:mm:ss", "2026-01-31 04:05:06", (2026, 1, 31, 4, 5, 6)),
        ("yyyy-MM-dd HH:mm:ss", " 2026-1-3 4:5:6\n", (2026, 1, 3, 4, 5, 6)),
        ("dd/MMM/yyyy:HH:mm:ss Z", "31/Jan/2026:04:05:06 +0130", (2026, 1, 31, 2, 35, 6)),
        ("d MMMM yyyy", "1 SEPTEMBER 2026", (2026, 9, 1)),
        ("M/d/yyyy h:mm a", "12/31/2026 12:07 am", (2026, 12, 31, 0, 7)),
        ("M/d/yyyy h:mm a", "12/31/2026 1:07 PM", (2026, 12, 31, 13, 7)),
        ("yyyyMMdd'T'HHmmss.SSSZ", "20260131t040506.5z", (2026, 1, 31, 4, 5, 6, 500_000)),
        ("yyyy", "2026", (2026, 1, 1)),
        ("yyyy 'o''clock' MM", "2026 O'CLOCK 02", (2026, 2, 1)),
    ],
)
def test_pattern_gives_the_instant_of_a_text(pattern: str, text: str, expected: tuple[int, ...]) -> None:
    year, month, day, *clock = expected if len(expected) > 1 else (*expected, 1, 1)
    assert time_pattern(pattern).instant(text) == datetime(year, month, day, *clock, tzinfo=UTC)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd", "2026-13-01"),
        ("yyyy-MM-dd", "2026-02-29"),
        ("yyyy-MM-dd", "26-01-01"),
        ("yyyy-MM-dd", "2026-01-01 04:05"),
        ("yyyyMMdd", "20261"),
        ("yyyy-MM-dd HH:mm", "2026-01-31 24:00"),
        ("yyyy-MM-dd hh:mm a", "2026-01-31 13:00 PM"),
        ("yyyy-MM-dd HH:mmZ", "2026-01-31 00:00+19:00"),
        ("yyyy-MM-dd", "٢٠٢٦-01-31"),
    ],
)
def test_pattern_refuses_a_text_without_its_form(pattern: str, text: str) -> None:
    with pytest.raises((ValueError, OverflowError)):
        time_pattern(pattern).instant(text)


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("yy-MM-dd", "'yy' has no exact meaning; write 'yyyy'"),
        ("YYYY-MM-dd", "'Y' is a year of an era: write 'yyyy'"),
        ("EEE, dd MMM yyyy", "'E' is a day of a week, which may contradict the date"),
        ("yyyy-MM-dd HH:mm z", "'z' is the name of a time zone"),
        ("yyyy-MM-dd HH:mm ZZZ", "'ZZZ' has no exact meaning; write 'Z' or 'ZZ'"),
        ("yyyy-MM-dd HH:mm:ss.SSSSSSSSS", "'SSSSSSSSS' has no exact meaning; write 'S' or .* or 'SSSSSS'"),
        ("yyyy-MM-ddTHH", "'T' is not a letter of a pattern; put other text in single quotation marks"),
        ("MM-dd", "it has no year"),
        ("yyyy-dd", "it has no month"),
        ("yyyy-MM-dd mm", "it has no hour"),
        ("yyyy-MM-dd hh:mm", "'h' and 'K' need 'a'"),
        ("yyyy-MM-MMM", "'MMM' names a field that an earlier part has"),
        ("yyyy-MM-dd'T", "a quotation mark is not closed"),
        ("", "it has no year"),
    ],
)
def test_pattern_without_an_exact_meaning_is_refused(pattern: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        time_pattern(pattern)


def test_format_is_a_name_or_a_pattern() -> None:
    check_time_formats({"at": "dd.MM.yyyy"}, {"at": "TIMESTAMP"})
    with pytest.raises(ConfigurationError, match=r"formats 'iso', .*, or a pattern such as .*; got 'nanos'; the patt"):
        check_time_formats({"at": "nanos"}, {"at": "TIMESTAMP"})


def test_decoded_text_is_a_time_by_its_pattern() -> None:
    field = PayloadField(name="at", kind=pa.timestamp("us", "UTC"), type_name="TIMESTAMP", time_format="yyyyMMdd")
    wrong: dict[int, str] = {}
    [column] = columns_of_rows([field], [{"at": "20260131"}, {"at": 20260131}, {"at": "2026-01-31"}], wrong)
    assert column.to_pylist() == [datetime(2026, 1, 31, tzinfo=UTC)] * 2 + [None]
    assert list(wrong) == [2]
