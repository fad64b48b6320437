"""A real browser: the Chromium of the machine, driven by Playwright, and the accessibility rules of axe-core."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from demo.local_kinesis import SERVERS_VARIABLE
from tests.support.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:  # a run without these tests does without the package
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, Response

CHROMIUM_VARIABLE = "CHROMIUM"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
REST = "/plugin/none"
"""Where nothing of ours is seen, or asked for."""

Theme = Literal["light", "dark"]

_REPOSITORY = Path(__file__).resolve().parents[2]


class BrowserError(Exception):
    """The browser or its driver is not installed; the message names the remedy."""


def find_chromium() -> Path:
    """Return the browser: the one that `$CHROMIUM` names, else Chromium or Chrome on `PATH`.

    :raises BrowserError: if there is none.
    """
    named = os.environ.get(CHROMIUM_VARIABLE)
    found = shutil.which(named) if named else next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found is None:
        raise BrowserError(
            f"{named or 'Chromium'} was not found: run `make servers`, install it (Debian: chromium), or name it in "
            f"{CHROMIUM_VARIABLE}"
        )
    return Path(found)


def find_axe() -> Path:
    """Return the script of axe-core.

    :raises BrowserError: if it is not installed.
    """
    servers = Path(os.environ.get(SERVERS_VARIABLE) or _REPOSITORY / ".venv" / "servers")
    script = servers / "node_modules" / "axe-core" / "axe.min.js"
    if not script.is_file():
        raise BrowserError(f"axe-core is not installed in '{servers}': run `make servers`")
    return script


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser, and end it.

    Playwright's loop counts as running in this thread until then: nobody else can run one in it.

    :raises BrowserError: if it, or what drives it, is not installed.
    """
    try:
        from playwright.sync_api import expect, sync_playwright
    except ImportError:
        raise BrowserError("the package playwright is not installed: run `make venv`") from None
    program = find_chromium()
    expect.set_options(timeout=PATIENCE_SECONDS * 1000)
    with sync_playwright() as playwright:
        # Root has no sandbox; a container's /dev/shm may be small.
        arguments = ["--disable-dev-shm-usage", "--force-color-profile=srgb", "--hide-scrollbars"]
        browser = playwright.chromium.launch(executable_path=program, chromium_sandbox=False, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@dataclass(frozen=True)
class Window:
    """The settings of a browser window: login, theme, width and time zone.

    :param token: proves who it is.
    :param theme: as chosen in Airflow.
    :param width: in pixels.
    :param time_zone: of the machine.
    """

    token: str
    theme: Theme = "light"
    width: int = 1280
    time_zone: str = "UTC"

    @property
    def height(self) -> int:
        """In pixels: a laptop's, or a telephone's."""
        return 900 if self.width >= 768 else 844


@dataclass
class Windows:
    """Browser windows that tests reuse, so that each loads Airflow's own scripts once.

    :param browser: where.
    :param url: of Airflow.
    """

    browser: Browser
    url: str
    _contexts: dict[tuple[Theme, str], BrowserContext] = field(default_factory=dict)
    _resting: dict[Window, list[Page]] = field(default_factory=dict)

    def take(self, window: Window) -> Page:
        """Return a page that is at rest, or a new one."""
        kind = window.theme, window.time_zone
        if kind not in self._contexts:
            self._contexts[kind] = self.context(window)
        context = self._contexts[kind]
        self._log_in(context, window)
        if resting := self._resting.get(window):
            page = resting.pop()
            page.bring_to_front()  # what lies behind is drawn once a second
            return page
        page = context.new_page()
        page.set_viewport_size({"width": window.width, "height": window.height})
        return page

    def give_back(self, window: Window, page: Page) -> None:
        """Let a page rest."""
        go(page, REST)
        self._resting.setdefault(window, []).append(page)

    def context(self, window: Window) -> BrowserContext:
        """Return a browser with cookies and a cache of its own."""
        context = self.browser.new_context(
            base_url=self.url,
            viewport={"width": window.width, "height": window.height},
            timezone_id=window.time_zone,
            locale="en-GB",
            color_scheme=window.theme,
            reduced_motion="reduce",
        )
        self._log_in(context, window)
        context.add_init_script(f"localStorage.setItem('theme', {json.dumps(window.theme)})")
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        context.set_default_timeout(PATIENCE_SECONDS * 1000)
        return context

    def _log_in(self, context: BrowserContext, window: Window) -> None:
        context.add_cookies([{"name": "_token", "value": window.token, "url": self.url}])


@dataclass
class Visits:
    """The pages that one test opens, and their errors, each of which fails the test.

    :param windows: where.
    """

    windows: Windows
    complaints: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    _pages: list[tuple[Window, Page]] = field(default_factory=list)
    _own: list[BrowserContext] = field(default_factory=list)
    _excused: list[str] = field(default_factory=list)

    def open(self, window: Window, path: str, *, alone: bool = False) -> Page:
        """Return a page that has gone to a path below Airflow's address.

        :param alone: with cookies of its own, which a test may take away.
        """
        if alone:
            self._own.append(self.windows.context(window))
            page = self._own[-1].new_page()
        else:
            page = self.windows.take(window)
            self._pages.append((window, page))
        for event, note in self._notes.items():
            page.on(event, note)  # type: ignore[call-overload]
        go(page, path)
        return page

    def excuse(self, pattern: str) -> None:
        """Expect complaints in which this regular expression is found."""
        self._excused.append(pattern)

    def seen(self) -> str:
        """Return what the pages show, for the report of a failure: dialogs and alerts, or all if there are none."""
        shown = []
        for page in [page for _, page in self._pages] + [page for own in self._own for page in own.pages]:
            parts = page.locator("[role=alertdialog], [role=alert]").all_inner_texts() or [page.inner_text("body")]
            shown.append("\n".join((page.url, *parts)))
        return "\n\n".join([*shown, *self.complaints, *self.failures])

    def close(self) -> list[str]:
        """Give the pages back; return what nobody excused."""
        for window, page in self._pages:
            for event, note in self._notes.items():
                page.remove_listener(event, note)
            self.windows.give_back(window, page)
        for context in self._own:
            context.close()
        return [c for c in self.complaints if not any(re.search(pattern, c) for pattern in self._excused)]

    @cached_property
    def _notes(self) -> dict[str, Callable[[Any], None]]:
        return {
            "console": self._note_message,
            "pageerror": self._note_error,
            "requestfailed": self._note_failure,
            "response": self._note_response,
        }

    def _note_error(self, error: Exception) -> None:
        self.complaints.append(f"uncaught: {error}")

    def _note_message(self, message: ConsoleMessage) -> None:
        # A request that was refused is noted with its address, as a response.
        is_noted = message.text.startswith("Failed to load resource")
        # Airflow 3.2.1 asks for chunks of its own UI below `/assets`, which are below `/static/assets`.
        is_of_the_host = urlsplit(message.location["url"]).path.startswith("/assets/")
        if message.type == "error" and not is_noted and not is_of_the_host:
            self.complaints.append(f"console: {message.text}")

    def _note_failure(self, request: Request) -> None:
        if request.method == "POST":  # what a page reads, it cancels when it is left
            self.failures.append(f"{request.failure} {request.method} {request.url}")

    def _note_response(self, response: Response) -> None:
        if response.status >= 400:
            self.complaints.append(f"{response.status} {response.request.method} {response.url}")
        elif (busy := f"503 GET {response.url}") in self.complaints:  # the page has asked again
            self.complaints = [complaint for complaint in self.complaints if complaint != busy]


def go(page: Page, path: str) -> None:
    """Go to a path below Airflow's address: as a link within Airflow does, where Airflow is open already."""
    if page.url == "about:blank":
        page.goto(path, wait_until="domcontentloaded")
    else:
        page.evaluate(
            "path => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')); }",
            path,
        )


COME_TO_REST = """() => Promise.all(
    document.getAnimations()
        .filter(animation => animation.effect?.getComputedTiming().endTime !== Infinity)
        .map(animation => animation.finished.catch(() => null)))"""
"""Waits for what fades in, whose colours are others until it is there; not for what turns forever."""


def findings(page: Page, axe: Path, *, within: str, rules: list[str] | None = None) -> list[str]:
    """Return the faults of all levels that axe-core finds in a page, a line each.

    :param within: the CSS selector of what is looked at.
    :param rules: which rules are looked for; None for all.
    """
    page.evaluate(COME_TO_REST)
    if not page.evaluate("'axe' in window"):
        page.evaluate(axe.read_text(encoding="utf-8"))
    result: dict[str, Any] = page.evaluate(
        """([within, rules]) =>
            axe.run({include: [within]}, {resultTypes: ["violations"], ...(rules && {runOnly: rules})})""",
        [within, rules],
    )
    return [
        f"{violation['impact']}: {violation['id']}: {violation['help']}: {node['html'][:200]} "
        f"({node['failureSummary']})"
        for violation in result["violations"]
        for node in violation["nodes"]
    ]
