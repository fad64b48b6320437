"""The sources that a store knows, so that a misspelt name is not mistaken for a source that has not started yet."""

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
"""A source with an item of one of these families is listed."""
NEAR = 3
"""The maximum number of similar names that are suggested."""


def known_sources(store: CoordinationStore, prefix: str | None) -> list[str]:
    """Return the names of the sources in a store, sorted. Some stores must read every item for this.

    :param prefix: the prefix of the sources; None for no prefix.
    """
    sources = set()
    for identifier in store.source_identifiers():
        try:
            family = parse_source_identifier(identifier)
        except ValueError:  # the name comes from another system
            continue
        if family.prefix == prefix and family.family in FAMILIES:
            sources.add(family.source)
    return sorted(sources)


def is_known(store: CoordinationStore, source: str, prefix: str | None) -> bool:
    """Return whether a store contains any item of a source, even if only the state of its supplier.

    :param prefix: the prefix of the source; None for no prefix.
    :raises ConfigurationError: if the name is not valid.
    """
    families = [source_identifier(source, prefix=prefix, family=family) for family in (*FAMILIES, "GLOBAL_STATE")]
    return any(store.query(family, status, limit=1) for family in families for status in PartitionStatus)


def unknown_source(source: str, known: Iterable[str], *, remedy: str) -> str:
    """Return the message for a user who named a source that the store does not know.

    :param known: the names of the known sources.
    :param remedy: what to do if the name is correct.
    """
    near = get_close_matches(source, known, NEAR)
    meant = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
    return f"the store has no data of source {source!r}{meant} Check the name, or {remedy}"
