"""The command `unclaim`: lets another DAG read a source, or deliver it to other sinks."""

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
    "The next DAG that reads or delivers the source claims it, with whatever it reads and its sinks. Progress is kept: "
    "partitions with the same keys are not read again."
)


def unclaim(session: Session, source: SOURCE, *, yes: YES = False) -> None:
    """Remove the claims of a source, so that another DAG may read or deliver it."""
    output = session.output
    family = source_identifier(source, prefix=session.access.prefix, family=FAMILY)
    items = {key: item for key in KEYS if (item := session.store.get(family, key)) is not None}
    if not items:
        output.info(f"{source} is not claimed by a DAG.")
        return
    if not yes:
        if not session.context.is_interactive():
            raise typer.BadParameter("there is no terminal to confirm the removal of the claims; give --yes")
        for key, item in items.items():
            output.info(f"{source} {_described(key, item)}.")
        output.info(CONSEQUENCE)
        if not session.confirm(f"Unclaim {source}?"):
            raise CommandError("not confirmed; nothing was changed")
    by = session.context.user()
    administration = Administration(session.store, family, session.context.clock, by=by)
    for key, item in items.items():
        administration.delete(key, expected=item)
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
        return "was claimed in a format that this version cannot read"
    sinks = ", ".join(map(str, delivered.sinks.values()))
    return f"was delivered by DAG {delivered.dag_id} to {sinks} since {delivered.claimed_at:%Y-%m-%dT%H:%M:%SZ}"
