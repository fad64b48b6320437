"""The output of a driver holds none of the job's secrets."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from io import StringIO
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.settings import write_settings
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.spark.membership import Membership, working_for
from airflow_provider_coordination.spark.redaction import Redaction
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.stores import StoreSettings
from tests.support.job_settings import ingest

STORE, KEY, TOKEN, READER, NESTED, OF_URL = (
    'store"p@ss/1', "aws+key/secret", "session-token-1", "reader-password", "nested-secret", "of-a-url-1",
)  # fmt: skip
SECRETS = (STORE, KEY, TOKEN, READER, NESTED, OF_URL)


@pytest.fixture
def settings() -> IngestSettings:
    return ingest(
        source="clicks",
        owner="me",
        output="/lake",
        expires_at=datetime(2026, 1, 1, tzinfo=UTC),
        store=StoreSettings.from_url(f"postgresql://u:{quote(STORE, safe='')}@h/d"),
        reads=ReadsSettings(
            kind="jdbc",
            settings={
                "password": READER,
                "table": "not-a-secret",
                "aws": write_settings(AwsSettings(access_key_id="A", secret_access_key=KEY, session_token=TOKEN)),
                "more": {"secret_access_key": NESTED},
                "hosts": [f"https://u:{OF_URL}@h:9200"],
            },
        ),
    )


def test_settings_in_text_show_no_secret(settings: IngestSettings) -> None:
    assert not [secret for secret in SECRETS if secret in repr(settings)]
    assert not [secret for secret in SECRETS if quote(secret, safe="") in repr(settings)]


@pytest.mark.parametrize("secret", SECRETS)
def test_secret_is_hidden_in_every_spelling(settings: IngestSettings, secret: str) -> None:
    lower = re.sub("%..", lambda code: code[0].lower(), quote(secret, safe=""))
    for spelled in (secret, quote(secret, safe=""), quote_plus(secret), quote(secret), lower, json.dumps(secret)):
        assert secret not in Redaction(settings).text(f"it said {spelled}!")
        assert spelled.strip('"') not in Redaction(settings).text(f"it said {spelled}!")


def test_secrets_outside_settings_are_hidden_by_name(settings: IngestSettings) -> None:
    environment = {"AWS_SESSION_TOKEN": "of-the-machine-1", "HOME": "/home/ann"}
    command = ["spark-submit", "--conf", "spark.hadoop.fs.s3a.secret.key=of-the-command-1", "--conf", "spark.x=plain-1"]
    redaction = Redaction(settings, environment, command, None)
    said = "of-the-machine-1 of-the-command-1 /home/ann plain-1"
    assert redaction.text(said) == "*** *** /home/ann plain-1"


ID = "AKIA" + "IOSFODNN7EXAMPLE"
KEY_OF_ID = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"


@pytest.mark.parametrize(
    ("said", "hidden"),
    [
        (f"no such key {ID}", "no such key ***"),
        (f"{ID}:{KEY_OF_ID}", "***:***"),
        (f"aws_secret_access_key = {KEY_OF_ID}", "aws_secret_access_key = ***"),
        (f"(spark.hadoop.fs.s3a.secret.key,{KEY_OF_ID})", "(spark.hadoop.fs.s3a.secret.key,***)"),
        (f"Authorization of {'IQoJb3JpZ2lu' + 'a1b2' * 20} expired", "Authorization of *** expired"),
        ("https://b/x?X-Amz-Signature=0a1b2c3d4e&n=1", "https://b/x?X-Amz-Signature=***&n=1"),
        ("jdbc:postgresql://ann:pass@word@h/d", "jdbc:postgresql://ann:***@h/d"),
        ('{"user": "ann", "password": "hunter22"}', '{"user": "ann", "password": "***"}'),
    ],
)
def test_unknown_text_resembling_a_secret_is_hidden(said: str, hidden: str) -> None:
    assert Redaction().text(said) == hidden


@pytest.mark.parametrize(
    "said",
    [
        "table not-a-secret of source clicks in region eu-west-1",
        "batch landed: partition=p1 fencing_token=1767268800000001 file=/lake/_landing/a.parquet",
        "store postgresql+psycopg://ann:***@h/d cannot be used: password authentication failed; check the password",
        "commit 5da0d99a1b2c3d4e5f60718293a4b5c6d7e8f901 of spark://master:7077",
    ],
)
def test_harmless_text_stays(settings: IngestSettings, said: str) -> None:
    assert Redaction(settings).text(said) == said


def test_very_short_secret_is_not_hidden(settings: IngestSettings) -> None:
    short = ingest(
        source="s", owner="o", output="/l", expires_at=settings.expires_at, store=StoreSettings(),
        reads=ReadsSettings(kind="s3", settings={"secret_access_key": "test"}),
    )  # fmt: skip
    assert Redaction(short).text("a test") == "a test"


def test_word_of_a_million_letters_is_searched_quickly(settings: IngestSettings) -> None:
    said = "x" * 1_000_000  # a payload that a driver prints: time that grows with its square would be hours
    assert Redaction(settings).text(f"{said} my.password=hunter22") == f"{said} my.password=***"


def test_summary_keeps_its_form(settings: IngestSettings) -> None:
    summary: dict[str, Any] = {"records": 7, "failed": {"p": f"login {READER} failed"}, "lost": [KEY], "at": None}
    hidden = {"records": 7, "failed": {"p": "login *** failed"}, "lost": ["***"], "at": None}
    assert Redaction(settings).mapping(summary) == hidden


@contextmanager
def logged() -> Iterator[StringIO]:
    """Log to a text only."""
    out, root = StringIO(), logging.getLogger()
    handlers, root.handlers = root.handlers, [logging.StreamHandler(out)]
    try:
        yield out
    finally:
        root.handlers = handlers


def test_log_hides_secrets_in_messages_arguments_and_tracebacks(settings: IngestSettings) -> None:
    with logged() as out:
        Redaction(settings).install()
        try:
            raise ValueError(f"password {READER} is wrong")
        except ValueError:
            logging.getLogger("x").exception("cannot connect with %s", STORE)
    assert "cannot connect with ***" in out.getvalue() and "ValueError: password *** is wrong" in out.getvalue()


def test_log_of_several_jobs_names_sources_and_hides_all_secrets(settings: IngestSettings) -> None:
    one, both = Redaction({"password": "of-the-host"}), Redaction(settings).with_secrets_of({"password": "of-another"})
    context: Any = None
    with logged() as out:
        one.with_secrets_of(settings, {"password": "of-another"}).install()
        for source in ("clicks", "views"):
            with working_for(Membership(context, source, "me")):
                logging.getLogger("x").warning("%s, of-another and of-the-host", READER)
        logging.getLogger("x").warning("nobody's")
    assert [line.partition("WARNING ")[2] for line in out.getvalue().splitlines()] == [
        "x: [clicks] ***, *** and ***",
        "x: [views] ***, *** and ***",
        "x: nobody's",
    ]
    assert both.text(f"{READER} of-another") == "*** ***"
