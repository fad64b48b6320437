"""Releases acknowledgment sets from a task: selects the sets, identifies the releases, and reports the effects."""

from __future__ import annotations

import ast
import hashlib
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from airflow.sdk import Context

from airflow_provider_coordination.coordination.acknowledgment import (
    MAX_NAME_CHARACTERS,
    AcknowledgmentSet,
    ReleaseEffect,
    run_name,
)
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.settings import NOTHING
from airflow_provider_coordination.sources.batches import SourceBatches

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
