"""The facet that OpenLineage is told of a coordinated job. Imported only where OpenLineage is installed."""

from __future__ import annotations

import attrs
from openlineage.client.generated.base import RunFacet


@attrs.define(kw_only=True)
class CoordinationRunFacet(RunFacet):
    """Who ingested what.

    :param source: the source's name.
    :param owner: who the job was: host, DAG, run, task and try.
    :param reads: the kind of source.
    :param partitions: how many partitions it delivered of.
    :param records: how many records of them.
    :param deadLetters: how many of these went to the dead letters.
    """

    source: str
    owner: str
    reads: str
    partitions: int = 0
    records: int = 0
    deadLetters: int = 0  # noqa: N815 - OpenLineage's spelling
