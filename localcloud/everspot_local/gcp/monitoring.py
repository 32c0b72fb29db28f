"""Stands in for Cloud Monitoring: points of custom metrics, and alert policies, channels and dashboards as documents.

It evaluates no alert policy and draws nothing. Sources: monitoring.v3.json and monitoring.v1.json; Cloud Monitoring
documentation: "Quotas and limits" (200 series a request, one point of a series in 5 seconds, points between 25 hours
old and 5 minutes ahead), "Create custom metrics" (one point a series; in order of time).
"""

import secrets
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from everspot_local.gcp.answers import not_here
from everspot_local.gcp.logging.filters import parsed
from everspot_local.gcp.refusals import aborted, absent, bad
from everspot_local.gcp.router import Handler, Request
from everspot_local.market.clock import stamp

SERIES, POINT_EVERY = 200, timedelta(seconds=5)
OLDEST, NEWEST = timedelta(hours=25), timedelta(minutes=5)
_RESOURCES = ("global", "generic_task", "generic_node", "gce_instance")
_PREFIXES = ("custom.googleapis.com/", "external.googleapis.com/", "workload.googleapis.com/")
_COMBINERS = ("AND", "OR", "AND_WITH_MATCHING_RESOURCE")
Document = dict[str, Any]


class Monitoring:
    """The metrics and resources of a project's Monitoring."""

    def __init__(self, now: Callable[[], datetime], project: str, number: str) -> None:
        self._now, self._project, self._number = now, project, number
        self._series: dict[str, Document] = {}
        self._documents: dict[str, Document] = {}

    def routes(self) -> Mapping[str, Handler]:
        """Return handlers of version 3 by method id."""
        handlers: dict[str, Handler] = {
            "monitoring.projects.timeSeries.create": self._put,
            "monitoring.projects.timeSeries.list": self._list_series,
        }
        for kind, check in (("alertPolicies", _check_policy), ("notificationChannels", _check_channel)):
            handlers |= self._declared(f"monitoring.projects.{kind}", kind, check)
        return handlers

    def dashboard_routes(self) -> Mapping[str, Handler]:
        """Return handlers of version 1, which has the dashboards."""
        return self._declared("monitoring.projects.dashboards", "dashboards", _check_dashboard)

    def _declared(self, prefix: str, kind: str, check: Callable[[Document], None]) -> dict[str, Handler]:
        owner = self._number if kind == "dashboards" else self._project

        def create(request: Request) -> Document:
            body = {key: value for key, value in request.body.items() if value is not None}
            check(body)
            name = f"projects/{owner}/{kind}/{secrets.randbelow(10**18) + 10**18}"
            self._documents[name] = self._stamped(body, name, kind)
            return self._documents[name]

        def get(request: Request) -> Document:
            return self._document(request.params["name"], kind)

        def patch(request: Request) -> Document:
            current = self._document(request.params["name"], kind)
            if request.body.get("etag") and request.body["etag"] != current.get("etag"):
                raise aborted("The etag does not match the current one.")
            mask = {n.strip() for n in str(request.params.get("updateMask") or "").split(",") if n.strip()}
            body = {key: value for key, value in request.body.items() if value is not None}
            if mask:
                names = {name.split(".")[0] for name in mask}
                body = {
                    **{k: v for k, v in current.items() if k not in names},
                    **{k: body[k] for k in names if k in body},
                }
            check(body)
            changed = self._stamped(body, current["name"], kind, current)
            self._documents[current["name"]] = changed
            return changed

        def delete(request: Request) -> Document:
            del self._documents[self._document(request.params["name"], kind)["name"]]
            return {}

        def list_all(_request: Request) -> Document:
            return {kind: [d for name, d in sorted(self._documents.items()) if f"/{kind}/" in name]}

        calls = {"create": create, "get": get, "patch": patch, "delete": delete, "list": list_all}
        return {f"{prefix}.{verb}": call for verb, call in calls.items()}

    def _stamped(self, body: Document, name: str, kind: str, current: Document | None = None) -> Document:
        record = {"mutateTime": stamp(self._now())}
        if kind == "dashboards":
            return {**_drawn(body), "name": name, "etag": secrets.token_hex(16)}
        stamped = {**body, "name": name, "creationRecord": (current or {}).get("creationRecord", record)}
        if kind == "alertPolicies":
            stamped["mutationRecord"] = record
            stamped["conditions"] = [
                {**c, "name": c.get("name") or f"{name}/conditions/{secrets.randbelow(10**18) + 10**18}"}
                for c in body["conditions"]
            ]
            stamped.setdefault("enabled", True)
        else:
            stamped["mutationRecords"] = [record]
            stamped.setdefault("enabled", True)
        return stamped

    def _document(self, name: str, kind: str) -> Document:
        full = "/".join(["projects", self._number if kind == "dashboards" else self._project, *name.split("/")[2:]])
        if full not in self._documents:
            raise absent(f"Could not find {kind} {name}.")
        return self._documents[full]

    def _put(self, request: Request) -> Document:
        series = request.body.get("timeSeries") or []
        if not 1 <= len(series) <= SERIES:
            raise bad(f"Field timeSeries had an invalid value: it must have 1 to {SERIES} elements, not {len(series)}.")
        wrong = [f"timeSeries[{i}]: {problem}" for i, each in enumerate(series) if (problem := self._problem(each))]
        if wrong:
            raise bad(f"One or more TimeSeries could not be written: {'; '.join(wrong)}")
        for each in series:
            stored = self._series.setdefault(_key(each), {**each, "points": []})
            stored["points"] = [*each["points"], *stored["points"]]
        return {}

    def _problem(self, series: Mapping[str, Any]) -> str:
        kind = str((series.get("metric") or {}).get("type") or "")
        if not kind.startswith(_PREFIXES):
            return f"the metric type {kind!r} is no custom one"
        if (resource := (series.get("resource") or {}).get("type")) not in _RESOURCES:
            return f"the monitored resource {resource!r} is not one that custom metrics take"
        points = series.get("points") or []
        if len(points) != 1:
            return "exactly one point must be given"
        try:
            end = datetime.fromisoformat(points[0]["interval"]["endTime"])
        except (KeyError, ValueError):
            return "the interval of the point has no end time"
        if not self._now() - OLDEST <= end <= self._now() + NEWEST:
            return "the end time of the point is too long ago or ahead"
        stored = self._series.get(_key(series))
        if stored and end < datetime.fromisoformat(stored["points"][0]["interval"]["endTime"]) + POINT_EVERY:
            return "points must be written in order, one or more seconds after the last one: at most one in 5 seconds"
        return ""

    def _list_series(self, request: Request) -> Document:
        if any(name.startswith(("aggregation.", "secondaryAggregation.")) for name in request.params):
            raise not_here("aggregation of time series")
        matches = parsed(str(request.params.get("filter") or ""))
        start, end = request.params.get("interval.startTime", ""), request.params["interval.endTime"]
        matching = []
        for series in self._series.values():
            points = [p for p in series["points"] if start < p["interval"]["endTime"] <= end]
            if points and matches(series):
                matching.append({**series, "points": points})
        return {"timeSeries": matching}


def _key(series: Mapping[str, Any]) -> str:
    parts = [series.get("metric") or {}, series.get("resource") or {}]
    return repr([(part.get("type"), sorted((part.get("labels") or {}).items())) for part in parts])


def _check_policy(body: Document) -> None:
    conditions = body.get("conditions") or []
    if not body.get("displayName") or not 1 <= len(conditions) <= 6 or body.get("combiner") not in _COMBINERS:
        raise bad(f"An alert policy needs a displayName, 1 to 6 conditions, and a combiner of {', '.join(_COMBINERS)}.")
    if any(not condition.get("displayName") for condition in conditions):
        raise bad("Every condition of an alert policy needs a displayName.")
    for condition in conditions:
        for kind in ("conditionThreshold", "conditionAbsent"):
            filter_text = str((condition.get(kind) or {}).get("filter") or "")
            if kind in condition and ("metric.type" not in filter_text or "resource.type" not in filter_text):
                raise bad("The filter of a condition must restrict metric.type and resource.type.")


def _check_channel(body: Document) -> None:
    if not body.get("type"):
        raise bad("Field notificationChannel.type had an invalid value: it is missing.")


def _drawn(part: Any) -> Any:
    """Return a dashboard as the service keeps it: a chart's lines have an axis, and axes a scale. What is zero is not
    told back, like anywhere (https://github.com/hashicorp/terraform-provider-google/issues/9976 and 24650; recorded
    answers: GoogleCloudPlatform/k8s-config-connector, testdata of MonitoringDashboard)."""
    if isinstance(part, list):
        return [_drawn(each) for each in part]
    if not isinstance(part, dict):
        return part
    drawn = {key: _drawn(each) for key, each in part.items()}
    if isinstance(chart := drawn.get("xyChart"), dict):
        lines = [{"targetAxis": "Y1", **line} for line in chart.get("dataSets") or []]
        axes = {name: {"scale": "LINEAR", **chart[name]} for name in ("yAxis", "y2Axis") if chart.get(name)}
        drawn["xyChart"] = {**chart, **axes, "dataSets": lines}
    return drawn


def _check_dashboard(body: Document) -> None:
    layouts = [name for name in ("gridLayout", "mosaicLayout", "rowLayout", "columnLayout") if name in body]
    if not body.get("displayName") or len(layouts) != 1:
        raise bad("A dashboard needs a displayName and one layout.")
