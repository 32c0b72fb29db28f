"""The web UI's routes and their handlers."""

import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from typing import Any

from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import JobState
from everspot_store import StoreError
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from everspot_cli.errors import CliError, of_store
from everspot_cli.requests import Requested, ask_cancel, ask_interrupt
from everspot_cli.rows import MEANING_OF_STATUS
from everspot_cli.session import Session
from everspot_cli.ui.panels import changes, curves, fleet, job, jobs, spending
from everspot_cli.ui.reading import Reading
from everspot_cli.ui.sources import JobRead, Sources


@dataclass(frozen=True)
class Action:
    """One action on a job. `label`: of its button; `question` and `meaning`: on the page that asks for
    confirmation; `command`: the same in a terminal."""

    label: str
    question: str
    meaning: str
    command: str
    send: Callable[[Session, JobSubmission], Requested]


ACTIONS: dict[str, Action] = {
    "cancel": Action(
        label="Cancel the job",
        question="Cancel this job?",
        meaning="It ends at its next step, and its instance is free for others immediately. What it has checkpointed "
        "stays: a retry goes on from there. If it belongs to a series, the series ends, too.",
        command="everspot cancel",
        send=ask_cancel,
    ),
    "interrupt": Action(
        label="Interrupt it as a drill",
        question="Interrupt this job as a drill?",
        meaning="It checkpoints and gives its instance back, as it would at a notice of the cloud, and resumes as soon "
        "as an instance is free.",
        command="everspot cluster interrupt",
        send=lambda session, submission: ask_interrupt(session, submission, "asked for on the page"),
    ),
}
"""The actions of the web UI by the last segment of their path. Each is an action of the command, too."""

PART = "x-everspot-part"
"""Header of a request for the part of a page that is kept up to date."""
KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
ASSETS = {
    "report.css": ("report", "page.css"),  # the look of the report
    **{name: ("ui", "assets", name) for name in ("ui.css", "ui.js", "idiomorph.min.js", "icon.svg")},
}
REMEMBERED = 32
"""The most results of actions that are stored until a page shows them."""


class Pages:
    """The answers. `acting`: whether actions are offered and carried out."""

    def __init__(self, sources: Sources, *, acting: bool) -> None:
        self._sources, self._session, self._acting = sources, sources.session, acting
        self._cluster = sources.session.manifest.cluster
        self._messages: OrderedDict[str, str] = OrderedDict()
        self._templates = Environment(
            loader=PackageLoader("everspot_cli", "ui/templates"), autoescape=True, undefined=StrictUndefined,
            trim_blocks=True, lstrip_blocks=True,
        )  # fmt: skip
        self._templates.filters["drawn"] = Markup  # for SVG and cards, whose makers escape their texts

    def app(self) -> Starlette:
        """Return the application."""
        return Starlette(
            routes=[
                Route("/", self.jobs),
                Route("/jobs/{job}", self.job),
                Route("/jobs/{job}/{action}", self.confirm, methods=["GET"]),
                Route("/jobs/{job}/{action}", self.act, methods=["POST"]),
                Route("/fleet", self.fleet),
                Route("/spending", self.spending),
                Route("/changes", self.changes),
                Route("/assets/{name}", self.asset),
            ],
            exception_handlers={HTTPException: self.refused},
        )

    def jobs(self, request: Request) -> Response:
        """Return all jobs."""
        query = request.query_params
        show_all = query.get("past") == "all"
        chosen = jobs.Filter(
            query.get("q", ""), query.get("team", ""), query.get("status", ""), _number(query.get("times"))
        )
        reading = self._sources.all_jobs if show_all else self._sources.jobs
        unusual = spending.unusual(self._sources.anomalies.current().value)
        return self._page(
            request, "jobs.html", reading,
            lambda rows, now: {"panel": jobs.panel(rows, now, chosen)},
            title="Jobs", chosen=chosen, show_all=show_all, meanings=MEANING_OF_STATUS, unusual=unusual.head,
        )  # fmt: skip

    def job(self, request: Request) -> Response:
        """Return one job."""
        name, whole = request.path_params["job"], request.query_params.get("history") == "all"
        message = self._messages.get(request.query_params.get("said", ""), "")
        bill = self._sources.report.current().value

        def shown(read: JobRead | None, now: datetime) -> dict[str, Any]:
            if read is None:
                raise HTTPException(404, f"There is no job {name}.")
            drawn = self._sources.curves(name).current()
            started, ended = bool(read.path.attempts), JobState(read.row["state"]).final
            return {
                "panel": job.panel(read, now, whole=whole, report=bill),
                "curves": curves.panel(drawn.value, started=started, ended=ended) if drawn.value is not None else None,
                "curves_trouble": drawn.trouble,
            }

        actions = ACTIONS if self._acting else {}
        return self._page(
            request, "job.html", self._sources.job(name), shown,
            title=name, name=name, message=message, actions=actions, whole=whole,
        )  # fmt: skip

    def fleet(self, request: Request) -> Response:
        """Return pools and instances."""
        show_all = request.query_params.get("pools") == "all"
        return self._page(
            request, "fleet.html", self._sources.fleet,
            lambda read, now: {"panel": fleet.panel(read, now, all_pools=show_all)},
            title="Fleet", show_all=show_all,
        )  # fmt: skip

    def spending(self, request: Request) -> Response:
        """Budgets, and what everything has cost."""
        bill = self._sources.report.current()
        costs = spending.costs(bill.value) if bill.value is not None else None
        anomalies = self._sources.anomalies.current()
        return self._page(
            request, "spending.html", self._sources.budgets, lambda read, _: {"panel": spending.panel(read)},
            title="Spending", costs=costs, costs_trouble=bill.trouble,
            unusual=spending.unusual(anomalies.value), unusual_trouble=anomalies.trouble,
        )  # fmt: skip

    def changes(self, request: Request) -> Response:
        """Return the reviewed and applied changes, and their cost."""
        return self._page(
            request, "changes.html", self._sources.changes, lambda read, _: {"panel": changes.panel(read)},
            title="Changes",
        )  # fmt: skip

    def confirm(self, request: Request) -> Response:
        """Return the question whether an action is meant."""
        name, action = self._action(request)
        return self._html("confirm.html", request, title=action.question, name=name, action=action, error="")

    def act(self, request: Request) -> Response:
        """Carry an action out, by the function of the command."""
        name, action = self._action(request)

        def failed(status: int, reason: str) -> Response:
            return self._html(
                "confirm.html", request, status, title=action.question, name=name, action=action, error=reason
            )

        snapshot = self._sources.job(name).current()
        if snapshot.value is None:
            if snapshot.at is not None:
                raise HTTPException(404, f"There is no job {name}.")
            reason = snapshot.trouble or "reading it takes long"
            return failed(503, f"The job is not read yet: {reason}. Nothing was requested; try again in a minute.")
        try:
            words = action.send(self._session, snapshot.value.submission).words
        except CliError as error:
            return failed(409, str(error))
        except StoreError as error:
            reason = str(of_store(error, self._session.store_url))
            return failed(503, f"{reason}. The job's page shows whether the request was written all the same.")
        self._sources.changed(name)
        key = secrets.token_hex(8)
        self._messages[key] = f"{words[:1].upper()}{words[1:]}"
        while len(self._messages) > REMEMBERED:
            self._messages.popitem(last=False)
        return RedirectResponse(f"/jobs/{name}?said={key}", status_code=303)

    def asset(self, request: Request) -> Response:
        """Return a static file of the web UI."""
        name = request.path_params["name"]
        if name not in ASSETS:
            raise HTTPException(404, "There is no such file.")
        text = resources.files("everspot_cli").joinpath(*ASSETS[name]).read_text()
        return Response(text, media_type=KINDS[name.rpartition(".")[2]])

    def refused(self, request: Request, error: Exception) -> Response:
        """Return a page that says why the requested one does not exist."""
        assert isinstance(error, HTTPException)  # noqa: S101 - by the table of handlers
        return self._html("refused.html", request, error.status_code, title="Not here", why=error.detail)

    def _action(self, request: Request) -> tuple[str, Action]:
        if not self._acting:
            raise HTTPException(403, "This page only shows: `everspot ui --actions` offers actions.")
        if request.path_params["action"] not in ACTIONS:
            raise HTTPException(404, "There is no such action.")
        return request.path_params["job"], ACTIONS[request.path_params["action"]]

    def _page(self, request: Request, template: str, reading: Reading[Any], shown: Any, **more: Any) -> Response:
        """Return a page with the last reading and its time, or an empty one before the first reading."""
        snapshot = reading.current()
        context = shown(snapshot.value, snapshot.at) if snapshot.at is not None else {"panel": None}
        return self._html(template, request, snapshot=snapshot, **context, **more)

    def _html(self, template: str, request: Request, status: int = 200, **values: Any) -> Response:
        common: Mapping[str, Any] = {
            "cluster": self._cluster,
            "store_url": self._session.store_url,
            "path": request.url.path,
            "part": PART in request.headers,
            "scale_note": self._session.scale_note(),
            "snapshot": None,
        }
        text = self._templates.get_template(template).render({**common, **values})
        return HTMLResponse(text, status_code=status)


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 5 else 1
