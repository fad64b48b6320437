"""Which sources a store knows, so that a misspelt name is not taken for a source that has yet to begin."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from airflow_provider_coordination.coordination.partition import (
    PartitionStatus,
    parse_source_identifier,
    source_identifier,
)
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.coordination.suspension import FAMILY as SUPERVISOR_FAMILY
from airflow_provider_coordination.coordination.workers import FAMILY as WORKER_FAMILY

FAMILIES = ("PARTITION", WORKER_FAMILY, SUPERVISOR_FAMILY)
"""The item families of which any makes a source worth showing."""
NEAR = 3
"""How many similar names are suggested at most."""


def known_sources(store: CoordinationStore, prefix: str | None) -> list[str]:
    """Return the names of the sources that a store holds anything of, sorted; some stores read everything for it.

    :param prefix: of the sources; None for none.
    """
    found = set()
    for identifier in store.source_identifiers():
        try:
            family = parse_source_identifier(identifier)
        except ValueError:  # another system named it
            continue
        if family.prefix == prefix and family.family in FAMILIES:
            found.add(family.source)
    return sorted(found)


def is_known(store: CoordinationStore, source: str, prefix: str | None) -> bool:
    """Tell whether a store holds anything of a source, if only that a supplier has looked for its partitions.

    :param prefix: of the source; None for none.
    :raises ConfigurationError: if the name is not usable.
    """
    families = [source_identifier(source, prefix=prefix, family=family) for family in (*FAMILIES, "GLOBAL_STATE")]
    return any(store.query(family, status, limit=1) for family in families for status in PartitionStatus)


def unknown_source(source: str, known: Iterable[str], *, remedy: str) -> str:
    """Return what to tell somebody who named a source that the store does not know.

    :param known: the names of the sources that it knows.
    :param remedy: what to do where the name is right.
    """
    near = get_close_matches(source, known, NEAR)
    meant = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
    return f"the store holds nothing of source {source!r}{meant} Check the name, or {remedy}"
