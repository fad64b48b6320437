"""Globs match names within and across folders."""

from __future__ import annotations

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.s3.selection import Globs


@pytest.mark.parametrize(
    ("glob", "name"),
    [
        ("*.csv", "a.csv"),
        ("*.csv", "2026/11/a.csv"),
        ("a.csv", "deep/a.csv"),
        ("2026/*.csv", "2026/a.csv"),
        ("/*.csv", "a.csv"),
        ("2026/**/*.csv", "2026/a.csv"),
        ("2026/**/*.csv", "2026/11/21/a.csv"),
        ("2026/**", "2026/11/a.csv"),
        ("**/part-*", "a/b/part-0"),
        ("dt=2026-1?-*/*", "dt=2026-11-21/a"),
        ("[ab]*.csv", "b1.csv"),
        ("[a-c].csv", "c.csv"),
        ("[!a]*.csv", "b.csv"),
        ("[]x].csv", "].csv"),
        ("[[]a].csv", "[a].csv"),
        ("[\\^~&|].csv", "^.csv"),
        ("*.{csv,json}", "a.json"),
        ("{a,b/c}/x", "b/c/x"),
        ("a,b.csv", "a,b.csv"),
        ("a}b", "a}b"),
        ("a+(b).csv", "a+(b).csv"),
        ("*", "with\nnewline"),
    ],
)
def test_glob_matches(glob: str, name: str) -> None:
    assert Globs((glob,)).match(name)


@pytest.mark.parametrize(
    ("glob", "name"),
    [
        ("*.csv", "a.csv.gz"),
        ("*.csv", "a.CSV"),
        ("2026/*.csv", "2026/11/a.csv"),
        ("2026/*.csv", "old/2026/a.csv"),
        ("/*.csv", "x/a.csv"),
        ("a?c", "a/c"),
        ("x/a[!b]c", "x/a/c"),
        ("[!a]*.csv", "a.csv"),
        ("*.{csv,json}", "a.parquet"),
        ("a.csv", "axcsv"),
    ],
)
def test_glob_does_not_match(glob: str, name: str) -> None:
    assert not Globs((glob,)).match(name)


def test_any_of_several_globs_is_enough() -> None:
    assert Globs(("*.csv", "*.json")).match("a.json")
    assert not Globs(()).match("a.json")


@pytest.mark.parametrize(
    ("glob", "said"),
    [
        ("", "an empty glob matches nothing; remove it"),
        ("a[b", r"'a\[b' has a '\[' without its '\]'; close it"),
        ("a{b,c", "has a '{' without its '}'; close it"),
        ("[z-a]", r"the range \[z-a\] is invalid"),
    ],
)
def test_invalid_glob_is_refused_with_a_remedy(glob: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Globs((glob,))
