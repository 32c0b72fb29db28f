"""`everspot cost chargeback`: lines that add up to the report, as a table, JSON, CSV and a page."""

import csv
import io
import os
import re
from html.parser import HTMLParser

import pytest
from everspot_core.costs.ledger import UNKNOWN, EndRecord, LaunchRecord
from everspot_core.jobs.lease import pending
from everspot_core.jobs.records import Market
from everspot_core.jobs.visit_records import Trip, TripEnd
from report_helpers import T0

MARCH = ("--month", "2026-03")


@pytest.fixture(autouse=True)
def _moment(monkeypatch):
    monkeypatch.setenv("EVERSPOT_CLOCK", f"1e-12@{T0.timestamp() + 3 * 3600:.0f}")


def charged(world, *arguments):
    answer = world.run("--json", "chargeback", *MARCH, *arguments)
    assert answer.code == 0, answer.err
    return answer.json


def test_files_keep_links_and_devices(past, tmp_path):
    """Given a link to a file, and one to a pipe, when a table is written to it, then the link stays."""
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "real.csv").chmod(0o600)
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    reading, writing = os.pipe()
    (tmp_path / "stdout").symlink_to(f"/proc/self/fd/{writing}")
    for name in ("link.csv", "stdout"):
        answer = past.run("--json", "chargeback", *MARCH, "--csv", str(tmp_path / name))
        assert (answer.code, (tmp_path / name).is_symlink()) == (0, True), answer.err
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == (tmp_path / "real.csv").read_bytes()
    assert (tmp_path / "real.csv").read_text().startswith("cluster,month")
    assert sorted(path.name for path in tmp_path.glob("*.csv")) == ["link.csv", "real.csv"]


def test_the_lines_of_each_tag_add_up_to_the_report(past):
    document, report = charged(past), past.run("--json", "report").json
    assert list(document["by"]) == ["Team"]
    assert document["total_usd"] == document["cost_usd"] == report["cost_usd"]
    (lines,) = document["by"].values()
    assert round(sum(line["cost_usd"] for line in lines), 6) == document["total_usd"]
    by = {line["kind"]: line for line in lines}
    assert list(by) == ["value", "untagged", "lost", "boot", "idle", "scheduler"]
    moved = next(job for job in report["jobs"] if job["job_id"] == "moved")
    assert by["value"]["cost_usd"] + by["value"]["lost_usd"] == pytest.approx(moved["cost_usd"], abs=2e-6)
    assert by["lost"]["cost_usd"] == pytest.approx(by["value"]["lost_usd"], abs=1e-6)
    assert by["scheduler"]["cost_usd"] == pytest.approx(report["scheduler_cost_usd"], abs=1e-6)


def test_a_tag_that_is_asked_for_is_shown_though_nobody_has_it(past):
    document = charged(past, "--by", "Customer", "--by", "Team", "--by", "Customer")
    assert list(document["by"]) == ["Customer", "Team"]
    assert "value" not in {line["kind"] for line in document["by"]["Customer"]}
    assert past.run("chargeback", "--by", " ").code == 2


def test_people_see_the_lines_the_total_and_that_the_month_goes_on(past):
    answer = past.run("chargeback", *MARCH)
    assert answer.code == 0
    rows = [line.split() for line in answer.out.splitlines()]
    # Work: 1600 s at $0.04, 2200 s at $0.05, 3600 s at $0.04 an hour. Lost: 20 s at $0.05, 310 s at $0.04.
    assert next(r for r in rows if r[:1] == ["research"])[:4] == ["research", "$0.0883", "+", "$0.0037"]
    total = past.run("--json", "report").json["cost_usd"]
    assert next(r for r in rows if r[:1] == ["total"]) == ["total", f"${total:.4f}"]
    assert "2026-03 is not over: this is up to 2026-03-01 15:00 UTC." in answer.out
    assert "Not in these figures: data transfer" in answer.out


def test_what_is_not_known_makes_a_lower_bound_and_visits_are_their_team_s(world):
    world.submit("away", 0, tags={"Team": "vision"})
    trips = [Trip(cluster="beta", visit="visit-1", number=1, since=T0, until=T0, end=TripEnd.RETURNED, usd=1.5,
                  egress_usd=0.25)]  # fmt: skip
    world.store.records.put("away", pending("away", T0).model_copy(update={"trips": trips}))
    world.store.launches.create(
        "i-odd", LaunchRecord(instance_id="i-odd", instance_type="x9.odd", zone="us-east-1a", market=Market.ON_DEMAND,
                              launched_at=T0),
    )  # fmt: skip
    document = charged(world)
    lines = {line["value"]: line for line in document["by"]["Team"]}
    assert (lines["vision"]["cost_usd"], lines["vision"]["known"]) == (1.75, True)
    assert (lines["(boot)"]["known"], lines["(boot)"]["unpriced_hours"]) == (False, 3.0)
    assert (document["known"], document["total_usd"], document["abroad_usd"], document["egress_usd"]) == (
        False,
        1.75,
        1.5,
        0.25,
    )
    out = world.run("chargeback", *MARCH).out
    assert re.search(r"total\s+≥ \$1.75", out)
    assert "3 hours have no known price: the total is a lower bound." in out
    assert "Of the total: $1.50 at other clusters and $0.25 for copying there." in out


def test_an_instance_of_unknown_length_makes_a_lower_bound_of_the_month_and_its_line(world, tmp_path):
    world.launch("i-base", 0)
    world.store.ends.create("i-base", EndRecord(instance_id="i-base", ended_at=T0, interrupted=False, source=UNKNOWN))
    document, path = charged(world), tmp_path / "page.html"
    assert (document["known"], document["unknown_lengths"], document["unpriced_hours"]) == (False, ["i-base"], 0)
    assert [line["known"] for line in document["by"]["Team"]] == [False]
    out = world.run("chargeback", *MARCH, "--html", str(path)).out
    assert re.search(r"total\s+≥ \$0.0016", out)
    assert "How long i-base ran is not known: the total is a lower bound." in out
    assert (
        "how long i-base ran is not known" in path.read_text() and "a visit" not in path.read_text().split("<table")[0]
    )
    world.submit("train", 0, tags={"Team": "vision"})
    world.assign("train", "i-base", 0)
    assert re.search(r"cost\s+≥ \$0.0016 +how long i-base ran is not known", world.run("report").out)
    out = world.run("report", "train", "--html", str(path)).out
    assert "≥ $0" in out.partition("ON-DEMAND")[2], out
    assert "Nobody reported the end of i-base: sums have the least that the cloud bills for it" in " ".join(out.split())
    assert "≥ $0.00" in path.read_text()
    assert world.run("--json", "report").json["cost_by_tag"]["Team"][0]["cost_known"] is False
    audit = world.run("--json", "audit", *MARCH, "--html", str(path)).json
    assert (audit["known"], audit["unknown_lengths"]) == (False, ["i-base"])
    assert "how long i-base ran is not known" in path.read_text()
    assert "at least $0.0016" in world.run("audit", *MARCH).out.replace("≥", "at least")


def test_a_spreadsheet_takes_no_tag_for_a_formula(past, tmp_path):
    past.submit("evil", 50, tags={"Team": '=HYPERLINK("http://x")', "Project": "+1"})
    past.assign("evil", "i-base", 9100)
    past.start("evil", 9110)
    path = tmp_path / "march.csv"
    answer = past.run("--json", "chargeback", *MARCH, "--csv", str(path))
    rows = list(csv.DictReader(io.StringIO(path.read_bytes().decode())))
    assert [row["value"] for row in rows if row["kind"] == "value"] == [
        "research", '\'=HYPERLINK("http://x")', "'+1",
    ]  # fmt: skip
    assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for row in rows for cell in row.values())
    for key in ("Team", "Project"):
        costs = [float(row["cost_usd"]) for row in rows if row["tag"] == key]
        assert round(sum(costs), 6) == answer.json["total_usd"]
    assert {row["complete"] for row in rows} == {"false"}


class Page(HTMLParser):
    """Collects tags and their parents."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "img", "link", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_offline_accessible_and_safe(past, tmp_path):
    past.submit("evil", 50, tags={"Team": "<script>alert(1)</script>"})
    past.assign("evil", "i-base", 9100)
    past.start("evil", 9110)
    path = tmp_path / "page.html"
    assert past.run("chargeback", *MARCH, "--html", str(path)).code == 0
    text = path.read_text()
    page = Page(text)
    assert page.open == []
    names = [tag for tag, _ in page.tags]
    assert "script" not in names and "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert not re.search(r"(src|href)=|url\(|@import", text)
    assert ("html", {"lang": "en"}) in page.tags and names.count("h1") == names.count("main") == 1
    headers = [attributes for tag, attributes in page.tags if tag == "th"]
    assert headers and all(attributes.get("scope") in ("col", "row") for attributes in headers)
    regions = [attributes for tag, attributes in page.tags if attributes.get("class") == "scroll"]
    assert all(a["tabindex"] == "0" and a["role"] == "region" and a["aria-label"] for a in regions)
    assert "prefers-color-scheme: dark" in text and "Charges of 2026-03" in text and "not final yet" in text


def test_stages_of_a_pipeline_and_a_point_gained_are_shown(past, tmp_path):
    for run, accuracy in ((1, 0.80), (2, 0.85)):
        pipeline(past, run, 9000 + 1000 * (run - 1), accuracy)
    first, second = charged(past)["pipelines"]
    assert [stage["stage"] for stage in second["stages"]] == ["prepare", "train"]
    assert second["cost_usd"] == pytest.approx(sum(stage["cost_usd"] for stage in second["stages"]), abs=1e-6)
    assert second["cost_usd"] == pytest.approx(400 * 0.096 / 3600, abs=1e-6)
    assert (first["gain"], second["metric"], second["value"]) == (None, "test_accuracy", 0.85)
    assert second["gain"] == pytest.approx(0.05)
    assert second["usd_per_point"] == pytest.approx(second["cost_usd"] / 5, abs=1e-6)
    answer = past.run("chargeback", *MARCH, "--html", str(tmp_path / "p.html"))
    assert "test_accuracy 0.85" in answer.out and "all stages" in answer.out
    assert "Stages of pipelines" in (tmp_path / "p.html").read_text()
    assert charged(past, "--metric", "f1")["pipelines"][1]["value"] is None


def pipeline(world, run: int, seconds: float, accuracy: float) -> None:
    """Two jobs of 200 s each on i-base, one after the other."""
    from everspot_core.jobs.job import JobSpec, JobSubmission, PrecedingJob

    before: list[PrecedingJob] = []
    for stage in ("prepare", "train"):
        job = f"{stage}-{run}"
        at = world.to(seconds)
        spec = JobSpec.model_validate({"name": stage, "recipe": "image-classification"})
        world.store.submit(JobSubmission(job_id=job, spec=spec, submitted_at=at, after=before))
        world.assign(job, "i-base", seconds)
        world.start(job, seconds + 10)
        world.finish(job, seconds + 200, 100, accuracy)
        before, seconds = [PrecedingJob(name=stage, job_id=job)], seconds + 200
