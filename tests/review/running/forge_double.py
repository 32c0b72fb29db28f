"""A forge in this process, with the limits that GitHub has and Gitea has not.

Sources: docs.github.com/en/rest, "Issue comments" (per_page: 30, at most 100; header Link), "Rate limits for the REST
API" (403 or 429, Retry-After, X-RateLimit-*), "Troubleshooting" (a token that may not: 403 Resource not accessible by
integration); the longest body, 65,536 characters, is what the interface says in its 422.
"""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

LONGEST = 65_536
TOKEN = "ghs_0123456789-token-of-the-double"
BOT = "github-actions[bot]"
RUN = 4711
TITLE = "More\nof\u202e it"


@dataclass
class Answer:
    code: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


class Double(ThreadingHTTPServer):
    """One repository, boss/fleets. `gitea`: behaves like Gitea: all comments on one page, no header Link; /pull,
    /user."""

    daemon_threads = True

    def __init__(self, head: str = "a" * 40, *, gitea: bool = False, read_only: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.head, self.gitea, self.read_only = head, gitea, read_only
        self.merged_as: dict[str, int] = {}
        self.heads: dict[int, str] = {}
        """Head revisions of pull requests that differ from `head`."""
        self.bases: dict[int, str] = {}
        self.tip = ""
        """Where main ends; at `head` while it is empty."""
        self.comments: list[dict[str, Any]] = []
        self.issues: list[dict[str, Any]] = []
        self.runs: list[dict[str, Any]] = []
        self.calls: list[tuple[str, str, int]] = []
        self.faults: list[Answer | Callable[[_Handler], None]] = []
        """The failures of the next calls, in order."""
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @classmethod
    @contextmanager
    def serve(cls, env: dict[str, str]) -> Iterator["Double"]:
        """A forge that is there for a while, named in an environment as a forge's runner names its own."""
        server = cls()
        env |= {"GITHUB_API_URL": server.url, "GITHUB_REPOSITORY": "boss/fleets", "GITHUB_TOKEN": TOKEN}
        try:
            yield server
        finally:
            server.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def add_comment(self, author: str, body: str, number: int = 7) -> dict[str, Any]:
        item = {"id": 1000 + len(self.comments), "body": body, "user": {"login": author}, "issue": number}
        self.comments.append(item)
        return item

    def writes(self) -> list[tuple[str, str, int]]:
        return [call for call in self.calls if call[0] != "GET"]

    def pull(self, number: int) -> dict[str, Any]:
        repo = {"full_name": "boss/fleets"}
        merged = number in self.merged_as.values()
        return {
            "number": number, "merged_at": "2026-03-01T12:00:00Z" if merged else None,
            "head": {"sha": self.heads.get(number, self.head), "ref": "more", "repo": repo},
            "base": {"ref": self.bases.get(number, "main"), "repo": repo},
            "title": TITLE, "html_url": f"{self.url}/boss/fleets/pull/{number}", "user": {"login": "ann"},
        }  # fmt: skip

    def answer(self, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> Answer:
        if len(str(body.get("body", ""))) > LONGEST and not self.gitea:
            return Answer(422, {"message": f"Validation Failed: Body is too long (maximum is {LONGEST} characters)"})
        if method != "GET" and self.read_only:
            return Answer(403, {"message": "Resource not accessible by integration"})
        if path == "/user":
            return Answer(200, {"login": BOT}) if self.gitea else Answer(403, {"message": "Resource not accessible"})
        for pattern, name in _ROUTES:
            if (match := re.fullmatch(rf"/repos/boss/fleets{pattern}", path)) is not None:
                answered: Answer = getattr(self, name)(method, query, body, *match.groups())
                return answered
        return Answer(404, {"message": "Not Found"})

    def _pull(self, method: str, query: Any, body: Any, number: str) -> Answer:
        return Answer(200, self.pull(int(number)))

    def _list_pulls(self, method: str, query: Any, body: Any, commit: str, path: str) -> Answer:
        pulls = [self.pull(self.merged_as[commit])] if commit in self.merged_as else []
        if self.gitea:
            return Answer(200, pulls[0]) if path == "pull" and pulls else Answer(404, {"message": "Not Found"})
        return Answer(200, pulls) if path == "pulls" else Answer(404, {"message": "Not Found"})

    def _comments(self, method: str, query: dict[str, str], body: Any, number: str) -> Answer:
        if method == "POST":
            return Answer(201, self.add_comment(BOT, body["body"], int(number)))
        return self._paged([item for item in self.comments if item["issue"] == int(number)], query)

    def _branch(self, method: str, query: Any, body: Any, name: str) -> Answer:
        return Answer(200, {"name": name, "commit": {("id" if self.gitea else "sha"): self.tip or self.head}})

    def _comment(self, method: str, query: Any, body: Any, number: str) -> Answer:
        for item in self.comments:
            if item["id"] == int(number):
                item["body"] = body["body"]
                return Answer(200, item)
        return Answer(404, {"message": "Not Found"})

    def _issues(self, method: str, query: dict[str, str], body: Any) -> Answer:
        if method == "POST":
            item = {"number": 50 + len(self.issues), "user": {"login": BOT}, "state": "open", **body}
            self.issues.append(item)
            return Answer(201, item)
        return self._paged([item for item in self.issues if item["state"] == query.get("state", "open")], query)

    def _issue(self, method: str, query: Any, body: Any, number: str) -> Answer:
        (item,) = [item for item in self.issues if item["number"] == int(number)]
        item.update(body)
        return Answer(200, item)

    def _runs(self, method: str, query: dict[str, str], body: Any) -> Answer:
        runs = [run for run in self.runs if run["status"] == query.get("status")]
        return Answer(200, {"total_count": len(runs), "workflow_runs": runs[: min(int(query["per_page"]), 100)]})

    def _run(self, method: str, query: Any, body: Any, number: str) -> Answer:
        return Answer(200, {"id": int(number), "path": ".github/workflows/apply.yml", "status": "in_progress"})

    def _paged(self, items: list[dict[str, Any]], query: dict[str, str]) -> Answer:
        if self.gitea:
            return Answer(200, items)
        size, page = min(int(query.get("per_page", 30)), 100), int(query.get("page", 1))
        later = items[page * size :]
        headers = {"Link": '<https://api.example/more>; rel="next"' if later else '<https://api.example>; rel="first"'}
        return Answer(200, items[(page - 1) * size : page * size], headers if len(items) > size else {})


_ROUTES = [
    (r"/pulls/(\d+)", "_pull"),
    (r"/commits/(\w+)/(pulls?)", "_list_pulls"),
    (r"/branches/(\w+)", "_branch"),
    (r"/issues/(\d+)/comments", "_comments"),
    (r"/issues/comments/(\d+)", "_comment"),
    (r"/issues", "_issues"),
    (r"/issues/(\d+)", "_issue"),
    (r"/actions/runs", "_runs"),
    (r"/actions/runs/(\d+)", "_run"),
]


class _Handler(BaseHTTPRequestHandler):
    server: Double

    def _do(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        url = urlsplit(self.path)
        if self.server.faults:
            fault = self.server.faults.pop(0)
            if not isinstance(fault, Answer):
                self.server.calls.append((self.command, self.path, 0))
                fault(self)
                return
            answer = fault
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            answer = Answer(401, {"message": "Bad credentials"})
        else:
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            answer = self.server.answer(self.command, url.path, query, body)
        self.reply(answer)

    def reply(self, answer: Answer) -> None:
        self.server.calls.append((self.command, self.path, answer.code))
        data = json.dumps(answer.body).encode()
        self.send_response(answer.code)
        for name, value in {"Content-Length": str(len(data)), **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = _do

    def log_message(self, *_: object) -> None:
        pass
