"""Who may see the page of `everspot ui`, and act through it."""

from collections.abc import Iterator

import pytest
from told_past import tell_past
from ui_helpers import CLOCK, Served, served

from tests.cli.conftest import World


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("ui"))
    tell_past(world)
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
    for told in (page.ask(path), page.ask(f"{path}?token=guess"), page.ask(path, Cookie=f"everspot-ui-{page.port}=x")):
        assert told.status == 403 and "first" not in told.text


def test_the_token_is_left_out_of_the_address_and_kept_where_no_script_reads_it(page: Served) -> None:
    told = page.ask(page.answer["url"].removeprefix(page.origin))
    assert (told.status, told.headers["location"]) == (303, "/")
    assert {"httponly", "samesite=lax"} <= {word.strip().lower() for word in told.headers["set-cookie"].split(";")}
    assert page.get("/").status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "localhost:1", "0.0.0.0:{port}"])
def test_another_host_s_name_is_refused_though_the_token_is_right(page: Served, host: str) -> None:
    named = host.format(port=page.port)
    assert page.ask("/", host=named, Cookie=page.cookie).status == 403
    assert page.ask(page.answer["url"].removeprefix(page.origin), host=named).status == 403
    assert page.ask("/", host=f"localhost:{page.port}", Cookie=page.cookie).status == 200


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
    told = page.post("/jobs/first/cancel", **headers)
    assert told.status == 403
    assert cluster.store.cancels.get("first") is None


def test_a_request_without_an_origin_changes_nothing(cluster: World, page: Served) -> None:
    assert page.ask("/jobs/first/cancel", "POST", Cookie=page.cookie).status == 403
    assert cluster.store.cancels.get("first") is None


def test_to_look_changes_nothing_and_only_a_form_does(cluster: World, page: Served) -> None:
    told = page.get("/jobs/second/cancel")
    assert told.status == 200 and '<form method="post"' in told.text
    assert cluster.store.cancels.get("second") is None
    assert [page.ask("/jobs/second/cancel", verb, Cookie=page.cookie, Origin=page.origin).status
            for verb in ("PUT", "DELETE", "PATCH")] == [405] * 3  # fmt: skip
    assert cluster.store.cancels.get("second") is None
    told = page.post("/jobs/second/cancel")
    assert told.status == 303
    assert "Second will be cancelled" in page.get(told.headers["location"]).text
    request = cluster.store.cancels.get("second")
    assert request is not None and request.value.by


def test_an_action_that_the_command_would_refuse_is_refused_with_its_words(page: Served) -> None:
    told = page.post("/jobs/moved/cancel")
    assert told.status == 409 and "moved has already ended: SUCCEEDED" in told.text
    told = page.post("/jobs/first/interrupt")
    assert told.status == 409 and "first has no instance to be interrupted on" in told.text


def test_a_page_without_actions_offers_none_and_takes_none(cluster: World, showing: Served) -> None:
    text = showing.until("/jobs/first", lambda text: "Details" in text)
    assert "/cancel" not in text
    assert showing.get("/jobs/first/cancel").status == 403
    assert showing.post("/jobs/first/cancel").status == 403
    assert cluster.store.cancels.get("first") is None


def test_every_answer_forbids_what_the_page_does_not_need(page: Served) -> None:
    for path in (*PATHS, "/jobs/nobody"):
        for told in (page.get(path), page.ask(path)):
            policy = told.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy and "http" not in policy
            assert told.headers["x-content-type-options"] == "nosniff"
            assert told.headers["cache-control"] == "no-store"


def test_the_page_loads_nothing_from_elsewhere_and_has_nothing_inline(page: Served) -> None:
    for path in ("/", "/jobs/moved", "/fleet", "/spending", "/jobs/first/cancel"):
        text = page.get(path).text
        assert "http://" not in text.replace("http://www.w3.org/", "") and "https://" not in text
        assert " style=" not in text and " onclick=" not in text and "<style" not in text


def test_a_key_opens_once_and_the_token_again_and_again() -> None:
    from everspot_cli.ui.guard import Keys

    keys = Keys(port=1234)
    once = keys.url_once().partition("=")[2]
    assert keys.opens(once) and not keys.opens(once) and not keys.fits(once)
    assert keys.opens(keys.token) and keys.opens(keys.token)
    assert not keys.opens("") and not keys.opens("ü")
    assert keys.token not in repr(keys) and keys.url.endswith(keys.token)
