"""What a format makes of payloads; each format is a module."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.json_documents import JsonDocumentsError, objects_in


@dataclass(kw_only=True)
class DecodedRows:
    """The rows of some payloads.

    :param of: the number of the payload of each row, ascending; None if each payload is one row.
    :param data: the bytes of each row that are its own; None for a row that has none.
    :param columns: the columns of the format, in its order.
    :param wrong: why payloads cannot be decoded, by their number. They may have any rows.
    """

    of: Sequence[int] | None
    data: Sequence[bytes | None]
    columns: Sequence[pa.Array] = ()
    wrong: dict[int, str] = field(default_factory=dict)


class PayloadFormat(ABC):
    """A format of payloads."""

    columns: pa.Schema = pa.schema([])
    """The columns that it makes."""

    @abstractmethod
    def rows(self, payloads: Sequence[bytes]) -> DecodedRows:
        """Return the rows of payloads.

        :raises RegistryUnavailableError: if a registry of schemas gives no answer.
        """


class Unchanged(PayloadFormat):
    """Payloads that are decoded once they are out of their compression and their envelopes."""

    @override
    def rows(self, payloads: Sequence[bytes]) -> DecodedRows:
        return DecodedRows(of=None, data=payloads)


class ManyJson(PayloadFormat):
    """Payloads of several JSON objects; each object is the payload of a row."""

    @override
    def rows(self, payloads: Sequence[bytes]) -> DecodedRows:
        rows = DecodedRows(of=(of := []), data=(data := []))
        for number, payload in enumerate(payloads):
            try:
                found = objects_in(payload)
            except JsonDocumentsError as error:
                rows.wrong[number] = f"the payload is not JSON objects, nor an array of them: {error}"
                continue
            if not found and payload.strip() != b"[]" and not payload.strip().startswith(b"["):
                rows.wrong[number] = "the payload is empty"
            of += [number] * len(found)
            data += found
        return rows


Make = Callable[[], PayloadFormat]
"""Makes a format in a worker; it travels pickled."""
