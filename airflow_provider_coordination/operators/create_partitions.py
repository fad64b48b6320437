"""Finding and creating the partitions of a source as a task."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, Self

from airflow.sdk import BaseOperator, Context, XComArg

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.supplier import Page, Supplier
from airflow_provider_coordination.hooks.coordination import ConnectionSettings, CoordinationHook
from airflow_provider_coordination.hooks.task_try import failing_when_misconfigured, owner_of_try
from airflow_provider_coordination.links.leases import LeasesLink
from airflow_provider_coordination.operators.claims import claim_reads
from airflow_provider_coordination.operators.deduplication import left_by, other_source
from airflow_provider_coordination.operators.interval import Interval, interval_value
from airflow_provider_coordination.operators.reads.reads import Reads, own_copy, source_of
from airflow_provider_coordination.operators.supplier_task import EndsWhenKilled, supply
from airflow_provider_coordination.operators.template_values import NOTHING, yes_or_no_value
from airflow_provider_coordination.sources.function_supplier import Found, pages_of
from airflow_provider_coordination.sources.items import Item


class CreatePartitionsOperator(EndsWhenKilled, BaseOperator):
    """Creates the partitions of a source, page by page: those that its supplier finds, or those that are given.

    Partitions that exist already are left alone, so it may run at any time, twice, and beside running ingestion. One
    worker of the fleet runs a source's supplier at a time. The task takes over from an earlier try of its own, waits
    for any other worker until that one ends or its lease runs out, and fails if neither happens within ten minutes.

    Returns a small summary: `source`, `supplier` (`"ran"`, or why it did not, or not to its end), how many were
    `created`, the first ten of them as `partition_keys`, whether any partition is `available`, and of `partitions` how
    many have each status.

    :param reads: the source, one of the classes of `operators.reads`. (templated)
    :param partitions: the partitions instead of the supplier's: a list of keys or items, or a mapping from keys to an
        item or a list of items; text that a template makes of these will do. Without `reads` an item is what a
        partition's progress begins with, for tasks of your own that work on them. (templated)
    :param source: the source's name; by default what `reads` calls it. (templated)
    :param skip_when_empty: skip the task, and so what follows it, where no partition is available afterwards.
        (templated)
    :param leave_when_busy: leave the supplier to another worker that is running it, and succeed: what that one finds is
        enough. By default the task waits for that one, and then looks itself. (templated)
    :param interval: take exactly what there is of an interval, under leases of its own: `"data_interval"` for that of
        the run, or its ends; see `interval_value`. None for no bounds. (templated)
    :param deduplicate_against: the source of live ingestion, by its name: what it delivers, of the interval, is left to
        it, so that no record is delivered twice. None asks for no such thing. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    """

    template_fields: Sequence[str] = (
        "reads",
        "partitions",
        "source",
        "skip_when_empty",
        "leave_when_busy",
        "interval",
        "deduplicate_against",
        "coordination_conn_id",
    )
    ui_color = "#f5e6cc"
    operator_extra_links = (LeasesLink(),)

    def __init__(
        self,
        *,
        reads: Reads | None = None,
        partitions: Sequence[str | Item] | Mapping[str, Item | Sequence[Item]] | str | None = None,
        source: str | None = None,
        skip_when_empty: bool | str = False,
        leave_when_busy: bool | str = False,
        interval: str | Sequence[Any] | None = None,
        deduplicate_against: str | None = None,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        if reads is None and partitions is None:
            raise ValueError("give 'reads', 'partitions', or both: what is to be created")
        if reads is None and source is None:
            raise ValueError("field 'source' is missing: without 'reads' nothing else names the source")
        super().__init__(**kwargs)
        self.reads = own_copy(reads)
        self.partitions = partitions
        self.source = source
        self.source_worked_on = ""
        self.skip_when_empty = skip_when_empty
        self.leave_when_busy = leave_when_busy
        self.interval = interval
        self.deduplicate_against = deduplicate_against
        self.coordination_conn_id = coordination_conn_id
        # Airflow looks for these in the operator's own fields alone.
        for name in reads.template_fields if reads is not None else ():
            XComArg.apply_upstream_relationship(self, getattr(reads, name))

    def prepare_for_execution(self) -> Self:
        """Return the task that is run, with templates of its own to render."""
        prepared = super().prepare_for_execution()
        prepared.reads = own_copy(self.reads)
        return prepared

    def execute(self, context: Context) -> dict[str, Any]:
        """Create what is found.

        :raises AirflowFailException: if only a person can put things right.
        :raises AirflowSkipException: if nothing is available, and the task is to be skipped then.
        :raises CoordinationError: if the store or the source did not answer, or another worker keeps looking; a retry
            may help.
        """
        with failing_when_misconfigured():
            skip_when_empty = yes_or_no_value("skip_when_empty", self.skip_when_empty)
            leave_when_busy = yes_or_no_value("leave_when_busy", self.leave_when_busy)
            interval = interval_value(self.interval, context)
            source = source_of(self.source, self.reads)
            self.source_worked_on = source = source if interval is None else interval.of(source)
            connection = CoordinationHook(self.coordination_conn_id).settings
            coordinator = connection.coordinator(source, owner_of_try(context))
            with closing(coordinator.store):
                supplier = self._supplier(coordinator, interval, connection)
                if self.reads is not None:
                    claim_reads(coordinator.view, context, self.reads)
                with self.supplying():
                    return supply(
                        coordinator,
                        supplier,
                        skip_when_empty=skip_when_empty,
                        leave_when_busy=leave_when_busy,
                        is_interval=interval is not None,
                    )

    def _supplier(
        self, coordinator: SourceCoordinator, interval: Interval | None, connection: ConnectionSettings
    ) -> Supplier:
        kind = self.reads.kind if self.reads is not None else None
        if self.partitions not in NOTHING:
            found = given_partitions(self.partitions)
            return lambda state: pages_of(found, kind)
        if self.reads is None or kind is None:
            raise ConfigurationError("field 'partitions' is missing; without 'reads' there is no supplier")
        other = other_source(self.deduplicate_against, interval, coordinator, connection, kind)
        reads = left_by(other, self.reads, interval, coordinator)
        if reads is None:
            self.log.info("source %s delivers all of it: source=%s", self.deduplicate_against, coordinator.source)
            return lambda state: ()
        return reads.connect(connection.region).supplier(coordinator)


def given_partitions(value: Any) -> Iterable[Found]:
    """Return partitions that were given, by hand or by a template, as a supplier yields them.

    :raises ConfigurationError: if it is neither a list nor a mapping.
    """
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            value = None if value[:1] in "[{" else [value]
    if isinstance(value, Mapping):
        return [Page(dict(value))]
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return value
    raise ConfigurationError(
        f"field 'partitions' must be a list of keys or items, or a mapping from keys to items; got {value!r}"
    )
