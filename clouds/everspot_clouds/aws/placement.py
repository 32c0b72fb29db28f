"""Placement scores, EC2's rating of the chance of spot capacity: GetSpotPlacementScores, within its limits.

The limits are those of the Amazon EC2 User Guide, "Spot placement score" and "How Spot placement score works". Fewer
than three types always score low, so they are not asked about. A score describes the moment, so it is kept for a short
time only. The same configuration (types, capacity, zones or regions) may be asked about again and again, but EC2 may
refuse new ones for a day (`MaxConfigLimitExceeded`), so few are asked about. Requests cost nothing.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError
from everspot_core.capacity.placement import request_count
from everspot_core.clock import Clock

from everspot_clouds.aws.errors import error_code
from everspot_clouds.base import PlacementScore

TYPES_AT_LEAST = 3
"""With fewer the score "will always be low" (EC2 API Reference, GetSpotPlacementScores, InstanceType)."""
KEPT = timedelta(minutes=10)
"""Market time for which an answer is reused."""
DAY = timedelta(hours=24)
NEW_A_DAY = 10
"""The most configurations in a day (market time). AWS names no figure; users have met "a few (10)"
(https://github.com/aws-solutions-library-samples/guidance-for-ec2-spot-placement-score-tracker)."""
REFUSED = "MaxConfigLimitExceeded"


@dataclass(frozen=True)
class _Question:
    """A configuration, as EC2 counts them. Empty `regions` stand for the zones of the client's own region."""

    types: tuple[str, ...]
    count: int
    regions: tuple[str, ...]


class PlacementScores:
    """Placement scores by one region's client, with a short memory."""

    def __init__(self, ec2: Any, clock: Clock) -> None:
        self._ec2, self._clock = ec2, clock
        self._answers: dict[_Question, list[PlacementScore]] = {}
        self._asked_at: dict[_Question, datetime] = {}
        self._full_until: datetime | None = None
        self._zone_names: dict[str, str] = {}

    def scores(self, types: Collection[str], count: int, regions: Collection[str] = ()) -> list[PlacementScore]:
        """Return the score of each zone for `count` spot instances of any of these types, all in that zone.

        With `regions`, it is the score of each region, its zones taken together. The answer is empty if the question is
        useless or over the limits.

        Raises:
            botocore's errors.
        """
        requested = _Question(tuple(sorted(set(types))), request_count(count), tuple(sorted(set(regions))))
        if len(requested.types) < TYPES_AT_LEAST:
            return []
        now = self._clock.now()
        question = requested if self._is_allowed(requested, now) else self._nearest(requested, now)
        return self._answer(question, now) if question is not None else []

    def _answer(self, question: _Question, now: datetime) -> list[PlacementScore]:
        asked_at = self._asked_at.get(question)
        if asked_at is not None and now - asked_at < KEPT:
            return self._answers[question]
        try:
            scores = self._request(question, now)
        except ClientError as error:
            if error_code(error) != REFUSED:
                raise
            self._full_until = now + DAY
            return []
        self._asked_at[question], self._answers[question] = now, scores
        return scores

    def _is_allowed(self, question: _Question, now: datetime) -> bool:
        """Return whether the configuration is not new to EC2, or today's limit allows one more."""
        lately = self._lately(now)
        full = self._full_until is not None and now < self._full_until
        return question in lately or (len(lately) < NEW_A_DAY and not full)

    def _nearest(self, question: _Question, now: datetime) -> _Question | None:
        """Return the closest configuration that may be asked instead, for another number of instances."""
        alike = [q for q in self._lately(now) if (q.types, q.regions) == (question.types, question.regions)]
        return min(alike, key=lambda q: abs(q.count - question.count), default=None)

    def _lately(self, now: datetime) -> list[_Question]:
        return [question for question, at in self._asked_at.items() if now - at < DAY]

    def _request(self, question: _Question, now: datetime) -> list[PlacementScore]:
        own = self._ec2.meta.region_name
        pages = self._ec2.get_paginator("get_spot_placement_scores").paginate(
            InstanceTypes=list(question.types),
            TargetCapacity=question.count,
            TargetCapacityUnitType="units",
            SingleAvailabilityZone=not question.regions,
            RegionNames=list(question.regions) or [own],
        )
        return [
            PlacementScore(
                types=question.types,
                region=raw.get("Region") or own,
                zone=self._zone(raw.get("AvailabilityZoneId") or ""),
                count=question.count,
                score=int(raw["Score"]),
                at=now,
            )
            for page in pages
            for raw in page["SpotPlacementScores"]
        ]

    def _zone(self, zone_id: str) -> str:
        """Return the name of a zone in this account. Scores have zone ids, which are the same in every account."""
        if zone_id and not self._zone_names:
            zones = self._ec2.describe_availability_zones()["AvailabilityZones"]
            self._zone_names = {zone["ZoneId"]: zone["ZoneName"] for zone in zones}
        return self._zone_names.get(zone_id, zone_id)
