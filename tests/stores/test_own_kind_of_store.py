"""A kind of store from another distribution is named by a connection and a URL, and reaches Spark."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.spark.redaction import Redaction
from airflow_provider_coordination.stores import StoreSettings, open_store
from airflow_provider_coordination.stores.kind import STORE_KINDS, ConnectionFields
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from airflow_provider_coordination.stores.redaction import secrets_of
from tests.support.distributions import install

MODULE = "shelves_of_test"
TEXT = """
from dataclasses import dataclass, field

from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from airflow_provider_coordination.stores.kind import StoreKind


@dataclass(frozen=True, kw_only=True)
class ShelfSettings:
    shelf: str
    width: int = 3
    password: str | None = field(default=None, repr=False)


class ShelfKind(StoreKind[ShelfSettings]):
    settings = ShelfSettings

    def open(self, settings, *, retry_deadline_seconds):
        store = InMemoryStore()
        store.shelf = settings.shelf, settings.width, retry_deadline_seconds
        return store

    def from_url(self, url, table):
        return ShelfSettings(shelf=url.removeprefix("shelf://"))

    def secrets(self, settings):
        return filter(None, [settings.password])


OBJECT = ShelfKind()
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "shelves"
    install(site, "shelves", STORE_KINDS.group, {"shelf": f"{MODULE}:OBJECT"})
    (site / f"{MODULE}.py").write_text(TEXT)
    monkeypatch.syspath_prepend(str(site))
    sys.modules.pop(MODULE, None)


def from_connection(extra: dict[str, object], **beside: str) -> StoreSettings:
    fields = ConnectionFields(name="connection 'c'", values=extra, aws=lambda *_: pytest.fail("nobody asked"), **beside)
    return StoreSettings.of("shelf", STORE_KINDS.load("shelf").from_connection(fields))


def test_store_opens_with_its_own_settings() -> None:
    settings = StoreSettings(kind="shelf", settings={"shelf": "upper"}, history_days=0)
    store = open_store(settings, retry_deadline_seconds=2)
    assert isinstance(store, InMemoryStore)
    assert store.shelf == ("upper", 3, 2)  # type: ignore[attr-defined]


def test_url_scheme_names_the_kind() -> None:
    settings = StoreSettings.from_url("shelf://lower")
    assert (settings.kind, settings.own.shelf, settings.table) == ("shelf", "lower", None)


def test_settings_travel_without_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps(write_settings(StoreSettings.from_url("shelf://lower")))
    (tmp_path / "shelves").rename(tmp_path / "cluster")
    shutil.rmtree(tmp_path / "cluster" / "shelves-1.0.dist-info")
    monkeypatch.syspath_prepend(str(tmp_path / "cluster"))
    del sys.modules[MODULE]

    settings = read_settings(StoreSettings, "store settings", json.loads(text))

    assert settings.implementation == f"{MODULE}:OBJECT"
    assert open_store(settings).kind == "in_memory"
    with pytest.raises(ConfigurationError, match="store 'shelf' is not known"):
        open_store(StoreSettings(kind="shelf", settings={"shelf": "x"}))


def test_connection_provides_fields_and_password() -> None:
    settings = from_connection({"shelf": "upper", "width": "7"}, password="opensesame")
    assert (settings.own.shelf, settings.own.width, settings.own.password) == ("upper", 7, "opensesame")


@pytest.mark.parametrize(
    ("extra", "beside", "message"),
    [
        ({"width": 7}, {}, "connection 'c': field 'shelf' is missing"),
        ({"shelf": "x", "width": "wide"}, {}, "connection 'c': field 'width' must be a whole number; got 'wide'"),
        ({"shelf": "x"}, {"login": "ann"}, "connection 'c': this kind of store has no login; leave it empty"),
    ],
)
def test_unsuitable_connection_is_refused(extra: dict[str, object], beside: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        from_connection(extra, **beside)
    assert str(caught.value) == message


def test_secrets_are_hidden() -> None:
    settings = StoreSettings(kind="shelf", settings={"shelf": "upper", "password": "opensesame"})
    assert secrets_of(settings) == ["opensesame"]
    assert Redaction(settings).text("no opensesame") == "no ***"
    assert "opensesame" not in repr(settings) + repr(settings.own)


def test_unimportable_kind_hides_every_text() -> None:
    settings = StoreSettings(kind="shelf", settings={"where": "behind the door"}, implementation="nowhere_of_test:KIND")
    assert secrets_of(settings) == ["behind the door"]
