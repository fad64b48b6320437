"""The first of many names in a message, and how many more there are."""

from __future__ import annotations

from collections.abc import Sequence


def first_of(texts: Sequence[str], limit: int, *, separator: str = ", ") -> str:
    """Return the first texts of a list, and the number of the others: `a, b and 3 more`.

    :param texts: the texts.
    :param limit: the maximum number of texts to name.
    :param separator: what separates them.
    """
    return " ".join(filter(None, (separator.join(texts[:limit]), rest_of(len(texts), limit))))


def rest_of(count: int, limit: int) -> str:
    """Return `and 3 more` if more things exist than a message names; else an empty text.

    :param count: the number of things.
    :param limit: the maximum number that the message names.
    """
    return f"and {count - limit} more" if count > limit else ""
