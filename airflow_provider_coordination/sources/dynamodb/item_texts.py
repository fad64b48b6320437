"""Items as plain JSON from DynamoDB's JSON, mostly without parsing: the items of a table have few forms.

The form of an item is its JSON without its values. When a form comes again, `plain_json` shows where each value goes.
From then on, the values of items of that form are put there as they are.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from airflow_provider_coordination.sources.dynamodb.calls import JSON_NUMBER, plain_json
from airflow_provider_coordination.sources.items import ItemUnreadableError

MAX_FORMS = 1000
"""The maximum number of forms that are remembered."""

Parts = Sequence[str]
"""An item's JSON, split at quotation marks: every second part is a text."""
Chosen = Callable[[Parts], tuple[str, ...]]

_are_numbers = re.compile(f"{JSON_NUMBER}(?:\n{JSON_NUMBER})*").fullmatch  # a value cannot contain a line break


@dataclass(frozen=True)
class _Form:
    """How the items of a form are written.

    :param template: the plain JSON, with `%s` for each value.
    :param values: returns the values, in the order of the template.
    :param numbers: returns the values that are numbers; None if none is.
    """

    template: str
    values: Chosen
    numbers: Chosen | None

    def plain(self, parts: Parts) -> str | None:
        """Return an item as plain JSON; None if one of its numbers has another form than JSON's."""
        if self.numbers is not None and not _are_numbers("\n".join(self.numbers(parts))):
            return None
        return self.template % self.values(parts)


_SEEN_ONCE = _Form("", tuple, None)
_PARSED = _Form("", tuple, None)


class ItemTexts:
    """Writes items as plain JSON, and remembers their forms.

    :param decode: parses JSON.
    :param arranged: puts the attributes of an item in order.
    """

    def __init__(
        self,
        decode: Callable[[bytes | str], Any],
        arranged: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda item: item,
    ) -> None:
        self._decode = decode
        self._arranged = arranged
        # By what is between the texts: which texts are names, and the forms by these.
        self._forms: dict[str, tuple[Chosen, dict[Any, _Form]]] = {}
        self._count = 0

    def plain(self, typed: bytes) -> str:
        """Return an item as plain JSON, as `plain_json` does.

        :param typed: DynamoDB's JSON, which is well-formed.
        :raises ItemUnreadableError: if a value has a type that DynamoDB does not have.
        :raises ValueError: if it is not UTF-8.
        """
        text = str(typed, "utf-8")
        if "\\" in text:  # a quotation mark may be within a text
            return self._parsed(text)
        parts = text.split('"')
        between = '"'.join(parts[::2])
        known = self._forms.get(between) or self._add(between, parts)
        names, forms = known[0](parts), known[1]
        form = forms.get(names)
        if form is None and self._count >= MAX_FORMS:  # the items are of many forms: nothing is gained
            self._forms, self._count = {}, 0
        elif form is None:
            forms[names] = _SEEN_ONCE
            self._count += 1
        elif form is _SEEN_ONCE:
            forms[names] = self._form(parts) or _PARSED
        elif form is not _PARSED and (plain := form.plain(parts)) is not None:
            return plain
        return self._parsed(text)

    def _parsed(self, text: str) -> str:
        return plain_json(self._arranged(self._decode(text)))

    def _add(self, between: str, parts: Parts) -> tuple[Chosen, dict[Any, _Form]]:
        values = _values_in(parts)
        names = [number for number in range(1, len(parts), 2) if number not in values]
        known = self._forms[between] = (_chosen(names), {})
        return known

    def _form(self, parts: Parts) -> _Form | None:
        """Return the form of an item; None if its values do not all go somewhere."""
        values = _values_in(parts)
        base = 10**24 + secrets.randbelow(10**24)
        marks = {number: str(base + number) for number in values}  # text and number alike
        try:
            marked = self._parsed('"'.join(marks.get(number, part) for number, part in enumerate(parts)))
        except ItemUnreadableError:
            return None
        if any(marked.count(mark) != 1 for mark in marks.values()):
            return None
        order = sorted(values, key=lambda number: marked.index(marks[number]))
        numbers = [number for number in order if marked[marked.index(marks[number]) - 1] != '"']
        template = marked.replace("%", "%%")
        for mark in marks.values():
            template = template.replace(mark, "%s")
        return _Form(template, _chosen(order), _chosen(numbers) if numbers else None)


def _values_in(parts: Parts) -> set[int]:
    """Return which parts are texts without a colon after them: values, not names."""
    return {number for number in range(1, len(parts), 2) if not parts[number + 1].lstrip().startswith(":")}


def _chosen(numbers: Sequence[int]) -> Chosen:
    """Return what takes parts as a tuple."""
    if len(numbers) > 1:
        return itemgetter(*numbers)
    return lambda parts: tuple(parts[number] for number in numbers)
