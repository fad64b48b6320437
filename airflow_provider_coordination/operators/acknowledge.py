"""Task that acknowledges or rejects delivered batches, for example after a check or a load.

Other tasks select and release acknowledgment sets by the functions of this module.
"""

from __future__ import annotations

import ast
import hashlib
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from airflow.sdk import BaseOperator, Context

from airflow_provider_coordination.coordination.acknowledgment import (
    MAX_NAME_CHARACTERS,
    AcknowledgmentSet,
    ReleaseEffect,
    run_name,
)
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.task_try import bool_value, failing_when_misconfigured, owner_of_try
from airflow_provider_coordination.links import LeasesLink
from airflow_provider_coordination.settings import NOTHING, text_value
from airflow_provider_coordination.sources.kinds import SourceBatches

NEEDS_REASON = "field 'reason' is missing: it is required if 'positive' is false; it is stored with the partition"


class AcknowledgeOperator(BaseOperator):
    """Acknowledges or rejects batches that a Spark job delivered.

    Use it if the job's `AcknowledgmentSettings` leave the acknowledgment to another task.

    Without `acknowledgment_sets` the task releases all pending sets of a DAG run that wait for a party outside the job.
    The default is the current run; a run without pending sets is not an error. Releases are idempotent: a retry or a
    cleared task counts once. A late release changes nothing; it is logged as a warning and counted. The task fails
    without a retry if a set or handle is unknown, or if the release is not valid for a set.

    Returns a small summary: `source`, `positive`, the counts `released`, `duplicate` and `late`, the `states` of the
    sets afterwards, and the first ids as `acknowledgment_sets`.

    :param source: the source's name. (templated)
    :param acknowledgment_sets: the id of a set, or a list of ids. An empty list selects none; None selects the sets of
        a run. (templated)
    :param run_id: the DAG run whose sets are selected; the current run by default. (templated)
    :param run_dag_id: the DAG of that run; the current DAG by default. (templated)
    :param handle: the handle whose references are released. Optional if each set has exactly one handle that is
        released from outside the job. (templated)
    :param positive: whether the data arrived. (templated)
    :param reason: why the data did not arrive; required if `positive` is false. (templated)
    :param release_id: the identity of the releases: releases with the same id count once. By default it is made of DAG,
        run, task and map index. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)

    """

    template_fields: Sequence[str] = (
        "source",
        "acknowledgment_sets",
        "run_id",
        "run_dag_id",
        "handle",
        "positive",
        "reason",
        "release_id",
        "coordination_conn_id",
    )
    ui_color = "#d8e6f0"
    operator_extra_links = (LeasesLink(),)

    def __init__(
        self,
        *,
        source: str,
        acknowledgment_sets: str | Sequence[str] | None = None,
        run_id: str | None = None,
        run_dag_id: str | None = None,
        handle: str | None = None,
        positive: bool | str = True,
        reason: str | None = None,
        release_id: str | None = None,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.source = source
        self.acknowledgment_sets = acknowledgment_sets
        self.run_id = run_id
        self.run_dag_id = run_dag_id
        self.handle = handle
        self.positive = positive
        self.reason = reason
        self.release_id = release_id
        self.coordination_conn_id = coordination_conn_id
        if positive is False and reason is None:
            raise ValueError(NEEDS_REASON)

    def execute(self, context: Context) -> dict[str, Any]:
        """Release the sets.

        :raises AirflowFailException: for an error that only a user can fix.
        :raises CoordinationError: if the store did not respond; a retry may succeed.
        """
        with failing_when_misconfigured():
            positive, reason = bool_value("positive", self.positive), text_value(self.reason)
            if not positive and not (reason and reason.strip()):
                raise ConfigurationError(NEEDS_REASON)
            ids = set_ids(self.acknowledgment_sets)
            run = selected_run(context, ids, text_value(self.run_id), text_value(self.run_dag_id))
            handle = text_value(self.handle)
            coordinator = CoordinationHook(self.coordination_conn_id).coordinator(self.source, owner_of_try(context))
            with closing(coordinator.store):
                sets = sets_of(coordinator)
                return release_all(
                    sets,
                    chosen_sets(sets, ids, run, handle),
                    positive=positive,
                    release_id=text_value(self.release_id) or task_release_id(context),
                    handle=handle,
                    reason=reason,
                )


log = logging.getLogger(__name__)

MAX_SHOWN = 10
"""The maximum number of sets that a summary names."""


def sets_of(coordinator: SourceCoordinator) -> AcknowledgmentSets:
    """Return the acknowledgment sets of a source of any kind."""
    return AcknowledgmentSets(coordinator, SourceBatches())


def set_ids(value: Any) -> list[str] | None:
    """Return the ids that a user, a template or an upstream task gives, each once; None if none is given.

    :param value: one id, a list of ids, a list of lists of ids as mapped tasks return them, or a list as text.
    :raises ConfigurationError: if the value has another form.
    """
    if _is_list(value):
        return list(dict.fromkeys(_flat(value)))
    if value in NOTHING:
        return None
    if isinstance(value, str) and value.startswith("[") and value.endswith("]"):  # a list that a template rendered
        try:
            return set_ids(ast.literal_eval(value))
        except (SyntaxError, ValueError):
            pass
    return list(_flat([value]))


def task_release_id(context: Context) -> str:
    """Return the identity of this task's releases: the same in every try, and after the task was cleared."""
    ti: Any = context["ti"]
    map_index = ti.map_index if ti.map_index is not None else -1
    name = f"{ti.dag_id}/{ti.run_id}/{ti.task_id}/{map_index}"
    if len(name) <= MAX_NAME_CHARACTERS and name.isprintable():
        return name
    return f"{ti.task_id[:60]}/{map_index}/{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def selected_run(context: Context, ids: Sequence[str] | None, run_id: str | None, run_dag_id: str | None) -> str:
    """Return the name of the selected run: the current run, another run of its DAG, or a run of another DAG.

    :raises ConfigurationError: if both sets and a run are given, or a DAG without a run.
    """
    if ids is not None and (run_id or run_dag_id):
        raise ConfigurationError("field 'run_id' selects all sets of a run; give it or 'acknowledgment_sets'")
    if run_dag_id and not run_id:
        raise ConfigurationError(f"field 'run_id' must be given with 'run_dag_id'; got {run_dag_id!r} alone")
    ti: Any = context["ti"]
    return run_name(run_dag_id or ti.dag_id, run_id or ti.run_id)


def chosen_sets(
    sets: AcknowledgmentSets, ids: Sequence[str] | None, run: str, handle: str | None = None
) -> list[AcknowledgmentSet]:
    """Return the sets with these ids; without ids the pending sets of a run that wait for a party outside the job.

    :param handle: the handle whose references are selected; by default any handle that is released from outside.
    :raises AcknowledgmentSetNotFoundError: if the source has no such set.
    """
    if ids is not None:
        return [sets.view.get(set_id) for set_id in ids]
    found = [pending for pending in sets.view.pending(run=run) if _waits_outside(pending, handle)]
    log.info("pending acknowledgment sets: source=%s run=%s sets=%d", sets.coordinator.source, run, len(found))
    return found


def check_releasable(chosen: Sequence[AcknowledgmentSet], handle: str | None) -> None:
    """Check that a party outside the job may release a reference of each set.

    :raises AcknowledgmentError: if it may not.
    """
    for each in chosen:
        each.outside_handle(handle)


def release_all(
    sets: AcknowledgmentSets,
    chosen: Sequence[AcknowledgmentSet],
    *,
    positive: bool,
    release_id: str,
    handle: str | None = None,
    reason: str | None = None,
) -> dict[str, Any]:
    """Release a reference of each set from outside the job; return a small summary.

    All sets are checked first: if the release is not valid for one of them, nothing changes.

    :raises AcknowledgmentError: if a release is not valid for its set.
    """
    check_releasable(chosen, handle)
    effects: Counter[ReleaseEffect] = Counter()
    states: Counter[str] = Counter()
    for each in chosen:
        written, effect = sets.acknowledge(
            each.set_id, positive=positive, handle=handle, release_id=release_id, reason=reason
        )
        effects[effect] += 1
        states[str(written.state)] += 1
        log.info(
            "acknowledgment set %s: source=%s partition=%s set=%s positive=%s state=%s owed=%d",
            effect, sets.coordinator.source, written.partition_key, written.set_id, positive, written.state,
            written.owed,
        )  # fmt: skip
    if effects[ReleaseEffect.LATE]:
        log.warning(
            "%d of %d releases were late and changed nothing; those sets had already ended: source=%s",
            effects[ReleaseEffect.LATE], len(chosen), sets.coordinator.source,
        )  # fmt: skip
    return {
        "source": sets.coordinator.source,
        "positive": positive,
        **{str(effect): effects[effect] for effect in ReleaseEffect},
        "states": dict(states),
        "acknowledgment_sets": [each.set_id for each in chosen[:MAX_SHOWN]],
    }


def _waits_outside(pending: AcknowledgmentSet, handle: str | None) -> bool:
    if handle is not None and handle in pending.references and handle not in pending.sinks:
        return pending.references[handle] > 0
    return any(owed for name, owed in pending.references.items() if name not in pending.sinks)


def _flat(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str) and value not in NOTHING:
            yield value
        elif _is_list(value):
            yield from _flat(value)
        else:
            raise ConfigurationError(
                f"field 'acknowledgment_sets' must be the id of a set, or a list of ids; got {value!r}"
            )


def _is_list(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | Mapping)  # XComs of mapped tasks are lazy
