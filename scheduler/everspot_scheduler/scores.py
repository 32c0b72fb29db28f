"""The cloud's placement scores of the cluster's spot pools, asked for while spot may be launched."""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from everspot_clouds.base import Cloud
from everspot_core.capacity.catalogue import Catalogue, InstanceType
from everspot_core.capacity.placement import groups
from everspot_core.clock import Clock
from everspot_core.cluster.manifest import Elastic
from everspot_core.jobs.records import Market
from everspot_core.schedule import PoolKey

ASK_EVERY = timedelta(minutes=1)
"""The least real time between two rounds. A cloud that must not be asked so often answers from its memory."""
VALID_FOR = timedelta(minutes=30)
"""Market time for which a score counts."""


class Scores:
    """The newest placement scores by pool."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._scores: dict[tuple[str, str], tuple[int, datetime]] = {}

    def score_request(
        self, elastic: Elastic | None, waiting: int, busy: Collection[str], catalogue: Catalogue
    ) -> tuple[list[InstanceType], int] | None:
        """Return the types and the number of instances to ask about; None if no scores are needed.

        Scores are needed while spot may be launched and a job waits or runs. `busy`: the instances that have a job.
        """
        if elastic is None or Market.SPOT not in elastic.markets or not (waiting or busy):
            return None
        types = [catalogue.types[name] for name in elastic.types if name in catalogue.types]
        return types, min(waiting, elastic.max_instances)

    def refresh(self, cloud: Cloud, request: tuple[Iterable[InstanceType], int]) -> None:
        """Ask for the scores of these types, for this many instances of each group together. Raises the cloud's
        errors."""
        types, count = request
        for group in groups(types):
            for score in cloud.placement_scores(group, count):
                for name in group:
                    self._scores[name, score.zone] = score.score, score.at

    def score(self, pool: PoolKey) -> int | None:
        """Return the score of a pool, 1 to 10; None if there is no score, if it is old, or if the pool is not spot."""
        score, at = self._scores.get((pool.instance_type, pool.zone), (None, None))
        if pool.market is not Market.SPOT or at is None or self._clock.now() - at > VALID_FOR:
            return None
        return score
