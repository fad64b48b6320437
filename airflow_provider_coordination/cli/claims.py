"""The command that lets another DAG read a source, and deliver it elsewhere: `unclaim`."""

from __future__ import annotations

import typer
from rich.text import Text

from airflow_provider_coordination.cli.commands import CommandError, Session
from airflow_provider_coordination.cli.output import printable
from airflow_provider_coordination.cli.prompts import SOURCE, YES
from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import Partition, source_identifier
from airflow_provider_coordination.coordination.source_claim import FAMILY, KEYS, DeliveryClaim, SourceClaim

CONSEQUENCE = (
    "The next DAG that reads or delivers the source claims it, whatever it reads and wherever it delivers. Progress "
    "that was made stays: partitions that mean the same by their keys are not read again."
)


def unclaim(session: Session, source: SOURCE, *, yes: YES = False) -> None:
    """Forget which DAG reads and delivers a source, so that one that means something else by its name may do so."""
    output = session.output
    family = source_identifier(source, prefix=session.access.prefix, family=FAMILY)
    items = {key: item for key in KEYS if (item := session.store.get(family, key)) is not None}
    if not items:
        output.say(f"No DAG claims {source}.")
        return
    if not yes:
        if not session.surroundings.is_interactive():
            raise typer.BadParameter("there is no terminal to ask whether to unclaim this source; give --yes")
        for key, item in items.items():
            output.say(f"{source} {_described(key, item)}.")
        output.say(CONSEQUENCE)
        if not session.agrees(f"Unclaim {source}?"):
            raise CommandError("not confirmed, nothing was changed")
    by = session.surroundings.user()
    administration = Administration(session.store, family, session.surroundings.clock, by=by)
    for key, item in items.items():
        administration.delete(key, seen=item)
    if output.as_json:
        claims = {key.lower(): dict(items[key].progress) if key in items else None for key in KEYS}
        output.record({"source": source, **claims})
    else:
        described = " and ".join(_described(key, item) for key, item in items.items())
        output.line(Text("unclaimed ") + printable(f"{source}, which {described}"))


def _described(key: str, item: Partition) -> str:
    try:
        if key == SourceClaim.KEY:
            read = SourceClaim.of(item)
            return f"was claimed by DAG {read.dag_id} as {read.kind} at {read.claimed_at:%Y-%m-%dT%H:%M:%SZ}"
        delivered = DeliveryClaim.of(item)
    except ConfigurationError:
        return "was claimed in a form that this version does not know"
    places = ", ".join(map(str, delivered.sinks.values()))
    return f"was delivered by DAG {delivered.dag_id} to {places} since {delivered.claimed_at:%Y-%m-%dT%H:%M:%SZ}"
