"""Every page of the web UI answers before its first read has ended, and while the store cannot be read."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from everspot_cli.session import Session
from everspot_cli.ui import reading
from everspot_cli.ui.routes import PART, Pages
from everspot_cli.ui.sources import Sources
from everspot_store import StoreDenied, StoreError, StoreUnavailable
from starlette.testclient import TestClient

PATHS = ("/", "/?past=all", "/?team=research&status=PENDING", "/fleet", "/fleet?pools=all", "/jobs/moved",
         "/jobs/moved?history=all", "/spending", "/changes", "/jobs/moved/cancel")  # fmt: skip


def client(url: str, start: Callable[[Callable[[], None]], None]) -> TestClient:
    """Return a client of the pages of a cluster. `start`: begins a read."""
    return TestClient(Pages(Sources(Session(store_option=url), start=start), acting=True).app())


def fail_to_read(self: Any) -> None:
    self._settle(None, str(StoreUnavailable("the bucket does not answer")), 0.0)


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

    monkeypatch.setattr(reading.Reading, "_once", fail_to_read)

    answer = pages.get(path)

    assert answer.status_code == 200
    assert "the bucket does not answer" in answer.text or path.endswith("/cancel")


def test_an_action_on_a_job_that_is_not_read_yet_is_not_sent_and_its_job_is_not_denied(
    past: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a job that exists, when an action is sent before its read, then the answer is to try again."""
    monkeypatch.setattr(reading, "PATIENCE", timedelta())
    slow = client(past.url, start=lambda work: None).post("/jobs/moved/cancel")
    monkeypatch.setattr(reading.Reading, "_once", fail_to_read)
    failing = client(past.url, start=lambda work: work()).post("/jobs/moved/cancel")

    assert (slow.status_code, failing.status_code) == (503, 503)
    assert "takes long" in slow.text and "the bucket does not answer" in failing.text
    assert all("Nothing was requested" in answer.text for answer in (slow, failing))


@pytest.mark.parametrize(
    ("error", "text"),
    [(StoreDenied("403"), "refused the credentials"), (StoreUnavailable("no answer"), "does not answer")],
    ids=["denied", "unavailable"],
)
def test_an_action_that_the_store_does_not_take_says_why(world: Any, error: StoreError, text: str) -> None:
    world.submit("late", 10)
    session = Session(store_option=world.url)

    def refuse(*_: Any, **__: Any) -> None:
        raise error

    session.store.cancels.create = refuse  # type: ignore[method-assign]
    pages = TestClient(Pages(Sources(session, start=lambda work: work()), acting=True).app())

    answer = pages.post("/jobs/late/cancel")

    assert answer.status_code == 503
    assert text in answer.text and "whether the request was written" in answer.text
    assert pages.post("/jobs/nowhere/cancel").status_code == 404
