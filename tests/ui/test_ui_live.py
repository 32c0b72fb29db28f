"""The web UI in a real browser, over a cluster of the local cloud with running jobs."""

from collections.abc import Iterator

import pytest
from e2e_helpers import BUCKETS, PLAIN, LiveCluster
from everspot_core.costs.team_budgets import Allowance, Caps
from everspot_core.jobs.records import JobState
from playwright.sync_api import Browser, expect
from test_cli_changes import a_change
from ui_browser import browser, executable, open_view
from ui_helpers import Served, served

pytestmark = pytest.mark.timeout(1800)

EVIL = "<img src=x onerror=alert(1)>"
PAGES = ("/", "/jobs/first", "/jobs/first/cancel", "/fleet", "/spending", "/changes", "/nowhere")
WAITED = {"/": "#t-live", "/jobs/first": "#history", "/fleet": "#pools", "/spending": "#h-costs ~ .cards",
          "/changes": "svg.course"}  # fmt: skip
"""The elements of a page that has been read completely."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    executable()  # before a cluster is laid for nothing
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def live(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path_factory.mktemp("live"), agent_env=PLAIN) as cluster:
        for hours in (1, 2):
            cluster.store.changes.add(a_change(cluster, hours))
        for team, dollars in (("nobody", 100.0), ("nothing", 0.0)):
            caps = Caps(month=Allowance(dollars=dollars))
            cluster.store.change_budgets(lambda b, t=team, c=caps: b.changed(t, c, cluster.clock.now(), "ann"))
        yield cluster


@pytest.fixture(scope="module")
def page(live: LiveCluster) -> Iterator[Served]:
    clock = f"{live.scale}@{live.clock.epoch}"
    with served(f"s3://{BUCKETS[0]}", "--actions", env={"EVERSPOT_CLOCK": clock}) as page:
        yield page


def test_jobs_appear_and_change_while_the_page_is_looked_at(live: LiveCluster, page: Served, chromium: Browser) -> None:
    with open_view(chromium, page) as view:
        expect(view.page.get_by_text("No job waits or runs")).to_be_visible()
        live.submit_toy("first", 100_000, 1, tags={"Team": EVIL}, priority="critical")
        row = view.page.locator("#row-first")
        expect(row).to_contain_text(f"team {EVIL}")
        expect(row).to_contain_text("RUNNING")
        steps = row.locator("td").nth(3)
        before = steps.inner_text()
        expect(steps).not_to_have_text(before)
        # Two instances and three jobs: one job waits, with a reason.
        for name in ("second", "third"):
            live.submit_toy(name, 100_000, 1)
        expect(view.page.locator("#t-live tbody tr")).to_have_count(3)
        expect(view.page.locator("#counts")).to_contain_text("2\nrunning", use_inner_text=True)
        expect(view.page.locator("#counts")).to_contain_text("1\nwaiting", use_inner_text=True)
        waits = view.page.locator("#t-live tbody tr").filter(has_text="PENDING")
        expect(waits).to_contain_text("Waits:")


def test_focus_stays_where_it_is_while_the_rest_changes(live: LiveCluster, page: Served, chromium: Browser) -> None:
    with open_view(chromium, page) as view:
        view.tab_to("job-first")
        row = view.page.locator("#row-first td").nth(3)
        before = row.inner_text()
        view.page.evaluate("window.mine = document.activeElement; null")
        expect(row).not_to_have_text(before)
        view.wait_for_polls()
        assert view.focused() == "job-first"
        assert view.page.evaluate("window.mine === document.activeElement"), "the very same element"
        view.page.fill("#q", "typed")
        view.wait_for_polls()
        assert view.page.input_value("#q") == "typed"


def test_the_keyboard_alone_finds_a_job_and_what_it_may_do(live: LiveCluster, page: Served, chromium: Browser) -> None:
    with open_view(chromium, page) as view:
        view.page.keyboard.press("Tab")
        skip = view.page.locator(".skip")
        expect(skip).to_be_focused()
        expect(skip).to_be_in_viewport()
        view.page.keyboard.press("Enter")
        assert view.focused() == "main"
        view.tab_to("q")
        view.page.keyboard.type("THIR")
        view.page.keyboard.press("Enter")
        expect(view.page.locator("#t-live tbody tr")).to_have_count(1)
        view.tab_to("t-live")  # a table can be scrolled by the keyboard
        view.tab_to("job-third")
        view.page.keyboard.press("Enter")
        expect(view.page.get_by_role("heading", level=1)).to_have_text("third")
        view.tab_to("cancel")
        view.page.keyboard.press("Enter")
        expect(view.page.get_by_role("heading", level=1)).to_have_text("Cancel this job?")
        view.tab_to("back")
        view.page.keyboard.press("Enter")
        expect(view.page.get_by_role("heading", level=1)).to_have_text("third")
        assert live.store.cancels.get("third") is None
        view.tab_to("cancel")
        view.page.keyboard.press("Enter")
        expect(view.page.get_by_role("heading", level=1)).to_have_text("Cancel this job?")
        view.tab_to("do")
        view.page.keyboard.press("Enter")
        expect(view.page.get_by_role("status").filter(has_text="Third will be cancelled")).to_be_visible()
        expect(view.page.locator("#live")).to_contain_text("CANCELLED")
        expect(view.page.locator("#cancel")).to_have_count(0)
    assert live.until(lambda: live.ended("third")) is JobState.CANCELLED


def test_why_a_job_left_its_instance_is_told_when_the_cloud_takes_it(
    live: LiveCluster, page: Served, chromium: Browser
) -> None:
    with open_view(chromium, page) as view:
        view.go("/jobs/first")
        owner = live.until(lambda: live.trains("first"))
        live.cloud.do("interrupt", instance=owner)
        attempts = view.page.locator("#attempts tbody tr")
        expect(attempts.first).to_contain_text("the cloud gave notice that it takes the instance back")
        expect(attempts).to_have_count(2)
        expect(view.page.locator("#h-why + ul")).to_contain_text("Left its instance 1 time, last because the cloud")
        expect(view.page.locator("#path svg")).to_be_visible()
        expect(view.page.locator("#history")).to_contain_text("notice")


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (400, "light"), (1280, "dark"), pytest.param(2000, "light", marks=pytest.mark.nightly),
        pytest.param(400, "dark", marks=pytest.mark.nightly), pytest.param(1280, "light", marks=pytest.mark.nightly),
        pytest.param(2000, "dark", marks=pytest.mark.nightly),
    ],
)  # fmt: skip
def test_every_page_is_accessible_and_as_wide_as_the_window(
    live: LiveCluster, page: Served, chromium: Browser, scheme: str, width: int
) -> None:
    with open_view(chromium, page, color_scheme=scheme, viewport={"width": width, "height": 900}) as view:
        for path in PAGES:
            view.go(path)
            if path in WAITED:
                expect(view.page.locator(WAITED[path]).first).to_be_visible()
            assert view.page.evaluate("document.documentElement.scrollWidth") <= width, path
            assert view.violations() == "", (path, scheme, width)
        view.wrong = [words for words in view.wrong if "404" not in words]  # of /nowhere


def test_what_is_not_accessible_is_found(live: LiveCluster, page: Served, chromium: Browser) -> None:
    with open_view(chromium, page) as view:
        view.page.evaluate("document.querySelector('label').remove(); document.body.style = 'color: #999'")
        violations = view.violations()
        assert "form element has a label" in violations and "color-contrast" in violations


def test_without_scripts_the_page_is_whole_and_can_be_reloaded(
    live: LiveCluster, page: Served, chromium: Browser
) -> None:
    with open_view(chromium, page, java_script_enabled=False) as view:
        expect(view.page.locator("#row-second")).to_contain_text("RUNNING")
        expect(view.page.locator("#pause")).to_be_hidden()
        view.page.reload()
        view.page.locator("#job-second").click()
        expect(view.page.get_by_role("heading", level=1)).to_have_text("second")


def test_updates_can_be_paused_and_nothing_moves_for_who_wants_no_motion(
    live: LiveCluster, page: Served, chromium: Browser
) -> None:
    with open_view(chromium, page) as view:
        expect(view.page.locator("#row-second")).to_contain_text("RUNNING")
        moving = "getComputedStyle(document.querySelector('.bar .done')).transitionDuration"
        assert view.page.evaluate(moving) == "0s"
        view.page.get_by_role("button", name="Pause updates").click()
        expect(view.page.get_by_role("button", name="Pause updates")).to_have_attribute("aria-pressed", "true")
        live.submit_toy("unseen", 100_000, 1)
        page.until("/", lambda text: "/jobs/unseen" in text)  # the server knows it
        expect(view.page.locator("#row-unseen")).to_have_count(0)
        view.page.get_by_role("button", name="Pause updates").click()
        expect(view.page.locator("#row-unseen")).to_have_count(1)


def test_an_open_page_says_when_the_command_was_stopped(live: LiveCluster, chromium: Browser) -> None:
    with served(f"s3://{BUCKETS[0]}") as page, open_view(chromium, page) as view:
        expect(view.page.locator("#as-of")).to_be_visible()
        assert page.end() == 130
        expect(view.page.get_by_role("alert").filter(has_text="does not answer")).to_be_visible()
        expect(view.page.locator("#row-second")).to_be_visible()
        view.wrong.clear()  # of a server that is gone
