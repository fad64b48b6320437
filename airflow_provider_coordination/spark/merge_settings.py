"""Checks of the users' fields for merging rows into a table. Needs no library: operators check before Spark starts."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_provider_coordination.coordination.errors import ConfigurationError


def check_merging(merge_on: Sequence[str], order_by: str | None, what: str) -> None:
    """Check the fields by which rows are merged.

    :param what: the user's object, for error messages.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    if not all(name.strip() for name in merge_on) or len(set(merge_on)) < len(merge_on):
        raise ConfigurationError(
            f"field 'merge_on' of {what} is {list(merge_on)}; give columns that identify a row, each once"
        )
    if order_by is not None and not merge_on:
        raise ConfigurationError(
            f"field 'order_by' of {what} is {order_by!r}, and 'merge_on' is missing; set 'merge_on' to the columns "
            "that identify a row, or leave 'order_by' out"
        )
