"""The sources that Airflow shows, and a browser."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from demo.local_kinesis import LocalKinesis
from tests.support.browser import BrowserError, Theme, Visits, Window, Windows, chromium, find_axe
from tests.support.depth import at_depth
from tests.support.dynamodb_server import DynamoDbServer
from tests.support.scenery import Scenery
from tests.support.servers import unavailable
from tests.support.site import DAG, Site, open_scenery, open_site
from tests.support.spark_job import Pipeline
from tests.support.standalone import Standalone
from tests.support.supervised import SupervisedSource

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


class OpenPage(Protocol):
    """Opens a page of the provider in a browser."""

    def __call__(
        self,
        path: str = "",
        *,
        role: str = "op",
        theme: Theme = "light",
        width: int = 1280,
        time_zone: str = "UTC",
        alone: bool = False,
    ) -> Page:
        """Open it.

        :param path: below Airflow's address; see `Site.at`.
        :param role: of the user who looks.
        :param theme: as chosen in Airflow.
        :param width: of the window, in pixels.
        :param time_zone: of the user's machine.
        :param alone: with cookies of its own, which the test may take away.
        """
        ...


# All of this ends with the last test of this folder, as a browser takes much memory.


def partition_count() -> int:
    """Return the number of partitions of the source that has many; benchmarks/ui.py measures the pages with 10,000."""
    return at_depth(short=1_000, deep=4_000)


def shard_count() -> int:
    """Return the number of shards of the stream that has many."""
    return at_depth(short=600, deep=1_000)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """The browser."""
    with ExitStack() as stack:
        try:
            started = stack.enter_context(chromium())
        except BrowserError as error:
            unavailable("Chromium", error)
        yield started


@pytest.fixture(scope="package")
def axe() -> Path:
    """The script of axe-core."""
    try:
        return find_axe()
    except BrowserError as error:
        unavailable("axe-core", error)


@pytest.fixture(scope="package")
def scenery(browser: Browser, starting: Standalone) -> Iterator[Scenery]:
    """Sources in all states, made while Airflow starts; there is a browser before."""
    with open_scenery(starting.store_url, partitions=partition_count(), shards=shard_count()) as scenery:
        yield scenery


@pytest.fixture(scope="package")
def supervised(scenery: Scenery) -> Iterator[SupervisedSource]:
    """A source whose supervisor worked for an hour, as tests find it that only look."""
    with closing(SupervisedSource(scenery.url, "supervised").hour()) as source:
        yield source


@pytest.fixture(scope="package")
def site(
    scenery: Scenery,
    supervised: SupervisedSource,
    dynamodb: DynamoDbServer,
    airflow: Standalone,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    """The Airflow with users of all roles, and all these sources."""
    with open_site(airflow, scenery, tmp_path_factory.mktemp("browser"), away=dynamodb.settings) as site:
        yield site


@pytest.fixture(scope="package", autouse=True)
def live(site: Site, kinesis: LocalKinesis) -> Iterator[Pipeline]:
    """A stream, `live`, that a DAG run ingests with Spark while everything else is looked at; a shard was split."""
    client = kinesis.client()
    client.create_stream(StreamName="live", ShardCount=2)
    client.get_waiter("stream_exists").wait(StreamName="live", WaiterConfig={"Delay": 0.1, "MaxAttempts": 100})
    pipeline = Pipeline(kinesis, "live", site.folder, site.scenery.url)
    pipeline.send(20)
    pipeline.split_a_shard()
    pipeline.send(20)
    site.live_run = site.airflow.trigger(DAG, {"stream": "live", "output_path": str(site.folder / "lake")})
    yield pipeline
    client.delete_stream(StreamName="live", EnforceConsumerDeletion=True)


@pytest.fixture(scope="package")
def windows(browser: Browser, site: Site) -> Windows:
    """The windows that tests look through, one after the other."""
    return Windows(browser, site.airflow.url)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Function, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what the pages show to the report of a test that failed."""
    report = yield
    if call.when == "call" and report.failed and (visits := item.funcargs.get("visits")) is not None:
        with suppress(Exception):  # the browser may be gone, and that is not what failed
            report.sections.append(("What the pages show", visits.seen()))
    return report


@pytest.fixture
def visits(windows: Windows) -> Iterator[Visits]:
    """The pages of one test. What they complain of fails it, unless the test excuses that."""
    made = Visits(windows)
    yield made
    complaints = made.close()
    assert not complaints, "\n".join(complaints)


@pytest.fixture
def see(visits: Visits, site: Site) -> OpenPage:
    """Opens a page of the provider as a user of some role."""

    def open_page(path: str = "", *, role: str = "op", alone: bool = False, **window: Any) -> Page:
        return visits.open(Window(site.tokens[role], **window), path or site.overview(), alone=alone)

    return open_page


@pytest.fixture
def source(site: Site) -> Callable[..., str]:
    """Makes a source of a test's own; see `Scenery.make`."""

    def make(**partitions: Callable[[Any], Any]) -> str:
        name = f"test-{uuid.uuid4().hex[:8]}"
        site.scenery.make(name, partitions)
        return name

    return make
