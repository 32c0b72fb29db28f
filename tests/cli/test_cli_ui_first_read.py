"""Every page of the web UI answers before its first read has ended, and while the store cannot be read."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from everspot_cli.session import Session
from everspot_cli.ui import reading
from everspot_cli.ui.routes import PART, Pages
from everspot_cli.ui.sources import Sources
from everspot_store import StoreUnavailable
from starlette.testclient import TestClient

PATHS = ("/", "/?past=all", "/?team=research&status=PENDING", "/fleet", "/fleet?pools=all", "/jobs/moved",
         "/jobs/moved?history=all", "/spending", "/changes", "/jobs/moved/cancel")  # fmt: skip


def client(url: str, start: Callable[[Callable[[], None]], None]) -> TestClient:
    """Return a client of the pages of a cluster. `start`: begins a read."""
    return TestClient(Pages(Sources(Session(store_option=url), start=start), acting=True).app())


@pytest.mark.parametrize("part", [False, True], ids=["whole", "part"])
@pytest.mark.parametrize("path", PATHS)
def test_a_page_answers_before_its_first_read_ends(
    past: Any, monkeypatch: pytest.MonkeyPatch, path: str, part: bool
) -> None:
    """Given a store that takes longer than a page waits, when a page is opened, then it says that it is being read."""
    monkeypatch.setattr(reading, "PATIENCE", timedelta())
    pages = client(past.url, start=lambda work: None)

    answer = pages.get(path, headers={PART: "1"} if part else {})

    assert answer.status_code == 200
    assert "Being read for the first time" in answer.text or path.endswith("/cancel")


@pytest.mark.parametrize("path", PATHS)
def test_a_page_answers_while_the_store_cannot_be_read(past: Any, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """Given a store whose first read fails, when a page is opened, then it shows the reason."""
    pages = client(past.url, start=lambda work: work())

    def fail(self: Any) -> None:
        self._settle(None, str(StoreUnavailable("the bucket does not answer")), 0.0)

    monkeypatch.setattr(reading.Reading, "_once", fail)

    answer = pages.get(path)

    assert answer.status_code == 200
    assert "the bucket does not answer" in answer.text or path.endswith("/cancel")
