"""The job's identity tokens: one for each cloud, renewed before each run of the engine, and passed to no other
program."""

import dataclasses
import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from desk import UPDATE, Desk
from everspot_review.engine import Engine
from everspot_review.identity import IdentityError, renew
from everspot_review.previewing import Revisions, preview

BEARER = "the-runner-s-own-word"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        right = self.headers["Authorization"] == f"bearer {BEARER}" and query.get("api-version") == ["2.0"]
        self.server.audiences.append(query["audience"][0])  # type: ignore[attr-defined]
        if query["audience"] == ["moved"]:
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/token?audience=other")  # type: ignore[attr-defined]
            self.end_headers()
            return
        if query["audience"] == ["cut"]:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b'{"value": ')
            return
        self.send_response(200 if right else 401)
        self.end_headers()
        self.wfile.write(json.dumps({"value": f"token {len(self.server.audiences)}"}).encode())  # type: ignore[attr-defined]

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[tuple[dict[str, str], list[str]]]:
    """The variables of a job that has identity tokens, and the audiences that it was asked for."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    audiences: list[str] = []
    server.audiences = audiences  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield (
        {
            "EVERSPOT_ID_TOKENS": f"{tmp_path}/a=sts.amazonaws.com {tmp_path}/g=//iam.googleapis.com/projects/1/p",
            "ACTIONS_ID_TOKEN_REQUEST_URL": f"http://127.0.0.1:{server.server_port}/token?api-version=2.0",
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": BEARER,
        },
        audiences,
    )
    server.shutdown()
    thread.join()
    server.server_close()


def test_each_cloud_has_a_token_of_its_own_that_only_this_user_reads(
    runner: tuple[dict[str, str], list[str]], tmp_path: Path
) -> None:
    variables, audiences = runner
    assert renew(variables)
    assert audiences == ["sts.amazonaws.com", "//iam.googleapis.com/projects/1/p"]
    assert [(tmp_path / name).read_text() for name in "ag"] == ["token 1", "token 2"]
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in "ag"} == {0o600}
    assert not renew({})


def test_tokens_are_renewed_before_each_run(
    runner: tuple[dict[str, str], list[str]], desk: Desk, tmp_path: Path
) -> None:
    desk.answers("preview", "dev", [UPDATE])
    engine = Engine.find(desk.root, variables={**desk.env, **runner[0]})
    preview(engine, "dev", Revisions())
    first = (tmp_path / "a").read_text()
    preview(engine, "dev", Revisions())
    assert (tmp_path / "a").read_text() != first
    assert all("ACTIONS_ID_TOKEN_REQUEST_TOKEN" not in call["env"] for call in desk.calls())


def test_tokens_are_renewed_while_a_run_lasts(
    runner: tuple[dict[str, str], list[str]], desk: Desk, tmp_path: Path
) -> None:
    engine = Engine.find(desk.root, variables={**desk.env, **runner[0]})
    often = dataclasses.replace(engine, ends_in=timedelta(0), renews_in=timedelta(milliseconds=10))
    (desk.engine / "up.dev.waits").touch()  # ends once there was a token beside the first
    done = often.up("dev", tmp_path / "log", timedelta(minutes=2))
    assert (done.code, done.late) == (0, False)
    assert len(runner[1]) > 2


def test_a_job_without_the_permission_is_told_so_without_a_word_of_a_token(
    runner: tuple[dict[str, str], list[str]],
) -> None:
    variables, _ = runner
    with pytest.raises(IdentityError, match="id-token: write"):
        renew({**variables, "ACTIONS_ID_TOKEN_REQUEST_URL": ""})
    with pytest.raises(IdentityError, match="cannot be had: HTTPError") as refusal:
        renew({**variables, "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "wrong-word"})
    assert "wrong-word" not in str(refusal.value)
    with pytest.raises(IdentityError, match="FILE=AUDIENCE"):
        renew({**variables, "EVERSPOT_ID_TOKENS": "nothing"})


def test_the_requests_token_goes_to_the_runner_alone(runner: tuple[dict[str, str], list[str]], tmp_path: Path) -> None:
    variables, audiences = runner
    with pytest.raises(IdentityError, match="cannot be had: HTTPError"):
        renew({**variables, "EVERSPOT_ID_TOKENS": f"{tmp_path}/a=moved"})
    assert audiences == ["moved"]
    with pytest.raises(IdentityError, match="has to begin with https://"):
        renew({**variables, "ACTIONS_ID_TOKEN_REQUEST_URL": "http://runner.example.com/token"})


def test_an_answer_that_is_cut_off_is_no_token(runner: tuple[dict[str, str], list[str]], tmp_path: Path) -> None:
    with pytest.raises(IdentityError, match="cannot be had: IncompleteRead"):
        renew({**runner[0], "EVERSPOT_ID_TOKENS": f"{tmp_path}/a=cut"})
