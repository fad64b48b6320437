"""Makes texts of unknown origin, such as errors and reasons, storable in every store."""

from __future__ import annotations

MAX_TEXT_CHARACTERS = 1000


def storable(text: str, limit: int = MAX_TEXT_CHARACTERS) -> str:
    """Return a text that every store accepts: of limited length, valid Unicode, and without NUL.

    :param text: text from a user, or an error message.
    :param limit: the maximum number of characters.
    """
    kept = text[:limit].replace("\0", "\N{REPLACEMENT CHARACTER}")
    return kept.encode(errors="replace").decode()
