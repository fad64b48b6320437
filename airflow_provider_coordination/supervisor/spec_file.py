"""Reading and writing spec files in YAML or JSON, with limits on their size.

Features of YAML that JSON lacks and specs do not need are refused: aliases, tags of other types, several documents, and
the YAML 1.1 words for true and false. So a spec means the same in both formats.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml

from airflow_provider_coordination.coordination.errors import ConfigurationError

MAX_FILE_BYTES = 256 * 1024
MAX_DEPTH = 20
MAX_DIGITS = 40
SUFFIXES = (".yaml", ".yml", ".json")
"""The file name suffixes of specs."""


def read_spec_file(path: str | Path) -> tuple[dict[str, Any], str]:
    """Read a spec from a file.

    :param path: a YAML or JSON file.
    :returns: the content and its digest, which changes with the content but not with comments or layout.
    :raises ConfigurationError: if the file is missing, too large or invalid.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigurationError(f"spec file {str(path)!r}: its name must end with {', '.join(SUFFIXES)}")
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"spec file {str(path)!r} cannot be read: {error.strerror}") from None
    if len(content) > MAX_FILE_BYTES:
        raise ConfigurationError(f"spec file {str(path)!r} is larger than {MAX_FILE_BYTES} bytes, too large for a spec")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"spec file {str(path)!r} is not UTF-8: {error}") from None
    mapping = read_spec_text(text, f"spec file {str(path)!r}", is_json=path.suffix.lower() == ".json")
    return mapping, digest_of(mapping)


def read_spec_text(text: str, what: str, *, is_json: bool = False) -> dict[str, Any]:
    """Read a spec from YAML, or JSON.

    :param what: its name in errors.
    :raises ConfigurationError: if it is invalid; names the position and the reason.
    """
    try:
        value = _json(text) if is_json else yaml.load(text, Loader=_Loader)
        _check(value)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
        raise ConfigurationError(f"{what}{where}: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ConfigurationError(f"{what}: {reason}") from None
    if not isinstance(value, dict):
        found = "nothing" if value is None else type(value).__name__
        raise ConfigurationError(f"{what}: expected an object with the keys of a spec; got {found}")
    return value


def write_spec_text(mapping: Mapping[str, Any]) -> str:
    """Return a JSON object as the YAML that `read_spec_text` reads."""
    has_odd_breaks = re.search("[\x85\u2028\u2029\ufeff]", json.dumps(mapping, ensure_ascii=False)) is not None
    text: str = yaml.dump(
        dict(mapping),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=not has_odd_breaks,
        default_flow_style=False,
        width=120,
    )
    return text


def digest_of(mapping: Mapping[str, Any]) -> str:
    """Return a digest of a JSON object, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(mapping, sort_keys=True).encode()).hexdigest()


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Loads the part of YAML that corresponds to JSON: the core schema of YAML 1.2, without aliases."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose the next node, unless it is an alias or nested too deeply."""
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.composer.ComposerError(
                None, None, f"alias '*{event.anchor}' is not allowed in a spec; write the value out", event.start_mark
            )
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise yaml.composer.ComposerError(
                None, None, f"it is nested more than {MAX_DEPTH} deep", self.peek_event().start_mark
            )
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Construct an object whose keys are unique strings."""
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                raise yaml.constructor.ConstructorError(
                    None, None, f"a key must be text; got {getattr(key, 'value', key.tag)!r}", key.start_mark
                )
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key.value!r} occurs twice; write it once", key.start_mark
                )
            seen.add(key.value)
        made: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return made

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Construct a whole number."""
        return _whole(node.value)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Writes YAML that the loader reads back unchanged."""


for _class in (_Loader, _Dumper):
    _class.yaml_implicit_resolvers = {}
    for _tag, _pattern, _first in (
        ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
        ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
        ("int", r"[-+]?(?:0|[1-9]\d*)", list("-+0123456789")),
        ("float", r"[-+]?(?:\.\d+|(?:0|[1-9]\d*)(?:\.\d*)?)(?:[eE][-+]?\d+)?", list("-+.0123456789")),
    ):
        _class.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), _first)


def _json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_object, parse_int=_whole, parse_constant=_no_constant)


def _whole(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(
            f"{text[:MAX_DIGITS]}… has {len(text)} digits, more than any number of a spec; write a smaller one"
        )
    return int(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for name, value in pairs:
        if name in mapping:
            raise ValueError(f"key {name!r} occurs twice; write it once")
        mapping[name] = value
    return mapping


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _check(value: Any, depth: int = 0) -> None:
    """Check that a value is valid JSON and not nested too deeply."""
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
    if isinstance(value, dict):
        for each in value.values():
            _check(each, depth + 1)
    elif isinstance(value, list):
        for each in value:
            _check(each, depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a JSON number")
    elif not isinstance(value, str | int | float | bool | None):
        raise ValueError(f"{value!r} has no JSON type; write it in quotes")
