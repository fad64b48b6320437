"""The manual in Airflow's UI: its pages as HTML, and the topics to which alarms link."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest

from airflow_provider_coordination.ui import manual
from airflow_provider_coordination.ui.cards import AlarmSubject
from airflow_provider_coordination.ui.manual import MANUAL

REPOSITORY = Path(__file__).resolve().parents[3]
MANUAL_URL = "/coordination/manual"


@pytest.mark.parametrize("topic", MANUAL)
def test_every_topic_leads_to_a_heading_of_a_page(topic: str) -> None:
    page, _, anchor = MANUAL[topic].partition("#")
    text = (REPOSITORY / "docs" / f"{page}.md").read_text()
    headings = {heading.lower().replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
    assert not anchor or anchor in headings


def test_topics_are_those_of_alarms_and_pages() -> None:
    texts = [file.read_text() for file in (REPOSITORY / "pages" / "src").rglob("*.ts*")]
    named = {topic for text in texts for topic in re.findall(r'\btopic(?:: |=)"([\w-]+)"', text)}
    assert {*get_args(AlarmSubject), *named} == set(MANUAL)


@pytest.mark.parametrize("page", manual.manual_files())
def test_every_page_has_anchors_and_no_broken_link(page: str) -> None:
    content = manual.page_html(page) or ""
    targets = re.findall(r'href="([^"]*)"', content)
    assert targets
    for target in targets:
        other, _, anchor = target.partition("#")
        linked = manual.page_html(other) if other else content
        assert linked is not None, target
        assert not anchor or f'id="{anchor}"' in linked, target


def test_only_pages_of_the_folder_are_served() -> None:
    assert set(manual.manual_files()) == {file.stem for file in (REPOSITORY / "docs").glob("*.md")}
    for page in ("../README", "..%2FREADME", "operations.md", "images", ".", "", "/etc/passwd", "operations\0"):
        assert manual.page_html(page) is None


def test_html_is_escaped() -> None:
    found = manual.rendered("# <b>x</b>\n\n<script>alert(1)</script>\n\n[x](javascript:alert(1)) <kbd>Tab</kbd>", {})
    assert "<script" not in found and "<b>" not in found and "href" not in found
    assert "&lt;script&gt;" in found and " Tab" in found


def test_external_links_become_text_and_diagrams_become_code() -> None:
    text = "[a](x.md#y) [b](https://e.example) [c](../README.md) [d](#z) ![e](images/f.png)\n\n```mermaid\ngraph\n```"
    assert manual.rendered(text, {"x": "X"}) == (
        '<p><a href="x#y">a</a> b c <a href="#z">d</a> e</p>\n'
        '<pre><code class="language-mermaid">graph\n</code></pre>\n'
    )  # fmt: skip


def test_links_show_titles_instead_of_file_names() -> None:
    text = "[x.md](x.md), [x.md](x.md#y), [its words](x.md), [y.md](y.md)"
    assert manual.rendered(text, {"x": "Do X"}) == (
        '<p><a href="x">Do X</a>, <a href="x#y">Do X</a>, <a href="x">its words</a>, y.md</p>\n'
    )


@pytest.mark.integration  # needs no server, but Airflow's API, and so seconds
def test_every_logged_in_user_reads_a_page(as_role: Any) -> None:
    answer = as_role("viewer").get(f"{MANUAL_URL}/operations")
    assert answer.status_code == 200 and '<h2 id="what-to-press">' in answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")
    assert as_role(None).get(f"{MANUAL_URL}/operations").status_code == 401


@pytest.mark.integration
@pytest.mark.parametrize("page", ["nothing", "..%2FREADME", "%2e%2e/README", "../README", "operations.md", "%00"])
def test_other_page_is_not_found(as_role: Any, page: str) -> None:
    assert as_role("admin").get(f"{MANUAL_URL}/{page}").status_code == 404


@pytest.mark.integration
def test_topic_leads_to_its_place(as_role: Any) -> None:
    answer = as_role("viewer").get(MANUAL_URL, params={"topic": "parked"}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (307, f"manual/{MANUAL['parked']}")
    assert as_role("viewer").get(MANUAL_URL, params={"topic": "nothing"}).status_code == 404
    assert as_role(None).get(MANUAL_URL, params={"topic": "parked"}, follow_redirects=False).status_code == 401
