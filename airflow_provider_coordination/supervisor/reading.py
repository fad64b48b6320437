"""Reading supervisors: which there are, their statuses, their specs and their bad records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError, SupervisorNotFoundError
from airflow_provider_coordination.coordination.jobs import Jobs
from airflow_provider_coordination.coordination.partition import parse_source_identifier, source_identifier
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.coordination.suspension import FAMILY
from airflow_provider_coordination.supervisor.facts import ParseErrors, SpecDetail, SpecFacts, SupervisorStatus
from airflow_provider_coordination.supervisor.spec import IngestionSpec, change_between
from airflow_provider_coordination.supervisor.spec_values import without_secrets
from airflow_provider_coordination.supervisor.status import read_status, read_stored_state, stats_of
from airflow_provider_coordination.supervisor.store import SupervisionStore
from airflow_provider_coordination.supervisor.supervision import KEY, SpecVersion, Supervision, readable_spec
from airflow_provider_coordination.supervisor.turn import task_of


def all_statuses(
    store: CoordinationStore, prefix: str | None, view_of: Callable[[str], SourceView]
) -> list[SupervisorStatus]:
    """Return the statuses of the supervisors of a store without the lags of partitions, unhealthy ones first.

    :param prefix: the prefix of the sources; None if they have none.
    :param view_of: returns the initialized view of a source.
    """
    found = (read_status(view_of(source)) for source in supervised_sources(store, prefix))
    shown = [each.without_partitions() for each in found if each is not None]
    return sorted(shown, key=lambda each: (each.healthy, each.source))


def supervised_sources(store: CoordinationStore, prefix: str | None) -> list[str]:
    """Return the sorted names of the sources that have a supervisor. Some stores read all items for this.

    :param prefix: the prefix of the sources; None if they have none.
    """
    sources = []
    for identifier in store.source_identifiers():
        try:
            family = parse_source_identifier(identifier)
        except ValueError:  # an identifier of another system
            continue
        if (family.prefix, family.family) == (prefix, FAMILY) and _has_supervisor(store, family.source, prefix):
            sources.append(family.source)
    return sorted(sources)


def _has_supervisor(store: CoordinationStore, source: str, prefix: str | None) -> bool:
    item = store.get(source_identifier(source, prefix=prefix, family=FAMILY), KEY)
    return item is not None and Supervision.from_mapping(item.progress).spec_version > 0


def existing_status(view: SourceView, is_paused: Callable[[str], bool | None] | None = None) -> SupervisorStatus:
    """Return the status of a source's supervisor; see `read_status`.

    :raises SupervisorNotFoundError: if the source has none.
    """
    status = read_status(view, is_paused)
    if status is None:
        raise SupervisorNotFoundError(no_supervisor(view.source))
    return status


def read_spec(view: SourceView, version: int | None = None) -> SpecDetail:
    """Return a version of a source's spec without secrets, and with all defaults.

    :param view: an initialized view of the source.
    :param version: the version; None for the latest, which may be a termination.
    :raises SupervisorNotFoundError: if no spec was ever submitted, or the version does not exist.
    """
    kept, latest = SupervisionStore(view), _latest(view)
    number = latest if version is None else version
    stored = kept.spec(number)
    if stored is None:
        raise SupervisorNotFoundError(
            f"source {view.source!r} has no version {number} of its spec; the latest version is {latest}"
        )
    effective, problem = _effective_spec(stored)
    before = kept.spec(number - 1) if number > 1 else None
    return SpecDetail(**vars(_facts_of(stored, before)), effective=effective, problem=problem)


def read_history(view: SourceView, limit: int) -> list[SpecFacts]:
    """Return the latest versions of a source's spec without secrets, the latest first.

    :param view: an initialized view of the source.
    :param limit: the maximum number of versions.
    :raises SupervisorNotFoundError: if no spec was ever submitted.
    """
    _latest(view)
    versions = SupervisionStore(view).history(limit + 1)
    return [_facts_of(each, before) for each, before in zip(versions, [*versions[1:], None], strict=True)][:limit]


def _latest(view: SourceView) -> int:
    stored = SupervisionStore(view).get()
    if stored is None or not stored.supervision.spec_version:
        raise SupervisorNotFoundError(no_supervisor(view.source))
    return stored.supervision.spec_version


def _facts_of(version: SpecVersion, before: SpecVersion | None) -> SpecFacts:
    """Return what users see of a version.

    :param before: the version before it; None if there is none or it is unknown.
    """
    spec = readable_spec(version)
    return SpecFacts(
        version=version.version,
        at=version.submitted_at,
        by=version.by,
        reason=version.reason,
        is_termination=version.is_termination,
        is_from_file=version.file_digest is not None,
        change=None
        if spec is None or (before is None and version.version > 1)
        else change_between(readable_spec(before), spec).name,
        spec=None if version.spec is None else without_secrets(dict(version.spec)),
    )


def _effective_spec(version: SpecVersion) -> tuple[dict[str, Any] | None, str]:
    """Return a spec with all defaults, or the reason why it cannot be read; neither for a termination."""
    if version.spec is None:
        return None, ""
    try:
        return IngestionSpec.read(version.spec).effective(), ""
    except ConfigurationError as error:
        return None, str(error)


def read_parse_errors(view: SourceView) -> ParseErrors:
    """Return the bad records of a supervisor.

    :raises SupervisorNotFoundError: if the source has no supervisor.
    """
    stored = read_stored_state(view)
    if stored is None:
        raise SupervisorNotFoundError(no_supervisor(view.source))
    totals = stats_of(stored).totals
    path = None if stored.spec is None else stored.spec.ingestion.bad_records.dead_letter_path
    errors = [
        {**error, "owner": job.owner}
        for job in Jobs(view).of_task(task_of(view.source))
        if job.report is not None
        for error in job.report.parse_errors
    ]
    return ParseErrors(
        source=view.source,
        count=totals.unparseable + totals.processed_with_error,
        dead_letter_path=without_secrets(path),
        errors=sorted(errors, key=lambda error: str(error.get("at") or ""), reverse=True),
    )


def no_supervisor(source: str) -> str:
    """Return the error message for a source without a supervisor."""
    return f"source {source!r} has no supervisor; check the name, or submit a spec to create one"
