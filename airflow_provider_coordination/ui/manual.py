"""The manual in Airflow's UI: each page of `docs/` as plain HTML, for users who are logged in."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import html
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from fastapi import APIRouter, HTTPException
from fastapi.responses import HTMLResponse, RedirectResponse
from markdown_it import MarkdownIt
from markdown_it.token import Token

import airflow_provider_coordination

MANUAL = {
    # Alarms of a source, by what they are about
    "lost": "data_loss#what-happens-after-a-loss",
    "parked": "troubleshooting#a-partition-is-parked",
    "overdue": "troubleshooting_tasks#acknowledgments",
    "suspended": "operations#what-to-press",
    "expired": "operations#signs-of-trouble-with-leases",
    "waiting": "troubleshooting#the-data-is-not-getting-fresher",
    "lag": "troubleshooting#the-data-is-not-getting-fresher",
    "failing": "troubleshooting_jobs#the-spark-job",
    "supervisor": "supervisor_verbs#states",
    "sink": "sink_outage",
    "freshness": "tuning#set-a-target",
    # Warnings that the pages show themselves
    "access": "ui#who-sees-and-does-what",
    "bad-records": "bad_records",
    "connection": "troubleshooting#the-pages-cannot-use-a-connection",
    "data-loss": "data_loss#what-happens-after-a-loss",
    "failed-request": "troubleshooting#where-to-look",
    "hole": "streams#the-audit",
    "intervals": "completeness#report-complete-intervals",
    "job": "operations#how-jobs-end",
    "spec": "specs",
    "store": "troubleshooting_stores#the-store",
    "unreadable": "troubleshooting_jobs#items",
}
"""`page#anchor` of `docs/`, by topic. A page's file has `.md` after its name; an anchor is a heading in lower case."""


PACKAGE = Path(airflow_provider_coordination.__file__).parent
FOLDERS = (PACKAGE / "manual", PACKAGE.parent / "docs")
"""Where the pages are: in an installed package, and in a checkout."""
KEYBOARD_TAG = re.compile(r"</?kbd>")
STYLE = """
:root { color-scheme: light dark; --ground: #fff; --text: #1b1f24; --faint: #f3f4f6; --line: #d0d7de; --link: #0b5bd3 }
@media (prefers-color-scheme: dark) {
  :root { --ground: #111418; --text: #e6e8eb; --faint: #1c2128; --line: #3a424c; --link: #79b0ff }
}
body { background: var(--ground); color: var(--text); font: 16px/1.55 system-ui, sans-serif; margin: 0 auto;
  max-width: 60rem; padding: 1rem; overflow-wrap: anywhere }
a { color: var(--link) }
code, pre { background: var(--faint); border-radius: 4px; font: 0.88em/1.5 ui-monospace, monospace }
code { padding: 0.1em 0.3em } pre { overflow-x: auto; padding: 0.8rem } pre code { padding: 0 }
table { border-collapse: collapse; display: block; overflow-x: auto }
th, td { border: 1px solid var(--line); padding: 0.4rem 0.6rem; text-align: start; vertical-align: top }
th { background: var(--faint) } :target { background: var(--faint) }
"""
STYLE_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{STYLE_DIGEST}'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "private, no-cache",
}


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter()

    @routes.get("/manual", response_class=RedirectResponse)
    async def topic(topic: str = "") -> RedirectResponse:
        """Redirect to the place in the manual that covers a topic."""
        if topic not in MANUAL:
            raise HTTPException(404, f"the manual has no topic {topic[:100]!r}")
        return RedirectResponse(f"manual/{MANUAL[topic]}", 307)

    @routes.get("/manual/{page}", response_class=HTMLResponse)
    async def manual(page: str) -> HTMLResponse:
        """Return a page of the manual as HTML."""
        # Not in the threads that query stores: those may hang.
        content = await asyncio.to_thread(page_html, page)
        if content is None:
            raise HTTPException(404, f"the manual has no page {page[:100]!r}")
        return HTMLResponse(content, headers=HEADERS)

    return routes


def page_html(page: str) -> str | None:
    """Return a page of the manual as an HTML document; None if the manual has no such page."""
    # The name is compared with the files that exist: nothing from a request becomes a path.
    files = manual_files()
    if page not in files:
        return None
    text = files[page].read_text(encoding="utf-8")
    titles = {name: _title(file) for name, file in files.items()}
    title = html.escape(titles[page])
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head>\n"
        f'<body><nav><a href="index">Manual</a></nav><main>\n{rendered(text, titles)}</main></body></html>\n'
    )


def manual_files() -> dict[str, Path]:
    """Return the files of the manual by the names of their pages."""
    folder = next((folder for folder in FOLDERS if folder.is_dir()), None)
    return {} if folder is None else {file.stem: file for file in sorted(folder.glob("*.md"))}


def _title(file: Path) -> str:
    with file.open(encoding="utf-8") as lines:
        return lines.readline().lstrip("# ").rstrip()


def slug(heading: str) -> str:
    """Return the anchor of a heading."""
    return heading.lower().replace(" ", "-")


def rendered(text: str, pages: Mapping[str, str]) -> str:
    """Return Markdown as HTML. HTML in it is escaped.

    :param text: the Markdown.
    :param pages: the titles of the manual's pages by name. Links to them are kept, and show the title instead of the
        name of a file; all other links become plain text.
    """
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = markdown.parse(text)
    for number, token in enumerate(tokens):
        if token.type == "heading_open":
            token.attrSet("id", slug(tokens[number + 1].content))
        if token.children is not None:
            token.children = list(_inline(token.children, pages))
    return str(markdown.renderer.render(tokens, markdown.options, {}))


def _inline(tokens: list[Token], pages: Mapping[str, str]) -> Iterator[Token]:
    """Yield the tokens of a line, with links between pages only and a description for each image."""
    is_link = False
    for token in tokens:
        if token.type == "link_open":
            target = _target(str(token.attrGet("href")), pages)
            is_link = target is not None
            token.attrSet("href", target or "")
        if token.type in ("image", "text"):
            content = (
                pages.get(token.content.removesuffix(".md")) if is_link and token.content.endswith(".md") else None
            )
            yield Token("text", "", 0, content=content or KEYBOARD_TAG.sub("", token.content))
        elif is_link or token.type not in ("link_open", "link_close"):
            yield token


def _target(href: str, pages: Mapping[str, str]) -> str | None:
    """Return where a link leads within the manual as it is served; None if it leads out of it."""
    file, hash_sign, anchor = href.partition("#")
    page = file.removesuffix(".md")
    return f"{page}{hash_sign}{anchor}" if file == "" or (file.endswith(".md") and page in pages) else None
