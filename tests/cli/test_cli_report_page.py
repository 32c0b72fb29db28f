"""The report as an HTML page: it loads nothing from the network, and draws every instance and every job."""

import re
from datetime import timedelta
from html.parser import HTMLParser

import pytest
from everspot_cli.report.colours import fill, warning
from everspot_core.costs.ledger import LaunchRecord
from everspot_core.jobs.records import EventKind, Market, Reason
from report_helpers import AS_OF, T0


def test_the_picture_of_a_long_life_shows_the_instances_launched_last(world):
    for number in range(203):
        at = T0 + timedelta(seconds=number)
        world.store.launches.create(
            f"i-{number:03}",
            LaunchRecord(instance_id=f"i-{number:03}", instance_type="m6i.large", zone="us-east-1a",
                         market=Market.ON_DEMAND, launched_at=at),
        )  # fmt: skip
    page = world.root / "r.html"
    assert world.run("report", "--as-of", AS_OF, "--html", str(page)).code == 0
    drawing = page.read_text().split("<svg")[1].split("<h2>")[0]
    assert drawing.count('class="id"') == 200
    assert "i-202" in drawing
    assert "3 older ones are left out" in drawing


def test_a_page_that_cannot_be_written_is_the_users_error(past):
    answer = past.run("report", "--as-of", AS_OF, "--html", "/proc/nowhere/report.html")
    assert answer.code == 1
    assert answer.err.startswith("error: --html")


class Outside(HTMLParser):
    """Collects what a page would ask of the network, and that its tags are closed."""

    def __init__(self):
        super().__init__()
        self.references, self.open = [], []

    def handle_starttag(self, tag, attrs):
        self.references += [value for name, value in attrs if name in ("src", "href", "xlink:href", "srcset", "action")]
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self.references += [tag] if tag in ("script", "link", "iframe", "img") else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_asks_nothing_of_the_network_and_draws_everything(past, tmp_path):
    path = tmp_path / "deep" / "report.html"
    assert past.run("report", "--as-of", AS_OF, "--html", str(path)).code == 0
    page = path.read_text()
    parser = Outside()
    parser.feed(page)
    assert (parser.references, parser.open) == ([], [])
    assert "url(" not in page and "@import" not in page and "http" not in page.replace("http-equiv", "")
    assert "prefers-color-scheme: dark" in page
    drawing = page[page.rindex("<svg") : page.rindex("</svg>")]
    for iid in ("i-base", "i-brain", "i-spot1", "i-spot2", "i-spot3"):
        assert iid in drawing
    marks = {name: len(re.findall(f'class="{name}"', drawing)) for name in ("notice", "lost", "taken", "done")}
    assert marks == {"notice": 1, "lost": 1, "taken": 1, "done": 2}
    assert drawing.count('class="checkpoint"') == 3
    assert "step 2000 (notice)" in drawing


def test_a_cancelled_job_has_no_notice_and_one_that_never_ran_no_colour(world):
    world.launch("i-base", 0)
    for job in ("ended", "waits"):
        world.submit(job, 10)
    world.assign("ended", "i-base", 100)
    world.start("ended", 110)
    world.to(500)
    world.emit("ended", EventKind.STOP_DEMANDED, source="cancel", action_at=None, seen_at=T0.isoformat())
    world.leave("ended", 510, Reason.CANCEL)
    page = world.root / "r.html"
    assert world.run("report", "--as-of", AS_OF, "--html", str(page)).code == 0
    drawings = page.read_text().split("<h2>Each job")[1]
    assert 'class="notice"' not in drawings
    legend = drawings.split("Timeline of the instances")[1].split("</svg>")[1]
    assert "ended</span>" in legend and "waits</span>" not in legend


def test_each_job_has_one_row_of_its_whole_path(past, tmp_path):
    path = tmp_path / "report.html"
    past.run("report", "--as-of", AS_OF, "--html", str(path))
    page = path.read_text()
    drawing = page[page.index("Each job") : page.index("Timeline of the instances")]
    assert [drawing.count(f'class="name" x="4" y="{y}">') for y in ("48.0", "78.0", "108.0")] == [1, 1, 0]
    # moved: three attempts, a notice and a loss; what was lost of both; steady: one attempt.
    assert drawing.count("<title>attempt ") == 4
    assert "attempt 3 on i-spot3 (c6i.large in us-east-1a, spot)" in drawing
    assert drawing.count('class="wasted"') == 2
    assert "40 steps redone" in drawing
    assert drawing.count("<title>SUCCEEDED") == 2
    assert "3 attempts, 2 interruptions" in drawing


@pytest.mark.parametrize("count", [1, 8, 9, 48, 49])
def test_colours_come_again_only_where_the_legend_says_so(count):
    shown = [fill(index) for index in range(count)]
    assert (len(set(shown)) < count) == bool(warning(count))


def test_names_of_users_cannot_break_the_page(past, tmp_path):
    past.submit("evil", 9100, tags={"Team": "<script>"})
    past.assign("evil", "i-base", 9110)
    path = tmp_path / "report.html"
    past.run("report", "--html", str(path))
    assert "<script" not in path.read_text()
