"""Obtainability, Compute Engine's rating of the chance of Spot capacity: advice.capacity.

Sources: Compute API, CapacityAdviceRequest and CapacityAdviceResponse; "View Spot VM availability": a number from 0 to
1, high from 0.7, low up to 0.3. A rating of a region does not cover its zones, so each zone is rated separately. It
describes the moment, so it is kept for a short time only. No limit of requests is documented.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from everspot_core.capacity.placement import request_count
from everspot_core.clock import Clock

from everspot_clouds.base import PlacementScore, Trouble
from everspot_clouds.gcp.errors import ApiError, trouble
from everspot_clouds.gcp.fleet import GcpShape
from everspot_clouds.gcp.http_api import Api
from everspot_clouds.gcp.machines import parse_type
from everspot_clouds.gcp.zones import Zones

KEPT = timedelta(minutes=10)
"""Market time for which an answer is used again."""


@dataclass(frozen=True)
class _Question:
    """The subject of a question. `zone` empty: the whole region."""

    types: tuple[str, ...]
    count: int
    region: str
    zone: str


class Obtainability:
    """Ratings for one project, with a short memory. `region`: the cluster's own."""

    def __init__(self, api: Api, region: str, clock: Clock) -> None:
        self._api, self._region, self._clock = api, region, clock
        self._answers: dict[_Question, tuple[datetime, float | None]] = {}
        self._zones = Zones(api)

    def scores(self, types: Collection[str], count: int, regions: Collection[str] = ()) -> list[PlacementScore]:
        """Return the score of each zone of the cluster's region for `count` Spot instances of any of these types, all
        there; with `regions`, of each region. Subjects that the API refuses to rate are left out. Raises the errors of
        `Api`."""
        if not types:
            return []
        names, many, now = tuple(sorted(set(types))), request_count(count), self._clock.now()
        subjects = [(region, "") for region in sorted(set(regions))]
        subjects = subjects or [(self._region, zone) for zone in self._zones.list_zones(self._region)]
        scores = []
        for region, zone in subjects:
            question = _Question(names, many, region, zone)
            rated = self._answer(question, now)
            if rated is not None:
                score = PlacementScore(
                    types=names, region=region, zone=zone, count=many, score=scale_rating(rated), at=self._at(question)
                )
                scores.append(score)
        return scores

    def _at(self, question: _Question) -> datetime:
        return self._answers[question][0]

    def _answer(self, question: _Question, now: datetime) -> float | None:
        cached = self._answers.get(question)
        if cached is not None and now - cached[0] < KEPT:
            return cached[1]
        path = f"projects/{self._api.project}/regions/{question.region}/advice/capacity"
        try:
            answer = self._api.call(
                "POST", "compute", path, body=request(question.types, question.count, question.zone)
            )
            rated = obtainability(answer)
        except ApiError as error:
            if trouble(error) is not Trouble.REQUEST:
                raise
            rated = None  # a type that cannot be rated: asked again later, as if it had been
        self._answers[question] = now, rated
        return rated


def request(types: Iterable[str], count: int, zone: str) -> dict[str, Any]:
    """Return the body of advice.capacity: types that may replace each other, all in one zone if it is named."""
    machines = [parse_type(name) for name in types]
    plain = [machine.machine for machine in machines if not machine.attached]
    chosen: dict[str, dict[str, Any]] = {"built-in": {"machineTypes": plain}} if plain else {}
    for machine in machines:
        if machine.attached:
            gpus = [{"acceleratorType": machine.accelerator, "acceleratorCount": machine.count}]
            key = f"{machine.machine}-{machine.accelerator}-{machine.count}"
            chosen[key] = {"machineTypes": [machine.machine], "guestAccelerators": gpus}
    distribution: dict[str, Any] = {"targetShape": GcpShape.ANY.value}
    if zone:
        distribution = {"targetShape": GcpShape.ANY_SINGLE_ZONE.value, "zones": [{"zone": f"zones/{zone}"}]}
    return {
        "size": count,
        "distributionPolicy": distribution,
        "instanceFlexibilityPolicy": {"instanceSelections": chosen},
        "instanceProperties": {"scheduling": {"provisioningModel": "SPOT"}},
    }


def obtainability(answer: dict[str, Any]) -> float | None:
    """Return the rating of an answer's first recommendation; None if it has none. JSON leaves out zeros."""
    first = next(iter(answer.get("recommendations") or ()), None)
    if not first or "scores" not in first:
        return None
    return float(first["scores"].get("obtainability") or 0.0)


def scale_rating(rated: float) -> int:
    """Return a rating from 0 to 1 on the scale of placement scores, 1 to 10."""
    return min(10, max(1, round(rated * 10)))
