"""Globs over the names of objects, for selecting and excluding them in a scan."""

from __future__ import annotations

import re
from dataclasses import dataclass

from airflow_provider_coordination.coordination.errors import ConfigurationError


@dataclass(frozen=True)
class Globs:
    """A set of globs, any of which may match.

    :param patterns: as `glob_regex` accepts them.
    :raises ConfigurationError: if one is not a valid glob.
    """

    patterns: tuple[str, ...]

    def __post_init__(self) -> None:
        compiled = re.compile("|".join(map(glob_regex, self.patterns)) if self.patterns else r"(?!)", re.DOTALL)
        object.__setattr__(self, "_compiled", compiled)

    def match(self, name: str) -> bool:
        """Return whether one of the globs matches the whole name; without globs, none does.

        :param name: the object's name below the scanned path.
        """
        compiled: re.Pattern[str] = self._compiled  # type: ignore[attr-defined]
        return compiled.fullmatch(name) is not None


def glob_regex(pattern: str) -> str:
    """Return a glob as a regular expression.

    `*` and `?` stay within a folder, `**` matches any number of folders, `[abc]`, `[a-z]` and `[!abc]` match one
    character, `{a,b}` matches either. A glob without `/` applies to the last part of the name, in any folder, as in
    `.gitignore`.

    :raises ConfigurationError: if it is not a valid glob; the caller adds the field.
    """
    if not pattern:
        raise ConfigurationError("an empty glob matches nothing; remove it")
    anywhere = "" if "/" in pattern else "(?:.*/)?"
    return f"(?:{anywhere}{_translated(pattern.removeprefix('/'), pattern)})"


def _translated(rest: str, glob: str) -> str:
    regex, depth, at = "", 0, 0
    while at < len(rest):
        character = rest[at]
        at += 1
        if rest.startswith("**/", at - 1):
            regex, at = regex + "(?:.*/)?", at + 2
        elif rest.startswith("**", at - 1):
            regex, at = regex + ".*", at + 1
        elif character == "*":
            regex += "[^/]*"
        elif character == "?":
            regex += "[^/]"
        elif character == "[":
            class_, at = _character_class(rest, at, glob)
            regex += class_
        elif character == "{":
            regex, depth = regex + "(?:", depth + 1
        elif character == "}" and depth:
            regex, depth = regex + ")", depth - 1
        elif character == "," and depth:
            regex += "|"
        else:
            regex += re.escape(character)
    if depth:
        raise ConfigurationError(f"glob {glob!r} has a '{{' without its '}}'; close it, or write '[{{]' for the brace")
    return regex


def _character_class(rest: str, at: int, glob: str) -> tuple[str, int]:
    """Return the regular expression of a character class, given the index after its `[`, and where the class ends."""
    end = rest.find("]", at + (2 if rest.startswith("!", at) else 1))
    if end < 0:
        raise ConfigurationError(f"glob {glob!r} has a '[' without its ']'; close it, or write '[[]' for the bracket")
    content = rest[at:end]
    negated = content.startswith("!")
    body = content.removeprefix("!").replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^")
    body = re.sub(r"([&~|])", r"\\\1", body)
    regex = f"(?!/)[{'^' if negated else ''}{body}]"
    try:
        re.compile(regex)
    except re.error as error:
        raise ConfigurationError(f"glob {glob!r}: the range [{content}] is invalid: {error}; reverse it") from None
    return regex, end + 1
