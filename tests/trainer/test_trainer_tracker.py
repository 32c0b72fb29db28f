"""The tracker's thread: what waits is bounded, what fails is tried again, and nobody waits for it."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from everspot_core.jobs.tracking import Spending, Tracking
from everspot_store import SystemClock
from everspot_train import run_tracker
from everspot_train.mlflow_client import MlflowClient, TrackerUnavailable
from everspot_train.run_tracker import RunStatus, RunTracker
from everspot_train.rundir import RunContext
from trainer_post import Post


def refused_key(key: str) -> bool:
    """As `mlflow/utils/validation.py` of releases that take no colon; `refused` stands for what no client knows."""
    return len(key) > 250 or re.fullmatch(r"[/\w.\- ]+", key) is None or key == "refused"


class Server:
    """Answers as it is told to: a status and a document by path, with MLflow's limits of a request. `calls`: path,
    headers and document of each. `accepted`: the batches that were logged."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.accepted: list[dict[str, Any]] = []
        self.answers: dict[str, tuple[int, dict[str, Any]]] = {
            "experiments/get-by-name": (200, {"experiment": {"experiment_id": "1"}}),
            "runs/search": (200, {"runs": [{"info": {"run_id": "r"}}]}),
        }
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                path = self.path.partition("?")[0].removeprefix("/api/2.0/mlflow/")
                outer.calls.append((path, dict(self.headers), json.loads(self.rfile.read(length) or b"{}")))
                status, document = outer.answers.get(path, (200, {}))
                values = [outer.calls[-1][2].get(kind, []) for kind in ("metrics", "params", "tags")]
                if sum(map(len, values)) > 1000 or any(refused_key(pair["key"]) for pairs in values for pair in pairs):
                    status, document = 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": "no"}
                elif path == "runs/log-batch" and status == 200:
                    outer.accepted.append(outer.calls[-1][2])
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", document["location"])
                self.end_headers()
                self.wfile.write(json.dumps(document).encode())

            do_GET = do_POST

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def batches(self) -> list[dict[str, Any]]:
        return [document for path, _, document in self.calls if path == "runs/log-batch"]


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


@pytest.fixture
def tracker(server: Server, post: Callable[..., Post], monkeypatch: pytest.MonkeyPatch) -> Iterator[RunTracker]:
    monkeypatch.setattr(run_tracker, "SEND_EVERY", 0.02)
    context = post().rundir.read(RunContext)
    assert context is not None
    environment = {"MLFLOW_TRACKING_TOKEN": "a-token"}
    tracker = RunTracker(context, Tracking(mlflow=server.url), SystemClock(), environment)
    yield tracker
    tracker.close(RunStatus.FINISHED, 0)


def wait_for(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_metrics_wait_for_a_server_that_fails_up_to_a_limit(
    server: Server, tracker: RunTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_tracker, "MOST_WAITING", 10)
    monkeypatch.setattr(run_tracker, "LONGEST_PAUSE", 0.1)
    server.answers["runs/log-batch"] = (503, {})
    for step in range(25):
        tracker.add(step, {"loss": step / 2, "broken": float("nan")})
    wait_for(lambda: len(server.batches()) > 3)
    server.answers["runs/log-batch"] = (200, {})
    tracker.close(RunStatus.FINISHED, 25)
    sent = server.batches()[-1]["metrics"]
    assert [(metric["key"], metric["value"], metric["step"]) for metric in sent] == [
        ("loss", step / 2, step) for step in range(15, 25)
    ]
    assert [(d["run_id"], d["status"]) for path, _, d in server.calls if path == "runs/update"][-1] == ("r", "FINISHED")
    assert "runs/create" not in {path for path, _, _ in server.calls}


def test_a_server_that_refuses_is_asked_no_more(server: Server, tracker: RunTracker) -> None:
    server.answers["runs/log-batch"] = (403, {"error_code": "PERMISSION_DENIED", "message": "no"})
    tracker.add(1, {"loss": 1.0})
    tracker._thread.join(60)
    assert not tracker._thread.is_alive() and len(server.batches()) == 1


def test_closing_does_not_wait_longer_than_it_may(
    server: Server, tracker: RunTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_tracker, "LONGEST_PAUSE", 0.1)
    server.answers["runs/search"] = (503, {})
    tracker.add(1, {"loss": 1.0})
    began = time.monotonic()
    tracker.close(RunStatus.SCHEDULED, 1, hurry=True)
    assert tracker._thread.is_alive()  # it was left behind
    assert time.monotonic() - began < run_tracker.CLOSE_SECONDS
    server.answers["runs/search"] = (403, {"error_code": "PERMISSION_DENIED"})  # which ends the thread


def test_credentials_are_sent_to_the_server_and_not_to_where_it_redirects(server: Server) -> None:
    other = Server()
    server.answers["runs/update"] = (307, {"location": f"{other.url}/api/2.0/mlflow/runs/update"})
    client = MlflowClient(server.url, {"MLFLOW_TRACKING_TOKEN": "a-token"})
    with pytest.raises(TrackerUnavailable):
        client.update("r", "RUNNING", None)
    assert server.calls[0][1]["Authorization"] == "Bearer a-token" and other.calls == []
    other.http.shutdown()
    other.http.server_close()
    plain = MlflowClient("http://mlflow.example.com", {"MLFLOW_TRACKING_TOKEN": "a-token"})
    assert "Authorization" not in plain._headers


def test_an_answer_that_is_no_answer_counts_as_none(server: Server) -> None:
    server.answers["runs/search"] = (200, [])  # type: ignore[assignment]
    with pytest.raises(TrackerUnavailable):
        MlflowClient(server.url, {}).find_run("1", "everspot.job", "j")


def test_a_full_queue_is_sent_in_requests_that_have_room_for_the_tags(
    server: Server, tracker: RunTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_tracker, "LONGEST_PAUSE", 0.1)
    server.answers["runs/search"] = (503, {})
    tracker.begin(0)
    for step in range(250):
        tracker.add(step, {f"figure{n}": float(step) for n in range(10)})
    server.answers["runs/search"] = (200, {"runs": [{"info": {"run_id": "r"}}]})
    tracker.close(RunStatus.FINISHED, 250)
    assert sum(m["key"].startswith("figure") for batch in server.accepted for m in batch["metrics"]) == 2500
    tags = {tag["key"] for batch in server.accepted for tag in batch["tags"]}
    assert tags >= {"everspot.attempt.1", "everspot.interruptions"}
    assert server.accepted == server.batches()


@pytest.mark.parametrize("name", ["eval/" + "x" * 300, "acc:top1", "refused"])
def test_a_name_that_mlflow_refuses_takes_no_other_metric_with_it(
    server: Server, tracker: RunTracker, name: str
) -> None:
    tracker.begin(0)
    for step in range(40):
        tracker.add(step, {"loss": 1.0, name: 2.0, "accuracy": 3.0})
    tracker.close(RunStatus.FINISHED, 40)
    sent = [(m["key"], m["step"]) for batch in server.accepted for m in batch["metrics"]]
    assert [step for key, step in sent if key == "loss"] == list(range(40))
    assert [step for key, step in sent if key == "accuracy"] == list(range(40))
    assert sum(key not in ("loss", "accuracy", "everspot/interruptions") for key, _ in sent) == 40 * (name != "refused")
    assert {tag["key"] for batch in server.accepted for tag in batch["tags"]} >= {"everspot.attempt.1"}


@pytest.mark.parametrize("status", [302, 401, 403, 404])
def test_a_page_of_a_proxy_ends_no_tracking(
    server: Server, tracker: RunTracker, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """Only an answer with an error code is MLflow's."""
    monkeypatch.setattr(run_tracker, "LONGEST_PAUSE", 0.1)
    server.answers["runs/log-batch"] = (status, {"location": "https://login.example.com"})
    tracker.add(1, {"loss": 1.0})
    wait_for(lambda: len(server.batches()) > 2)
    server.answers["runs/log-batch"] = (200, {})
    tracker.close(RunStatus.FINISHED, 1)
    assert [m["key"] for batch in server.accepted for m in batch["metrics"]] == ["loss"]


def test_jobs_of_two_clusters_that_have_the_same_id_are_two_runs(
    server: Server, post: Callable[..., Post], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the trials of one sweep file have in each cluster. The attempts of a job are one run."""
    monkeypatch.setattr(run_tracker, "SEND_EVERY", 0.02)
    server.answers |= {
        "runs/search": (200, {}),
        "runs/create": (200, {"run": {"info": {"run_id": "r"}}}),
    }
    context = post().rundir.read(RunContext)
    assert context is not None
    at = context.submission.submitted_at
    for submitted_at in (at, at, at + timedelta(days=1)):
        submission = context.submission.model_copy(update={"submitted_at": submitted_at})
        attempt = context.model_copy(update={"submission": submission})
        tracker = RunTracker(attempt, Tracking(mlflow=server.url), SystemClock(), {})
        tracker.begin(0)
        tracker.close(RunStatus.FINISHED, 0)
    created = [{t["key"]: t["value"] for t in d["tags"]} for path, _, d in server.calls if path == "runs/create"]
    assert {tags["everspot.job"] for tags in created} == {context.job_id}
    first, again, other = (d["filter"] for path, _, d in server.calls if path == "runs/search")
    assert first == again != other
    assert [tags["everspot.run"] in f for tags, f in zip(created, (first, again, other), strict=True)] == [True] * 3


def test_what_an_attempt_has_cost_is_not_sent_before_its_first_step_is_known(
    server: Server, post: Callable[..., Post], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Imports and a restore take minutes: the cost of a resumed attempt would stand at step 0."""
    monkeypatch.setattr(run_tracker, "SEND_EVERY", 0.02)
    context = post().rundir.read(RunContext)
    clock = SystemClock()
    spending = Spending(dollars=1.0, gpu_hours=0.0, usd_per_hour=0.1, at=clock.now())
    context = context.model_copy(update={"spending": spending})
    tracker = RunTracker(context, Tracking(mlflow=server.url), clock, {})
    wait_for(lambda: [path for path, _, _ in server.calls].count("runs/update") > 0)
    tracker.begin(12)
    tracker.close(RunStatus.FINISHED, 14)
    costs = [m for batch in server.batches() for m in batch.get("metrics", []) if m["key"] == "everspot/dollars"]
    assert costs and {metric["step"] for metric in costs} <= {12, 14}
