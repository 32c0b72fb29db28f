"""Estimates before a job is submitted whether a checkpoint of its state fits into the notice of an interruption."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.counting import first_few
from everspot_core.jobs.checkpoint_interval import (
    LOSS_AT_NOTICE,
    CheckpointCost,
    NoticeTime,
    fits_notice,
    in_minutes,
    in_seconds,
    loss_at_notice,
)
from everspot_core.jobs.job import CheckpointPolicy

ASSUMED_GBPS = 10.0
"""The assumed network of a type that has none in the catalogue, Gbit/s. It is not measured."""
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class TypeEstimate:
    """A checkpoint on one instance type.

    Attributes:
        name: of the type.
        network_gbps: the bandwidth of its network, Gbit/s.
        is_assumed: whether `network_gbps` is `ASSUMED_GBPS`.
        durable: the least time until a checkpoint is durable: the upload alone, at the full speed of the network.
        fits: whether `durable` is within a notice.
        loss: the most work that a notice costs if it does not fit, without regard to an interval in steps.
    """

    name: str
    network_gbps: float
    is_assumed: bool
    durable: timedelta
    fits: bool
    loss: timedelta


def estimate_types(
    policy: CheckpointPolicy, kinds: Iterable[InstanceType], notice: NoticeTime
) -> tuple[TypeEstimate, ...]:
    """Return the estimate of each type, by its name; empty if the job does not declare the size of its state."""
    if policy.state_gib is None:
        return ()
    size_bytes = round(policy.state_gib * 2**30)
    estimates = {}
    for kind in kinds:
        gbps = kind.network_gbps or ASSUMED_GBPS
        durable = timedelta(seconds=size_bytes * 8 / (gbps * 1e9))
        cost = CheckpointCost(timedelta(0), durable, size_bytes)
        # The chosen interval is not known before a checkpoint was measured, but it bounds the loss.
        loss = max(LOSS_AT_NOTICE, 2 * durable) if policy.is_auto else loss_at_notice(cost, policy.interval)
        fits = fits_notice(cost, notice) is True
        estimates[kind.name] = TypeEstimate(kind.name, gbps, kind.network_gbps is None, durable, fits, loss)
    return tuple(estimates[name] for name in sorted(estimates))


def describe_estimates(policy: CheckpointPolicy, estimates: Sequence[TypeEstimate], notice: NoticeTime) -> str:
    """Return the sentence about these types (at least one): about the types that are too slow, or else about the
    slowest."""
    too_slow = sorted((e for e in estimates if not e.fits), key=lambda e: (-e.durable, e.name))
    fast = [e.name for e in estimates if e.fits]
    slowest = too_slow[0] if too_slow else max(estimates, key=lambda e: e.durable)
    duration = (
        f"a checkpoint of {policy.state_gib:g} GiB takes at least {in_seconds(slowest.durable)} from {slowest.name} "
        f"({slowest.network_gbps:g} Gbit/s{', an assumption' if slowest.is_assumed else ''})"
    )
    if not too_slow:
        return f"{duration}, within a notice of {in_seconds(notice.length)}"
    others = [e.name for e in too_slow[1:]]
    also = f"; it is too long for {first_few(others, _SHOWN)} as well" if others else ""
    fitting = f"; it fits on {first_few(fast, _SHOWN)}" if fast else ""
    return (
        f"{duration}, longer than a notice of {in_seconds(notice.length)} leaves: an interruption costs up to "
        f"{_describe_loss(policy, slowest)}{also}{fitting}"
    )


def _describe_loss(policy: CheckpointPolicy, estimate: TypeEstimate) -> str:
    by_time = f"{in_minutes(estimate.loss)} of work"
    if policy.steps is None:
        return by_time
    by_steps = f"{policy.steps:,} steps and {in_minutes(estimate.durable)} of work"
    return by_steps if policy.every is None else f"{by_time}, or {by_steps}, whichever is less"
