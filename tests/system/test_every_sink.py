"""A job writes to a sink of each kind while drivers die and servers are away; others read the tables back."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from sqlalchemy import make_url

from demo.local_kinesis import LocalKinesis
from tests.support.cable import Cable
from tests.support.depth import at_depth
from tests.support.many_sinks import KINDS, TABLES, ManySinks
from tests.support.mariadb import MariaDb
from tests.support.servers import postgres_database, socket_of

pytestmark = pytest.mark.deep
AT_LAST = "delivered:1"
"""Where every sink has been committed to, and no checkpoint moved."""
DEATHS = at_depth(
    short=(AT_LAST,), deep=("recorded:1", "delivering:1", *(f"committed {sink}:1" for sink in KINDS), AT_LAST)
)
"""Where drivers are killed, one after the other."""
CATALOG_WAITS = "its catalog, or the store of its files, is unavailable; the delivery waits"
DATABASE_WAITS = "the transaction is retried in"
AWAY_SECONDS = at_depth(short=3.0, deep=30.0)


@pytest.fixture(scope="module")
def make_sinks(
    kinesis: LocalKinesis,
    postgres_server: str,
    mariadb_server: MariaDb,
    java: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., ManySinks]]:
    """Makes a pipeline over a new stream into new sinks; given a port, PostgreSQL is reached there."""
    client = kinesis.client()
    with ExitStack() as stack:

        def make(port: int | None = None, *, has_avro: bool = False) -> ManySinks:
            stream, folder = f"stream-{uuid.uuid4().hex[:12]}", tmp_path_factory.mktemp("sinks")
            client.create_stream(StreamName=stream, ShardCount=2)
            stack.callback(client.delete_stream, StreamName=stream, EnforceConsumerDeletion=True)
            client.get_waiter("stream_exists").wait(StreamName=stream, WaiterConfig={"Delay": 0.1, "MaxAttempts": 100})
            postgres = stack.enter_context(postgres_database(postgres_server))
            if port is not None:
                postgres = str(make_url(postgres).set(host="127.0.0.1", port=port, query={}))
            mariadb = mariadb_server.url(stack.enter_context(mariadb_server.database()))
            store = f"sqlite:///{folder}/coordination.db"
            made = ManySinks(kinesis, stream, folder, store, postgres=postgres, mariadb=mariadb, has_avro=has_avro)
            stack.callback(lambda: [job.kill() for job in made.jobs])
            made.sync()
            return made

        yield make


@pytest.fixture(scope="module")
def survivor(make_sinks: Callable[..., ManySinks]) -> ManySinks:
    """Sinks of Avro records after drivers were killed, and one between two commits went on when all was delivered."""
    sinks = make_sinks(has_avro=True)  # JSON goes to them with each Spark of the matrix
    for death in DEATHS:
        sinks.send(20)
        crashed = sinks.crash(death)
        assert crashed.process.returncode != 0 and "coordination-summary" not in crashed.output
        assert death != AT_LAST or all(sinks.ids(sink) for sink in KINDS), "every sink has what no checkpoint has"
        sinks.coordinator().give_up_owner(crashed.settings.owner)  # what the operator does at once
    sinks.send(20)
    former = sinks.stop("committing postgresql:2")  # its first is for what the dead job left
    sinks.coordinator().give_up_owner(former.settings.owner)
    job = sinks.run()
    assert job.process.returncode == 0, job.output
    former.go_on()
    former.wait()
    return sinks


@pytest.mark.parametrize("sink", KINDS)
def test_sinks_hold_each_record_once_despite_dead_and_previous_drivers(survivor: ManySinks, sink: str) -> None:
    survivor.assert_each_once(sink)


@pytest.mark.parametrize("sink", TABLES)
def test_independent_reader_finds_the_table_as_sent(survivor: ManySinks, sink: str) -> None:
    assert survivor.read_back(sink) == sorted(survivor.rows)


@pytest.mark.only_deep
def test_catalog_and_database_outages_delay_delivery_without_loss(
    make_sinks: Callable[..., ManySinks], postgres_server: str
) -> None:
    with Cable(socket_of(postgres_server)) as cable:
        sinks = make_sinks(cable.port)
        sinks.send(20)
        job = sinks.stop("committing iceberg:1,committing postgresql:1")
        for sink in ("parquet", "delta"):
            sinks.assert_each_once(sink)
        for waits in (CATALOG_WAITS, DATABASE_WAITS):
            cable.cut()
            job.go_on()
            job.wait_for(waits)
            time.sleep(AWAY_SECONDS)
            cable.restore()
            if waits == CATALOG_WAITS:
                job.wait_until_stopped()
        assert job.wait() == 0, job.output
        assert job.summary["at_least_once"] == ["function"]
        for sink in KINDS:
            sinks.assert_each_once(sink)
