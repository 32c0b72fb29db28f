"""What the people of the review demonstration do on the forge, by its REST API: repositories, pull requests, runs,
issues."""

import base64
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import requests

from everspot_local.demo.world import DemoError

T = TypeVar("T")
LOOK = 0.5
"""Seconds between two looks."""
RUNS_IN = timedelta(minutes=20)
ENDED, WORKS = "completed", "in_progress"


class ForgeRefused(DemoError):
    """The forge refused a request. `status`: of its answer."""

    def __init__(self, request: str, status: int, text: str) -> None:
        super().__init__(f"{request}: {status} {text[:500]}")
        self.status = status


@dataclass(frozen=True)
class Run:
    """A finished run of a workflow. `log`: what its jobs printed, by their names."""

    id: int
    good: bool
    jobs: dict[str, str]
    log: str


@dataclass(frozen=True)
class Hub:
    """The forge as the user of one token sees it. `repo`: OWNER/NAME."""

    url: str
    token: str = field(repr=False)
    repo: str = ""

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Make one request with JSON; return the answer's JSON or text.

        Raises:
            ForgeRefused: for any answer but 2xx.
        """
        headers = {"Authorization": f"token {self.token}"}
        answer = requests.request(method, f"{self.url}/api/v1{path}", json=body, headers=headers, timeout=60)
        if not answer.ok:
            raise ForgeRefused(f"{method} {path}", answer.status_code, answer.text)
        is_json = answer.headers.get("Content-Type", "").startswith("application/json") and answer.text.strip()
        return answer.json() if is_json else answer.text

    def repo_call(self, method: str, path: str, body: Any = None) -> Any:
        """Make one request about the repository."""
        return self.call(method, f"/repos/{self.repo}{path}", body)

    def serve_action(self, name: str, folder: Path) -> None:
        """Publish a folder as the action `actions/NAME@v4`, which this forge cannot download."""
        self.call("POST", "/orgs/actions/repos", {"name": name, "default_branch": "main"})
        content = base64.b64encode((folder / "action.yml").read_bytes()).decode()
        files = [{"operation": "create", "path": "action.yml", "content": content}]
        self.call("POST", f"/repos/actions/{name}/contents", {"branch": "main", "message": name, "files": files})
        self.call("POST", f"/repos/actions/{name}/tags", {"tag_name": "v4", "target": "main"})

    def open_pull(self, branch: str, title: str) -> int:
        """Open a pull request into main; returns its number."""
        return int(self.repo_call("POST", "/pulls", {"head": branch, "base": "main", "title": title})["number"])

    def merge(self, number: int) -> None:
        """Merge a pull request into one commit.

        Raises:
            ForgeRefused: if the forge does not let it be merged.
        """
        self.repo_call("POST", f"/pulls/{number}/merge", {"Do": "squash"})

    def comments(self, number: int) -> list[dict[str, Any]]:
        """Return all comments of a pull request or an issue."""
        return list(self.repo_call("GET", f"/issues/{number}/comments"))

    def issues(self, state: str) -> list[dict[str, Any]]:
        """Return the issues in a state, `open` or `closed`."""
        return list(self.repo_call("GET", f"/issues?type=issues&state={state}"))

    def wait_for_push(self, branch: str, revision: str) -> None:
        """Wait until the forge has processed a push, which takes it a second or two."""
        pushed = (branch, revision)
        wait(lambda: pushed in self.branches().items(), f"the branch {branch} at {revision[:8]}")

    def branches(self) -> dict[str, str]:
        """Return the revision of each branch."""
        return {str(each["name"]): str(each["commit"]["id"]) for each in self.repo_call("GET", "/branches") or ()}

    def fork(self) -> "Hub":
        """Fork the repository as the user of this token, who may read it; returns the fork."""
        fork = self.repo_call("POST", "/forks", {})
        return Hub(self.url, self.token, str(fork["full_name"]))

    def let_run(self, name: str, password: str, revision: str) -> None:
        """Let the workflow run that a stranger's revision asks for, on its page, as a user who may write."""
        with requests.Session() as page:
            page.post(f"{self.url}/user/login", {"user_name": name, "password": password}, timeout=60)
            run = wait(lambda: self._runs("pull_request", revision), f"the run of {revision[:8]}")[0]["id"]
            answer = page.post(f"{self.url}/{self.repo}/actions/runs/{run}/approve", timeout=60)
        if not answer.ok:
            raise ForgeRefused(f"letting run {run}", answer.status_code, answer.text)

    def begun(self, event: str, revision: str) -> None:
        """Wait until a job of a run is in progress."""

        def jobs() -> bool:
            runs = self._runs(event, revision)
            return any(job["status"] == WORKS for each in runs for job in self._jobs(each["id"]))

        wait(jobs, f"a job of {revision[:8]}")

    def ran(self, event: str, revision: str = "", after: int = 0) -> Run:
        """Return the newest run of an event, once it has ended. `revision`: of the run; `after`: id of an older run."""

        def ended() -> list[Any]:
            runs = [each for each in self._runs(event, revision) if each["id"] > after]
            return runs if runs and all(each["status"] == ENDED for each in runs) else []

        newest = max(wait(ended, f"the {event} run of {revision[:8]}", RUNS_IN), key=lambda each: int(each["id"]))
        jobs = self._jobs(newest["id"])
        ends = {str(job["name"]): str(job["conclusion"]) for job in jobs}
        printed = [f"--- {job['name']}\n{self._printed(job)}" for job in jobs if job["conclusion"] != "skipped"]
        return Run(int(newest["id"]), newest["conclusion"] == "success", ends, "\n".join(printed))

    def _runs(self, event: str, revision: str) -> list[dict[str, Any]]:
        """Return the runs of an event, of a revision unless that is empty."""
        runs = self.repo_call("GET", "/actions/runs?limit=50")["workflow_runs"]
        return [each for each in runs if each["event"] == event and revision in ("", each["head_sha"])]

    def _jobs(self, run: int) -> list[dict[str, Any]]:
        return list(self.repo_call("GET", f"/actions/runs/{run}/jobs")["jobs"])

    def _printed(self, job: dict[str, Any]) -> str:
        """Return the output of a job: nothing, if it was called off before it began."""
        try:
            return str(self.repo_call("GET", f"/actions/jobs/{job['id']}/logs"))
        except ForgeRefused as refused:
            if refused.status != 404:
                raise
            return ""


def wait(look: Callable[[], T], subject: str, limit: timedelta = timedelta(minutes=2)) -> T:
    """Poll until there is an answer.

    Raises:
        DemoError: if there is nothing within the limit.
    """
    until = time.monotonic() + limit.total_seconds()
    while time.monotonic() < until:
        try:
            if answer := look():
                return answer
        except ForgeRefused as refused:
            if refused.status != 404:
                raise
        time.sleep(LOOK)
    raise DemoError(f"waited {limit} for {subject}")
