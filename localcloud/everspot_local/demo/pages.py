"""Saves the web UI's pages as files that a browser can read without the demonstration."""

import http.cookiejar
import json
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from everspot_local.demo.world import DemoError, DemoWorld

PAGES = {"/": "jobs.html", "/fleet": "fleet.html", "/spending": "spending.html", "/changes": "changes.html"}
"""The pages of every cluster, by address."""
ASSETS = ("report.css", "ui.css", "icon.svg")
LIMIT = timedelta(minutes=2)
"""For the server to begin, and for each page to be read from the store for the first time."""
_SCRIPT = re.compile(r"<script\b[^>]*></script>\n?")
_ADDRESS = re.compile(r'(?P<name>href|action)="(?P<to>/[^"]*)"')
_FIRST = 'id="first"'
"""The mark of a page whose content is still being read."""


def save_pages(world: DemoWorld, jobs: Mapping[str, str]) -> Path:
    """Save the web UI's pages into a folder and return it. `jobs`: ids of the jobs whose pages are saved, by name.

    Raises:
        DemoError: if the web UI does not answer in time.
    """
    folder = world.home / "pages"
    server = world.everspot_beside("ui", "--json", log="ui.json")
    try:
        save(_wait_for_address(world.home / "ui.json", server), folder, jobs)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(LIMIT.total_seconds())
    return folder


def save(address: str, folder: Path, jobs: Mapping[str, str]) -> None:
    """Save the pages of a web UI. `address`: with its token, as the command prints it; `jobs`: as of `save_pages`.

    Raises:
        DemoError: if a page cannot be read in time.
    """
    cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies)
    opener.open(address, timeout=LIMIT.total_seconds()).close()
    parts = urlsplit(address)
    origin = f"{parts.scheme}://{parts.netloc}"
    addresses = {**PAGES, **{f"/jobs/{job}": f"job-{name}.html" for name, job in jobs.items()}}
    files = {**addresses, **{f"/assets/{name}": name for name in ASSETS}}
    folder.mkdir(parents=True, exist_ok=True)
    for path, name in addresses.items():
        (folder / name).write_text(make_static(_read(opener, origin + path), files))
    for name in ASSETS:
        with opener.open(f"{origin}/assets/{name}", timeout=LIMIT.total_seconds()) as answer:
            (folder / name).write_bytes(answer.read())


def make_static(html: str, files: Mapping[str, str]) -> str:
    """Return a page without scripts, whose links lead to files. `files`: by address; a link elsewhere within the web
    UI leads back to the top of the page."""
    return _ADDRESS.sub(
        lambda match: f'{match["name"]}="{files.get(match["to"].partition("?")[0], "#main")}"', _SCRIPT.sub("", html)
    )


def _read(opener: urllib.request.OpenerDirector, url: str) -> str:
    end = time.monotonic() + LIMIT.total_seconds()
    while time.monotonic() < end:
        with opener.open(url, timeout=LIMIT.total_seconds()) as answer:
            html: str = answer.read().decode()
        if _FIRST not in html:
            return html
        time.sleep(0.2)
    raise DemoError(f"the web UI did not read {urlsplit(url).path} within {LIMIT}")


def _wait_for_address(answer: Path, server: subprocess.Popen[bytes]) -> str:
    end = time.monotonic() + LIMIT.total_seconds()
    while time.monotonic() < end and server.poll() is None:
        try:
            return str(json.loads(answer.read_text())["url"])
        except ValueError:  # not written yet, or half of it
            time.sleep(0.1)
    raise DemoError(f"the web UI did not begin: {answer.read_text()[-2000:]}")
