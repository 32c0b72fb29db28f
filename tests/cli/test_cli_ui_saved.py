"""The web UI saved as static files, as the documents use it for the demo."""

import re
from pathlib import Path

from everspot_local.demo.pages import PAGES, save
from ui_helpers import CLOCK, served

from tests.cli.conftest import World

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "docs/demo"
LINK = re.compile(r'(?:href|src|action)="([^"#?][^"]*)"')


def test_saved_pages_lead_to_each_other_and_need_no_server(past: World, tmp_path: Path) -> None:
    with served(past.url, env={"EVERSPOT_CLOCK": CLOCK}) as page:
        save(page.answer["url"], tmp_path / "pages", {"moved": "moved"})
        token = page.cookie.partition("=")[2]
    files = sorted((tmp_path / "pages").iterdir())
    assert {*PAGES.values(), "job-moved.html", "ui.css"} <= {file.name for file in files}
    assert 'href="job-moved.html"' in (tmp_path / "pages/jobs.html").read_text()
    for file in files:
        text = file.read_text()
        assert token not in text and "<script" not in text, file.name
        assert "Being read for the first time" not in text, file.name


def test_the_documents_show_one_run_of_the_demonstration() -> None:
    pages = sorted(DEMO.glob("*.html"))
    assert {"report.html", "terminal.html", *PAGES.values()} <= {page.name for page in pages}
    for page in pages:
        text = page.read_text()
        assert not re.search(r"/(work|root|home|tmp|dev/shm)/|127\.0\.0\.1|localhost", text), page.name
        for link in LINK.findall(text):
            assert link.startswith(("https://", "data:", "mailto:")) or (DEMO / link).is_file(), (page.name, link)
    assert "All checks passed" in (DEMO / "terminal.html").read_text()
    assert "job-critical.html" in (DEMO / "jobs.html").read_text()
