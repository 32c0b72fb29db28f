"""The forge: pull requests and their comments, on GitHub and on Gitea by the same calls. Nothing else speaks HTTP here.

A call that the forge wants to be made later is retried, as often and as long as `Patience` says; `refusals` has the
other refusals.
"""

import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.client import HTTPException
from typing import Any
from urllib.parse import quote, urlsplit

from everspot_review.refusals import (
    ForgeDenied,
    ForgeError,
    ForgeMissing,
    ForgeUnknown,
    ForgeUnreachable,
    LaterError,
    Patience,
    refusal,
)

PAGE = 100
"""Comments of a page: the most that GitHub gives. Gitea gives all of them, whatever is asked for."""

MAX_PAGES = 200
REQUEST_TIMEOUT = timedelta(seconds=30)


@dataclass(frozen=True)
class Comment:
    """One comment of a pull request or an issue. `author`: the login of who wrote it."""

    id: int
    author: str
    body: str


@dataclass(frozen=True)
class Pull:
    """One pull request.

    Attributes:
        head: The newest commit.
        source: The repository of the head, empty if it was deleted.
        base: The branch that it is merged into.
        merged: Whether it was merged.
        url: Its page.
        author: A login.
    """

    number: int
    head: str
    source: str
    base: str
    merged: bool
    title: str = ""
    url: str = ""
    author: str = ""


@dataclass(frozen=True)
class Issue:
    """One open issue, or one that is closed now."""

    number: int
    author: str
    title: str
    body: str


@dataclass(frozen=True)
class Forge:
    """One repository of a forge. `api`: the root of its REST interface; `repository`: OWNER/NAME."""

    api: str
    repository: str
    token: str = field(repr=False)
    patience: Patience = field(default_factory=Patience)

    @classmethod
    def from_environment(cls, variables: Mapping[str, str] = os.environ, patience: Patience | None = None) -> "Forge":
        """Return the forge of the running job, by the variables that every runner sets.

        Raises:
            ForgeUnknown: naming each variable that is missing or of no use.
        """
        required = ("GITHUB_API_URL", "GITHUB_REPOSITORY", "GITHUB_TOKEN")
        missing = [name for name in required if not variables.get(name)]
        if missing:
            raise ForgeUnknown(f"the forge is not known: {', '.join(missing)} not set; a workflow's step sets them")
        api, repository, token = (variables[name].strip() for name in required)
        if urlsplit(api).scheme not in ("http", "https"):
            raise ForgeUnknown("GITHUB_API_URL has to begin with https:// or http://")
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
            raise ForgeUnknown(f"GITHUB_REPOSITORY has to be OWNER/NAME, not {repository[:80]!r}")
        if not token.isprintable() or not token.isascii() or " " in token:
            raise ForgeUnknown("GITHUB_TOKEN holds characters that no token has")
        return cls(api.rstrip("/"), repository, token, patience or Patience())

    def user(self) -> str | None:
        """Return the login of this token's owner; None where the forge does not say, as for the token of a GitHub
        job."""
        try:
            user = self._json("GET", "/user")
        except (ForgeDenied, ForgeMissing):
            return None
        return str(user["login"])

    def pull(self, number: int) -> Pull:
        """Return the present state of one pull request."""
        return _pull(self._json("GET", f"{self._repo}/pulls/{number}"))

    def list_pulls(self, commit: str) -> list[Pull]:
        """Return the pull requests that a commit came from. GitHub's path is /pulls, Gitea's /pull, which gives one."""
        for path in ("pulls", "pull"):
            try:
                answer = self._json("GET", f"{self._repo}/commits/{commit}/{path}")
            except ForgeMissing:
                continue
            return [_pull(item) for item in (answer if isinstance(answer, list) else [answer])]
        return []

    def tip(self, branch: str) -> str:
        """Return the revision that a branch ends at now."""
        commit = self._json("GET", f"{self._repo}/branches/{quote(branch)}")["commit"]
        return str(commit.get("sha") or commit["id"])  # GitHub's name of it, and Gitea's

    def comments(self, number: int) -> list[Comment]:
        """Return all comments of a pull request or an issue, over all pages."""
        return [
            Comment(int(item["id"]), _login(item), str(item.get("body") or ""))
            for item in self._all(f"{self._repo}/issues/{number}/comments?", "id")
        ]

    def comment(self, number: int, body: str) -> Comment:
        """Write a new comment. Made once: after `ForgeUnreachable`, look whether it is there."""
        created = self._json("POST", f"{self._repo}/issues/{number}/comments", {"body": body}, once=True)
        return Comment(int(created["id"]), _login(created), str(created.get("body") or ""))

    def edit(self, comment: int, body: str) -> None:
        """Give a comment another text."""
        self._json("PATCH", f"{self._repo}/issues/comments/{comment}", {"body": body})

    def open_issues(self) -> list[Issue]:
        """Return the issues that are open; pull requests, which are issues to the forge, are left out."""
        issues = self._all(f"{self._repo}/issues?state=open&type=issues&", "number")
        return [_issue(item) for item in issues if not item.get("pull_request")]

    def open_issue(self, title: str, body: str) -> Issue:
        """Open an issue. Made once, as `comment` is."""
        return _issue(self._json("POST", f"{self._repo}/issues", {"title": title, "body": body}, once=True))

    def other_runs(self, run: int, until: datetime) -> list[int]:
        """Return the runs of this repository, of whatever workflow, that had begun at `until` and have not ended, `run`
        left out. One that does not say when it began counts.

        Raises:
            ForgeError: also if more than PAGE runs have one status.
        """
        runs: set[int] = set()
        for status in ("in_progress", "queued", "waiting"):
            page = self._json("GET", f"{self._repo}/actions/runs?status={status}&per_page={PAGE}")
            if int(page.get("total_count") or 0) > len(page["workflow_runs"]):
                raise ForgeError(f"more than {PAGE} runs are {status}")
            runs |= {int(item["id"]) for item in page["workflow_runs"] if _began(item) <= until}
        return sorted(runs - {run})

    def edit_issue(self, number: int, **fields: str) -> None:
        """Change an issue: `title`, `body`, or `state` ("open", "closed")."""
        self._json("PATCH", f"{self._repo}/issues/{number}", fields)

    @property
    def _repo(self) -> str:
        return f"/repos/{self.repository}"

    def _all(self, path: str, key: str) -> Iterator[dict[str, Any]]:
        """Yield each item of a list, once. The forge says by its header Link that there is more; one that has no such
        header is asked until a page holds nothing new."""
        listed: set[int] = set()
        for page in range(1, MAX_PAGES + 1):
            batch, link = self._call("GET", f"{path}per_page={PAGE}&limit={PAGE}&page={page}")
            new = [item for item in batch if int(item[key]) not in listed]
            listed |= {int(item[key]) for item in new}
            yield from new
            if not new or (link and 'rel="next"' not in link):
                return
        raise ForgeError(f"{path.partition('?')[0]} has more than {MAX_PAGES} pages")

    def _json(self, method: str, path: str, body: object = None, *, once: bool = False) -> Any:
        return self._call(method, path, body, once=once)[0]

    def _call(self, method: str, path: str, body: object = None, *, once: bool = False) -> tuple[Any, str]:
        """Return the answer to a call, and its header Link.

        Raises:
            ForgeError: as the module says.
        """
        patience_left, sleep = self.patience.waits.total_seconds(), self.patience.sleep
        for attempt in range(1, self.patience.tries + 1):
            try:
                return self._once(method, path, body)
            except LaterError as later:
                wait = later.seconds if later.seconds is not None else float(2 ** (attempt - 1))
                # A write that may have been done is not done again: the one who asked looks first.
                done = attempt == self.patience.tries or wait > patience_left or (once and later.unknown)
                if done:
                    raise later.error from None
                patience_left -= wait
                sleep(wait)
        raise AssertionError("a call has at least one try")

    def _once(self, method: str, path: str, body: object) -> tuple[Any, str]:
        request = urllib.request.Request(
            self.api + path,
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={
                "Authorization": f"Bearer {self.token}",
                "Accept": "application/vnd.github+json",
                "Content-Type": "application/json",
                "User-Agent": "everspot",
            },
        )
        call = f"{method} {path.partition('?')[0]}"
        try:
            with _OPENER.open(request, timeout=REQUEST_TIMEOUT.total_seconds()) as answer:
                return json.loads(answer.read() or b"null"), str(answer.headers.get("Link") or "")
        except urllib.error.HTTPError as error:
            with error:
                text = self._redact(_message(error.read(4096)))
                raise refusal(call, error.code, error.headers, text, self.patience.now()) from None
        except (OSError, HTTPException, ValueError) as error:  # an answer that was cut off, or is no JSON
            unreachable = ForgeUnreachable(f"{call}: no answer from the forge: {self._redact(str(error))}")
            raise LaterError(unreachable, None, unknown=True) from None

    def _redact(self, text: str) -> str:
        """Words of the forge for people, without the token."""
        return " ".join(text.replace(self.token, "[token]").split())[:300]


class _SameOrigin(urllib.request.HTTPRedirectHandler):
    """Follows redirections, for example of a renamed repository, only to the same origin, because no other origin may
    get the token."""

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: str) -> Any:
        if urlsplit(newurl)[:2] != urlsplit(req.full_url)[:2]:
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_OPENER = urllib.request.build_opener(_SameOrigin)


def _login(item: Mapping[str, Any]) -> str:
    return str((item.get("user") or {}).get("login") or "")


def _began(item: Mapping[str, Any]) -> datetime:
    """Return when a run began; long ago, if it does not say."""
    try:
        return datetime.fromisoformat(str(item["run_started_at"]))
    except (KeyError, ValueError):
        return datetime.min.replace(tzinfo=UTC)


def _issue(item: Mapping[str, Any]) -> Issue:
    return Issue(int(item["number"]), _login(item), str(item.get("title") or ""), str(item.get("body") or ""))


def _pull(item: Mapping[str, Any]) -> Pull:
    head, base = item.get("head") or {}, item.get("base") or {}
    source = str((head.get("repo") or {}).get("full_name") or "")
    merged = bool(item.get("merged") or item.get("merged_at"))
    title, url = (str(item.get(name) or "") for name in ("title", "html_url"))
    number, sha, into = int(item["number"]), str(head.get("sha") or ""), str(base.get("ref") or "")
    return Pull(number, sha, source, into, merged, title, url, _login(item))


def _message(text: bytes) -> str:
    try:
        document = json.loads(text)
    except ValueError:
        return text.decode(errors="replace")
    return str(document.get("message", document)) if isinstance(document, dict) else str(document)
