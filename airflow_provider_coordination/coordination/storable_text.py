"""Texts of unknown origin, such as errors and reasons, as every store takes them."""

from __future__ import annotations

MAX_TEXT_CHARACTERS = 1000


def storable(text: str, limit: int = MAX_TEXT_CHARACTERS) -> str:
    """Return a text as every store takes it: of bounded length, valid Unicode, and without NUL.

    :param text: what somebody said, or an error.
    :param limit: most characters.
    """
    kept = text[:limit].replace("\0", "\N{REPLACEMENT CHARACTER}")
    return kept.encode(errors="replace").decode()
