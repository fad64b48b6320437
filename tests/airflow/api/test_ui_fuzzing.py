"""No request makes a route of the HTTP API fail: it responds, or names the error in the request.

The requests are generated from the application's schema, by the seed of the run. Fixed
requests use values at which programs often fail, in each place that accepts a value.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from typing import Any
from urllib.parse import quote

import pytest
import schemathesis
from httpx2 import InvalidURL
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode

from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.ui.store_queries import SOURCE
from tests.airflow.api.test_ui_security import CONNECTION, NAME, PREFIX, TABLE, ServedSource
from tests.support.depth import examples
from tests.support.scenery import Scenery
from tests.support.seed import SEED
from tests.support.servers import postgres_database

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.integration, pytest.mark.share(0.3)]

EXAMPLES = examples(4)
"""How many requests are generated for each route, in each mode and place."""
ROUTES = sorted(TABLE)
ACTIONS = [route for route in ROUTES if route[0] == "POST"]
NAMES = [f"{method} {path.replace(SOURCE, '…')}" for method, path in ROUTES]

TEXTS = ["\0", "x" * 5000, "9" * 5000, "\N{GRINNING FACE}\u202e'\"%_\\|"]
"""What databases take, or do not, each in its own way."""
MORE_TEXTS = [
    *("", " ", "\n", "%", "%00", "|", "..", "/", "-1", "1e999"),
    *("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00"),
]
"""What nobody's database sees, if all is well."""
NOT_UTF_8 = ["%ff", "%ed%a0%80"]
VALUES: list[Any] = [*TEXTS, 10**400, -1]
MORE_VALUES: list[Any] = [*MORE_TEXTS, "\ud800", None, True, 1e308, float("inf"), float("nan"), [], {}, [[]]]
MORE_VALUES += [{"a": {"b": []}}, ["a"] * 600]
BODIES = [
    *(
        b"",
        b" ",
        b"null",
        b"5",
        b'"x"',
        b"[]",
        b"[[]]",
        b"{",
        b"{}",
        b"\xff",
        b"\xef\xbb\xbf{}",
        b'{"reason":"\\ud800"}',
    ),
    b'{"reason": "' + "ö".encode("latin-1") + b'"}',
    *(b"[" * depth + b"]" * depth for depth in (900, 990, 20_000)),
    *(b'{"reason":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}" for depth in (900, 950, 980, 9_000)),
]
AUDITED = ["dag_id", "task_id", "run_id", "logical_date", "is_paused"]
"""What Airflow's audit log takes as it is."""
HEADERS = [
    {"Origin": "http://["},
    {"Origin": ""},
    {"Origin": "\x80"},
    {"Sec-Fetch-Site": "\x80"},
    {"Host": "["},
    {"Content-Type": "application/json; charset=utf-16"},
    {"Content-Type": "application/json;;;"},
    {"If-None-Match": ",,\x80"},
]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def fuzzed_source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FuzzedSource]:
    """A source with something of everything in either kind of database, made once: each takes half a second."""
    with ExitStack() as stack:
        url = f"sqlite:///{tmp_path_factory.mktemp('fuzzing')}/coordination.db"
        if request.param == "postgresql":
            url = stack.enter_context(postgres_database(request.getfixturevalue("postgres_server")))
        scenery = stack.enter_context(closing(Scenery(url)))
        scenery.trouble(NAME)
        scenery.supervised(NAME)
        first, *_ = AcknowledgmentSets(scenery.worker(NAME)).view.pending()
        yield FuzzedSource(scenery, first.set_id, is_sqlite=request.param == "sqlite")


@pytest.fixture
def served_source(fuzzed_source: FuzzedSource, connect: Any) -> FuzzedSource:
    """The source, as Airflow's API server finds it."""
    connect(CONNECTION, "coordination", extra={"url": fuzzed_source.scenery.url})
    return fuzzed_source


@dataclass
class FuzzedSource(ServedSource):
    """A source with something of everything.

    :param is_sqlite: whether it is asked all that there is, or what another database may answer differently.
    """

    is_sqlite: bool


class FuzzingClient:
    """Asks as somebody, and notes at what the application failed."""

    def __init__(self, client: Any) -> None:
        self.failed: list[str] = []
        self._client = client

    def ask(self, method: str, address: str, **options: Any) -> None:
        """Ask it, and note it if the application failed."""
        try:
            answer = self._client.request(method, address, follow_redirects=False, **options)
        except InvalidURL:  # the client does not send it
            return
        is_health = answer.status_code == 503 and answer.text.startswith(
            '{"source":'
        )  # of a source with a parked partition
        if answer.status_code >= 500 and not is_health:
            self.failed.append(
                f"{answer.status_code} {method} {address[:300]} {str(options)[:300]}: {answer.text[:300]}"
            )

    def check(self) -> None:
        """Check that it failed at nothing."""
        first = "\n".join(self.failed[:20])
        assert not self.failed, f"the application failed at {len(self.failed)} questions:\n{first}"


@pytest.fixture
def fuzzing_client(as_role: Any) -> FuzzingClient:
    return FuzzingClient(as_role("op"))


@pytest.mark.parametrize(("method", "path"), ROUTES, ids=NAMES)
def test_routes_survive_malformed_values(
    served_source: FuzzedSource, fuzzing_client: FuzzingClient, method: str, path: str
) -> None:
    route, texts = TABLE[method, path], [quote(text, safe="") for text in TEXTS]
    if served_source.is_sqlite:
        texts += [*([] if route.body else [quote(text, safe="") for text in MORE_TEXTS]), *NOT_UTF_8]
    address = served_source.address(path, route)
    body = {} if route.body is None else {"json": route.body(served_source.version(route))}
    for place in re.findall(r"{[\w:]+}", path):
        others = served_source.address(path.replace(place, "<here>"), route)
        for text in texts:
            fuzzing_client.ask(method, others.replace("<here>", text), **body)
    if not route.body:
        for name in parameters(path, method):
            for text in texts:
                fuzzing_client.ask(method, f"{address}{'&' if '?' in address else '?'}{name}={text}")
    if served_source.is_sqlite:
        for headers in HEADERS:
            fuzzing_client.ask(
                method, address, headers={name: text.encode("latin-1") for name, text in headers.items()}, **body
            )
    fuzzing_client.check()


@pytest.mark.parametrize(("method", "path"), ACTIONS, ids=[path.replace(SOURCE, "…") for _, path in ACTIONS])
def test_actions_survive_malformed_bodies(
    served_source: FuzzedSource, fuzzing_client: FuzzingClient, method: str, path: str
) -> None:
    route = TABLE[method, path]
    assert route.body is not None
    address, valid = served_source.address(path, route), route.body(served_source.version(route))
    values = [*VALUES, *(MORE_VALUES if served_source.is_sqlite else ())]
    changed = [{**valid, name: value} for name in properties(path) for value in values]
    if "partitions" in valid and path.endswith(("/release", "/reset")):  # the others are done as the first is
        [seen] = valid["partitions"]
        changed += [{**valid, "partitions": [{**seen, name: value}]} for name in seen for value in values]
    for content in [*(json.dumps(each).encode() for each in changed), *(BODIES if served_source.is_sqlite else ())]:
        fuzzing_client.ask(method, address, content=content, headers={"Content-Type": "application/json"})
    for name in AUDITED:
        fuzzing_client.ask(method, address, json={**valid, name: {}})
        fuzzing_client.ask(method, f"{address}?{name}={'x' * 5000}", json=valid)
    fuzzing_client.check()


@pytest.mark.parametrize("fuzzed_source", ["sqlite"], indirect=True)
@pytest.mark.deep
@pytest.mark.parametrize("mode", GenerationMode, ids=lambda mode: mode.value)
def test_routes_survive_requests_generated_from_their_schema(
    served_source: FuzzedSource, as_role: Any, mode: GenerationMode
) -> None:
    roles = cycle([FuzzingClient(as_role(role)) for role in ("op", "viewer", "op", None, "op")])
    operations = list(schemathesis.openapi.from_dict(schema()).get_all_operations())
    assert len(operations) >= len(ROUTES)
    for number, fuzzed_source in enumerate(operations):
        operation = fuzzed_source.ok()
        here = {"connection_id": CONNECTION, "source": NAME} if "{source}" in operation.path else None
        for place in [None, here] if here else [None]:

            @seed(SEED + number)
            @settings(
                max_examples=EXAMPLES,
                database=None,
                deadline=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(operation.as_strategy(mode, path_parameters=place))
            def ask(case: Any) -> None:
                said = case.as_transport_kwargs(base_url=f"http://testserver{PREFIX}")
                said["content"] = said.pop("data", None)
                said["headers"] = {n: text for n, text in said["headers"].items() if n.lower() != "authorization"}
                fuzzing_client = next(roles)
                fuzzing_client.ask(said.pop("method"), said.pop("url"), **said)
                fuzzing_client.check()

            ask()


@cache
def schema() -> Any:
    """Return what the application says that it takes."""
    from airflow_provider_coordination.ui.application import application

    return application().openapi()


def parameters(path: str, method: str) -> list[str]:
    """Return the names that a route takes in the query."""
    said = schema()["paths"][re.sub(r"{(\w+):path}", r"{\1}", path)][method.lower()]
    return [each["name"] for each in said.get("parameters", ()) if each["in"] == "query"]


def properties(path: str) -> list[str]:
    """Return the names that an action takes in its body."""
    fuzzed_source = schema()
    [content] = fuzzed_source["paths"][re.sub(r"{(\w+):path}", r"{\1}", path)]["post"]["requestBody"][
        "content"
    ].values()
    return list(fuzzed_source["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]["properties"])
