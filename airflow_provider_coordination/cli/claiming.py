"""The command that lets another DAG read a source: `unclaim`."""

from __future__ import annotations

import typer
from rich.text import Text

from airflow_provider_coordination.cli.asking import SOURCE, YES
from airflow_provider_coordination.cli.commands import CommandError, Session
from airflow_provider_coordination.cli.output import printable
from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import Partition, source_identifier
from airflow_provider_coordination.coordination.source_claim import FAMILY, KEY, SourceClaim

CONSEQUENCE = (
    "The next DAG that reads the source claims it, whatever it reads. Progress that was made stays: partitions that "
    "mean the same by their keys are not read again."
)


def unclaim(session: Session, source: SOURCE, *, yes: YES = False) -> None:
    """Forget which DAG reads a source, so that one that reads something else by its name may do so."""
    output = session.output
    family = source_identifier(source, prefix=session.access.prefix, family=FAMILY)
    item = session.store.get(family, KEY)
    if item is None:
        output.say(f"No DAG claims {source}.")
        return
    if not yes:
        if not session.surroundings.is_interactive():
            raise typer.BadParameter("there is no terminal to ask whether to unclaim this source; give --yes")
        output.say(_told(item))
        output.say(CONSEQUENCE)
        if not session.agrees(f"Unclaim {source}?"):
            raise CommandError("not confirmed, nothing was changed")
    by = session.surroundings.user()
    Administration(session.store, family, session.surroundings.clock, by=by).delete(KEY, seen=item)
    if output.as_json:
        output.record({"source": source, "claim": dict(item.progress)})
    else:
        output.line(Text("unclaimed ") + printable(f"{source}, {_told(item)}"))


def _told(item: Partition) -> str:
    try:
        claim = SourceClaim.of(item)
    except ConfigurationError:
        return "which was claimed in a form that this version does not know"
    return f"which was claimed by DAG {claim.dag_id} as {claim.kind} at {claim.claimed_at:%Y-%m-%dT%H:%M:%SZ}"
