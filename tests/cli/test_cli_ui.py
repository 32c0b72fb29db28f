"""`everspot ui` as a process: its pages for a small cluster with a history."""

import os
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from cluster_history import record_history
from everspot_cli.tables import money
from everspot_core import extras
from everspot_core.cluster.applied_change import PullRequest
from everspot_core.governance.anomalies import Anomalies, AnomalyKind, Finding
from test_cli_changes import a_change
from ui_helpers import CLOCK, Served, served

from tests.cli.conftest import World

EVIL = "<script>alert(1)</script>"
BAD_LINK = {"number": 8, "title": EVIL, "url": "javascript:alert(1)"}


def unusual(world: World) -> Anomalies:
    """Two open anomalies, one of them with text from outside, and one that is over."""
    now = world.clock.now()
    dear = Finding(AnomalyKind.TEAM_OVER_NORM, EVIL, f"team {EVIL} has spent $9.00", {"spent_usd": 9.0})
    idle = Finding(AnomalyKind.IDLE_FLEET, "fleet", "2 of 3 instances have had no work for 2h or longer")
    ended = Finding(AnomalyKind.POOL_PRICE, "c6i.large", "over since long")
    first = Anomalies(scheduler_id="s", updated_at=now).followed([dear, ended], now - timedelta(hours=2))
    return first.followed([dear, idle], now)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("ui"))
    record_history(world)
    world.submit("late", 9010, deadline="1h", tags={"Team": EVIL})
    world.submit("going", 9020)
    world.assign("going", "i-base", 9100)
    world.start("going", 9110)
    world.beat("i-base", "going")
    world.store.notes.anomalies.write(unusual(world))
    jobs = world.store.jobs.get("moved"), world.store.records.get("moved")
    world.store.changes.add(a_change(world, 1))
    world.store.changes.add(a_change(world, 2, pull_request=PullRequest(**BAD_LINK), estimate=None))
    world.store.archive.move(jobs[0].value, jobs[1].value, world.clock.now())
    return world


@pytest.fixture(scope="module")
def page(cluster: World) -> Iterator[Served]:
    with served(cluster.url, "--actions", env={"EVERSPOT_CLOCK": CLOCK}) as page:
        yield page


def test_the_jobs_are_those_of_the_command_with_their_reasons(cluster: World, page: Served) -> None:
    text = page.until("/", lambda text: 'id="as-of"' in text)
    rows = cluster.run("jobs", "--json", env={"EVERSPOT_CLOCK": CLOCK}).json
    assert {row["job_id"] for row in rows} == {"late", "going", "steady"}, "the other has been archived for two days"
    assert "/jobs/moved" not in text
    for row in rows:
        assert f'<a href="/jobs/{row["job_id"]}"' in text and row["status"] in text
    assert "no scheduler has reported yet" in text
    assert "Deadline missed by" in text and 's-late">late' in text


def test_what_ended_long_ago_is_shown_on_demand_and_a_choice_narrows_it(page: Served) -> None:
    text = page.until("/?past=all", lambda text: "/jobs/moved" in text)
    assert "Was interrupted 2 times" in text
    assert "/jobs/moved" not in page.get("/?past=all&status=PENDING").text
    assert "/jobs/moved" in page.get("/?past=all&q=MOV").text
    assert "/jobs/late" not in page.get("/?q=going").text


def test_a_job_s_page_tells_its_attempts_and_why_each_ended(page: Served) -> None:
    text = page.until("/jobs/moved", lambda text: "Attempts" in text)
    assert "the cloud gave notice that it takes the instance back" in text
    assert "its instance vanished without notice" in text
    assert text.count("<svg") == 1 and "steps redone" in text
    assert '<i class="swatch j0"></i>works</span>' in text, "the colour of the work is in the legend"


def test_a_job_s_page_tells_what_it_has_cost_as_the_report_does(cluster: World, page: Served) -> None:
    report = cluster.run("report", "--json", env={"EVERSPOT_CLOCK": CLOCK}).json
    rows = {job["job_id"]: job for job in report["jobs"]}
    ended, running = rows["moved"], rows["going"]
    assert (ended["cost_known"], running["cost_known"]) == (True, True) and ended["cost_usd"] > 0
    text = page.until("/jobs/moved", lambda text: "<dt>cost</dt>" in text)
    assert f"<dd>{money(ended['cost_usd'])} ({money(ended['on_demand_cost_usd'])} on-demand)</dd>" in text
    assert f"<dd>{money(running['cost_usd'])} until " in page.get("/jobs/going").text


def test_fleet_and_spending_tell_what_the_commands_tell(cluster: World, page: Served) -> None:
    text = page.until("/fleet", lambda text: "i-base" in text)
    assert "m6i.large" in text and "/jobs/going" in text
    text = page.until("/spending", lambda text: "Cost by team" in text)
    spent = cluster.run("report", "--json", env={"EVERSPOT_CLOCK": CLOCK}).json["cost_usd"]
    assert f"${spent:,.2f}" in text and "No budget is set" in text


def test_changes_tell_what_each_did_to_the_cost_of_a_month(cluster: World, page: Served) -> None:
    text = page.until("/changes", lambda text: "2 changes applied" in text)
    for words in ("#7 More [bold]of it[/bold]", "$90.00 → $1,234.50", "+$1,144.50", "2 create, 1 update", "unknown"):
        assert words in text
    assert 'href="https://forge.test/7"' in text and "javascript:" not in text


def test_what_is_not_as_usual_is_told_above_the_jobs_and_with_the_spending(cluster: World, page: Served) -> None:
    listed = cluster.run("anomalies").out
    for words in ("team <script>alert(1)</script> has spent $9.00", "2 of 3 instances have had no work"):
        assert words in listed
    text = page.until("/", lambda text: "anomalies are open" in text)
    assert "2 anomalies are open." in text
    text = page.until("/spending", lambda text: "no work" in text)
    assert "team &lt;script&gt;alert(1)&lt;/script&gt; has spent $9.00" in text and "over since long" not in text
    assert text.index("2 of 3 instances have had no work") < text.index("has spent"), "the newest first"


def test_words_of_jobs_are_text_and_never_markup(page: Served) -> None:
    for path in ("/", f"/?q={EVIL}", "/jobs/late", "/spending", f"/jobs/{EVIL.replace('/', '')}"):
        assert EVIL not in page.get(path).text and "<script>alert" not in page.get(path).text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.get("/").text


def test_the_part_that_is_kept_up_to_date_is_the_middle_of_the_page(page: Served) -> None:
    whole, part = page.get("/fleet").text, page.get("/fleet", X_Everspot_Part="live").text
    assert "<html" in whole and "<html" not in part and "<h1" not in part
    assert part.strip()[:200] in whole


def test_a_missing_page_is_404(page: Served) -> None:
    assert page.get("/jobs/nobody").status == 404 and "There is no job nobody." in page.get("/jobs/nobody").text
    assert [page.get(path).status for path in ("/nowhere", "/assets/secret.txt", "/jobs/late/burn")] == [404, 404, 404]


def test_a_store_that_cannot_be_read_is_told_with_the_last_good_reading_and_found_again(world: World) -> None:
    world.submit("here")
    control = Path(world.root / "control")
    with served(world.url, env={"EVERSPOT_CLOCK": CLOCK}) as page:
        before = page.until("/", lambda text: "/jobs/here" in text)
        assert 'role="alert" id="trouble"' not in before
        control.rename(world.root / "away")
        lost = page.until("/", lambda text: 'id="trouble"' in text)
        assert "/jobs/here" in lost and "What is below is of 2026-03-03 12:00:" in lost
        assert "UTC. It is tried again" in lost
        (world.root / "away").rename(control)
        page.until("/", lambda text: 'id="trouble"' not in text and "/jobs/here" in text)


def test_ctrl_c_ends_it_at_once_though_a_reading_hangs(world: World) -> None:
    with served(world.url, env={"EVERSPOT_CLOCK": CLOCK}) as page:
        page.until("/", lambda text: 'id="as-of"' in text)
        records = world.root / "control/jobs"
        records.mkdir(exist_ok=True)
        os.mkfifo(records / "hangs.json")  # opening a named pipe blocks until a writer opens it
        time.sleep(2.5)
        page.get("/")
        time.sleep(0.5)
        began = time.monotonic()
        assert page.end() == 130
        assert time.monotonic() - began < 30


def test_ctrl_c_has_its_exit_code_also_where_the_program_began_with_the_signal_ignored(world: World) -> None:
    # So does a shell without job control begin what runs in its background.
    with served(world.url, within=("sh", "-c", 'trap "" INT; exec "$@"', "sh")) as page:
        assert page.end() == 130


def test_a_port_that_is_taken_is_told_in_one_sentence(world: World, page: Served) -> None:
    answer = world.run("ui", "--no-open", "--port", str(page.port))
    assert answer.code == 1
    assert answer.err.startswith(f"error: port {page.port} cannot be used: address already in use")


def test_without_a_cluster_it_does_not_begin(tmp_path: Path) -> None:
    world = World.__new__(World)
    world.url = (tmp_path / "none").as_uri()
    answer = world.run("ui", "--no-open")
    assert answer.code == 4 and "does not exist" in answer.err


def test_without_its_extra_it_says_so_in_one_sentence(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "_installed", lambda name: name not in ("starlette", "jinja2"))
    answer = world.run("ui", "--no-open")
    needs = "everspot ui needs starlette, jinja2, which are not installed: pip install 'everspot[ui]'"
    assert (answer.code, " ".join(answer.err.split())) == (1, f"error: {needs}")
