"""Access control of the web UI, for reading and for actions."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_history import record_history
from ui_helpers import CLOCK, Served, served

from tests.cli.conftest import World


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("ui"))
    record_history(world)
    for name in ("first", "second"):
        world.submit(name, 9010)
    return world


@pytest.fixture(scope="module")
def page(cluster: World) -> Iterator[Served]:
    with served(cluster.url, "--actions", env={"EVERSPOT_CLOCK": CLOCK}) as page:
        yield page


@pytest.fixture(scope="module")
def showing(cluster: World) -> Iterator[Served]:
    """A page without actions."""
    with served(cluster.url, env={"EVERSPOT_CLOCK": CLOCK}) as page:
        yield page


PATHS = ("/", "/jobs/first", "/jobs/first/cancel", "/fleet", "/spending", "/assets/ui.css", "/nowhere")


@pytest.mark.parametrize("path", PATHS)
def test_without_the_token_nothing_is_shown(page: Served, path: str) -> None:
    for reply in (
        page.request(path),
        page.request(f"{path}?token=guess"),
        page.request(path, Cookie=f"everspot-ui-{page.port}=x"),
    ):
        assert reply.status == 403 and "first" not in reply.text


def test_the_token_is_left_out_of_the_address_and_kept_where_no_script_reads_it(page: Served) -> None:
    reply = page.request(page.answer["url"].removeprefix(page.origin))
    assert (reply.status, reply.headers["location"]) == (303, "/")
    assert {"httponly", "samesite=lax"} <= {
        attribute.strip().lower() for attribute in reply.headers["set-cookie"].split(";")
    }
    assert page.get("/").status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "localhost:1", "0.0.0.0:{port}"])
def test_another_host_s_name_is_refused_though_the_token_is_right(page: Served, host: str) -> None:
    host_header = host.format(port=page.port)
    assert page.request("/", host=host_header, Cookie=page.cookie).status == 403
    assert page.request(page.answer["url"].removeprefix(page.origin), host=host_header).status == 403
    assert page.request("/", host=f"localhost:{page.port}", Cookie=page.cookie).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": ""},
        {"Cookie": ""},
    ],
    ids=str,
)
def test_what_another_page_sends_changes_nothing(cluster: World, page: Served, headers: dict[str, str]) -> None:
    reply = page.post("/jobs/first/cancel", **headers)
    assert reply.status == 403
    assert cluster.store.cancels.get("first") is None


def test_a_request_without_an_origin_changes_nothing(cluster: World, page: Served) -> None:
    assert page.request("/jobs/first/cancel", "POST", Cookie=page.cookie).status == 403
    assert cluster.store.cancels.get("first") is None


def test_to_look_changes_nothing_and_only_a_form_does(cluster: World, page: Served) -> None:
    reply = page.get("/jobs/second/cancel")
    assert reply.status == 200 and '<form method="post"' in reply.text
    assert cluster.store.cancels.get("second") is None
    assert [page.request("/jobs/second/cancel", verb, Cookie=page.cookie, Origin=page.origin).status
            for verb in ("PUT", "DELETE", "PATCH")] == [405] * 3  # fmt: skip
    assert cluster.store.cancels.get("second") is None
    reply = page.post("/jobs/second/cancel")
    assert reply.status == 303
    assert "Second will be cancelled" in page.get(reply.headers["location"]).text
    request = cluster.store.cancels.get("second")
    assert request is not None and request.value.by


def test_an_action_that_the_command_would_refuse_is_refused_with_its_words(page: Served) -> None:
    reply = page.post("/jobs/moved/cancel")
    assert reply.status == 409 and "moved has already ended: SUCCEEDED" in reply.text
    reply = page.post("/jobs/first/interrupt")
    assert reply.status == 409 and "first has no instance to be interrupted on" in reply.text


def test_a_page_without_actions_offers_none_and_takes_none(cluster: World, showing: Served) -> None:
    text = showing.until("/jobs/first", lambda text: "Details" in text)
    assert "/cancel" not in text
    assert showing.get("/jobs/first/cancel").status == 403
    assert showing.post("/jobs/first/cancel").status == 403
    assert cluster.store.cancels.get("first") is None


def test_every_answer_forbids_what_the_page_does_not_need(page: Served) -> None:
    for path in (*PATHS, "/jobs/nobody"):
        for reply in (page.get(path), page.request(path)):
            policy = reply.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy and "http" not in policy
            assert reply.headers["x-content-type-options"] == "nosniff"
            assert reply.headers["cache-control"] == "no-store"


def test_the_page_loads_nothing_from_elsewhere_and_has_nothing_inline(page: Served) -> None:
    for path in ("/", "/jobs/moved", "/fleet", "/spending", "/jobs/first/cancel"):
        text = page.get(path).text
        assert "http://" not in text.replace("http://www.w3.org/", "") and "https://" not in text
        assert " style=" not in text and " onclick=" not in text and "<style" not in text


def test_a_key_opens_once_and_the_token_again_and_again() -> None:
    from everspot_cli.ui.guard import Keys

    keys = Keys(port=1234)
    once = keys.url_once(lambda: None).partition("=")[2]
    assert keys.use_key(once) and not keys.use_key(once) and not keys.is_token(once)
    assert keys.use_key(keys.token) and keys.use_key(keys.token)
    assert not keys.use_key("") and not keys.use_key("ü")
    assert keys.token not in repr(keys) and keys.url.endswith(keys.token)


@pytest.mark.parametrize("opened", [True, False])
def test_no_other_user_can_read_the_browser_s_key(cluster: World, tmp_path: Path, opened: bool) -> None:
    """A terminal of a desktop, and a browser that stores its argument and the file that this names."""
    browser = tmp_path / "browser"
    browser.write_text(
        f'#!/bin/sh\nprintf %s "$1" > {tmp_path}/argument\n'
        f'file="${{1#file://}}"\nstat -c %a "$file" > {tmp_path}/mode\ncat "$file" > {tmp_path}/page\n'
    )
    browser.chmod(0o755)
    env = {"HOME": str(tmp_path), "DISPLAY": ":0", "BROWSER": f"{browser} %s", "EVERSPOT_CLOCK": CLOCK}
    terminal, end = pty.openpty()
    command = [sys.executable, "-m", "everspot_cli.main", "--store", cluster.url, "ui"]
    process = subprocess.Popen(command, stdout=end, stderr=subprocess.DEVNULL, text=True, env={**os.environ, **env})
    os.close(end)
    try:
        printed = ""
        while "Ctrl-C ends it" not in printed:
            printed += os.read(terminal, 4096).decode()
        address = re.search(r"http://127\.0\.0\.1:(\d+)/\S*", printed)
        assert address is not None
        ui = Served(process, {"url": address[0], "port": address[1]})
        ui.enter()  # it is served once the browser's program has ended
        argument, page = ((tmp_path / name).read_text() for name in ("argument", "page"))
        assert "token" not in argument
        key = re.search(r"/\?token=[\w-]+", page)
        assert key is not None
        assert (tmp_path / "mode").read_text() == "600\n"
        if opened:
            assert [ui.request(key[0]).status for _ in range(2)] == [303, 403]
            assert not list(tmp_path.glob("*.html"))
        assert ui.end() in (0, 130)
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    assert not list(tmp_path.glob("*.html"))
