"""A spec file is YAML or JSON within bounds; other features of YAML are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.supervisor.spec_file import (
    MAX_DEPTH,
    MAX_FILE_BYTES,
    digest_of,
    read_spec_file,
    read_spec_text,
    write_spec_text,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(TEXTS, below, max_size=3),
    max_leaves=8,
)


def error_of(text: str, *, is_json: bool = False) -> str:
    with pytest.raises(ConfigurationError) as raised:
        read_spec_text(text, "spec file 'x'", is_json=is_json)
    return str(raised.value)


def test_yaml_and_json_of_a_spec_are_equal(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("version: 1\nreads: {kinesis: {streams: [a, b]}}\n# a comment\n")
    (tmp_path / "a.json").write_text(json.dumps({"reads": {"kinesis": {"streams": ["a", "b"]}}, "version": 1}))
    assert read_spec_file(tmp_path / "a.yaml") == read_spec_file(tmp_path / "a.json")


def test_digest_changes_with_content_and_not_with_format() -> None:
    plain = read_spec_text("version: 1\nsource: clicks", "x")
    same = read_spec_text("# comment\nsource: 'clicks'\nversion:   1\n", "x")
    assert digest_of(plain) == digest_of(same) != digest_of({**plain, "source": "orders"})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("12:30", "12:30"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("2026-01-01", "2026-01-01"),
        ("010", "010"),
        ("0x10", "0x10"),
        ("1_000", "1_000"),
        ("true", True),
        ("1", 1),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("~", None),
        ("", None),
        ("'1'", "1"),
    ],
)
def test_words_and_numbers_mean_the_same_as_in_json(text: str, value: Any) -> None:
    assert read_spec_text(f"a: {text}", "x") == {"a": value}


@given(st.dictionaries(TEXTS, VALUES, max_size=4))
def test_written_yaml_reads_back_the_same(mapping: dict[str, Any]) -> None:
    try:
        written = write_spec_text(mapping)
    except ValueError:  # control characters have no place in YAML
        return
    assert read_spec_text(written, "x") == mapping


def test_alias_bomb_is_refused_at_its_first_alias() -> None:
    bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n"
    assert error_of(bomb) == (
        "spec file 'x', line 2, column 8: alias '*a' is not allowed in a spec; write the value out"
    )


@pytest.mark.parametrize("is_json", [False, True])
def test_too_deep_nesting_is_refused(is_json: bool) -> None:
    deep = '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}"
    assert "nested" in error_of(deep, is_json=is_json)
    assert f"more than {MAX_DEPTH} deep" in error_of('{"a": ' + "[" * 30 + "]" * 30 + "}", is_json=is_json)


@pytest.mark.parametrize(
    ("text", "is_json", "said"),
    [
        ("a: 1\na: 2", False, "line 2, column 1: key 'a' occurs twice; write it once"),
        ("b: {a: 1, a: 2}", False, "key 'a' occurs twice"),
        ('{"a": 1, "a": 2}', True, "key 'a' occurs twice"),
        ("1: 2", False, "a key must be text; got '1'"),
        ("[a, b]: 2", False, "a key must be text"),
        ("a: !!python/object/apply:os.system [ls]", False, "could not determine a constructor"),
        ("a: !!binary aGk=", False, "has no JSON type"),
        ("a: !!timestamp 2026-01-01", False, "has no JSON type"),
        ('{"a": NaN}', True, "NaN is not a JSON number"),
        ("a: 1e999", False, "inf is not a JSON number"),
        (f"a: {'9' * 5000}", False, "… has 5000 digits, more than any number of a spec; write a smaller one"),
        (f'{{"a": {"9" * 5000}}}', True, "… has 5000 digits"),
        ("a: 1\n--- \nb: 2", False, "but found another document"),
        ("a: [1", False, "line 1"),
        ("- a", False, "expected an object with the keys of a spec; got list"),
        ("", False, "expected an object with the keys of a spec; got nothing"),
        ("{", True, "Expecting property name"),
        ("a: \x07", False, "special characters are not allowed"),
    ],
)
def test_invalid_spec_is_one_error(text: str, is_json: bool, said: str) -> None:
    assert said in error_of(text, is_json=is_json)


def test_unusable_file_is_named(tmp_path: Path) -> None:
    large, binary = tmp_path / "large.yaml", tmp_path / "binary.yaml"
    large.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    binary.write_bytes(b"a: \xff")
    for path, said in (
        (tmp_path / "missing.yaml", "missing.yaml' cannot be read: No such file"),
        (tmp_path / "folder.yaml", "folder.yaml' cannot be read: Is a directory"),
        (large, f"is larger than {MAX_FILE_BYTES} bytes"),
        (binary, "is not UTF-8"),
        (tmp_path / "spec.toml", "its name must end with .yaml, .yml, .json"),
    ):
        (tmp_path / "folder.yaml").mkdir(exist_ok=True)
        with pytest.raises(ConfigurationError, match=said):
            read_spec_file(path)
