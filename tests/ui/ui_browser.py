"""A real headless browser, and its queries about a page."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Request, Route, expect, sync_playwright

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""The first is the same without what draws a window, which takes half of the others' time."""
VARIABLE = "EVERSPOT_BROWSER"
LIMIT = 240_000  # milliseconds: a machine may be slow
SHOT = {"reduced_motion": "reduce"}


def executable() -> str:
    """Return the browser's path. Without a browser the test is skipped, but fails in CI or if a browser was named."""
    browser = os.environ.get(VARIABLE)
    path = next(filter(None, map(shutil.which, [browser] if browser else NAMES)), None)
    if path:
        return path
    words = f"no {browser or 'Chromium'} here: install it (`apt-get install chromium`), or name a browser in {VARIABLE}"
    if browser or os.environ.get("CI") == "true":
        pytest.fail(words, pytrace=False)
    pytest.skip(words)


@contextmanager
def browser() -> Iterator[Browser]:
    """The browser; each of its contexts has its own profile."""
    path = executable()
    expect.set_options(timeout=LIMIT)
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=[*root, "--disable-gpu"], timeout=LIMIT)
        yield started
        started.close()


class Seen:
    """A page with what went wrong on it: errors of scripts, what the policy refused, and what it asked of others."""

    def __init__(self, browser: Browser, origin: str, **options: Any) -> None:
        self.context = browser.new_context(**{**SHOT, **options})
        self.context.set_default_timeout(LIMIT)
        self.page: Page = self.context.new_page()
        self.wrong: list[str] = []
        self.origin = origin
        self.page.on("console", lambda message: self.wrong.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.route("**/*", self._own)

    def _own(self, route: Route, request: Request) -> None:
        if request.url.startswith(f"{self.origin}/"):
            route.continue_()
        else:
            self.wrong.append(f"asked for {request.url}")
            route.abort()

    def go(self, path: str) -> Page:
        self.page.goto(f"{self.origin}{path}")
        return self.page

    def wait_for_polls(self, times: int = 1) -> None:
        """Wait until the page has polled this many more times."""
        count = "Number(document.documentElement.dataset.asked || 0)"
        before = self.page.evaluate(count)
        end = time.monotonic() + LIMIT / 1000
        while self.page.evaluate(count) < before + times:  # its policy forbids wait_for_function
            assert time.monotonic() < end, "the page does not ask for news"
            self.page.wait_for_timeout(200)

    def focused(self) -> str:
        """The id of what has the focus, or its tag."""
        return str(self.page.evaluate("document.activeElement.id || document.activeElement.tagName"))

    def tab_to(self, id: str, most: int = 80) -> None:
        """Press Tab until an element has the focus."""
        for _ in range(most):
            self.page.keyboard.press("Tab")
            if self.focused() == id:
                return
        raise AssertionError(f"{most} times Tab do not lead to {id}")

    def violations(self) -> str:
        """Return axe-core's findings; empty if there are none."""
        report = Axe().run(self.page)
        return report.generate_report() if report.violations_count else ""


@contextmanager
def open_view(browser: Browser, page: Any, **options: Any) -> Iterator[Seen]:
    """A profile that has come in by the printed address. When it ends, nothing may have gone wrong."""
    view = Seen(browser, page.origin, **options)
    view.page.goto(page.answer["url"])
    yield view
    view.context.close()
    assert view.wrong == []
