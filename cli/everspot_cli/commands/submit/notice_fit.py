"""Says before a job is submitted whether a checkpoint of its declared state fits into the notice of an interruption."""

from dataclasses import dataclass
from typing import Any

from everspot_clouds.registry import DEFAULT_CLOUD, provider
from everspot_core.cluster.manifest import Manifest
from everspot_core.jobs.checkpoint_estimate import describe_estimates, estimate_types
from everspot_core.jobs.checkpoint_interval import NoticeTime

from everspot_cli.commands.submit.context import ClusterFacts, SubmissionContext


@dataclass(frozen=True)
class NoticeFit:
    """How a job's checkpoints fit into the time of an interruption notice.

    Attributes:
        warnings: a sentence, if a checkpoint takes too long on a type that the job may run on.
        note: a sentence, if it fits on all of them.
        row: both for JSON; None if the job does not declare the size of its state.
    """

    warnings: tuple[str, ...] = ()
    note: str = ""
    row: dict[str, Any] | None = None


def fit_notice(context: SubmissionContext) -> NoticeFit:
    """Judge a job's checkpoints on the types that it may run on, by the notice of the cluster."""
    policy = context.submission.spec.checkpoint
    if policy.state_gib is None:
        return NoticeFit()
    notice = _read_notice(context.cluster)
    estimates = estimate_types(policy, [candidate.instance_type for candidate in context.candidates], notice)
    if not estimates:
        return NoticeFit()
    sentence = describe_estimates(policy, estimates, notice)
    fits = all(estimate.fits for estimate in estimates)
    row = {
        "state_gib": policy.state_gib,
        "notice_seconds": notice.length.total_seconds(),
        "fits_notice": fits,
        "message": sentence,
        "types": [
            {
                "name": estimate.name,
                "network_gbps": estimate.network_gbps,
                "network_is_assumed": estimate.is_assumed,
                "durable_seconds": round(estimate.durable.total_seconds(), 1),
                "fits_notice": estimate.fits,
                "loss_seconds": None if estimate.fits else round(estimate.loss.total_seconds(), 1),
            }
            for estimate in estimates
        ],
    }
    if fits:
        return NoticeFit(note=sentence[0].upper() + sentence[1:], row=row)
    return NoticeFit(warnings=(sentence,), row=row)


def _read_notice(cluster: ClusterFacts | None) -> NoticeTime:
    """Return the notice of a cluster, on a clock of its own, as people see it; without a cluster that of the usual
    cloud."""
    if cluster is not None:
        manifest = cluster.manifest
    else:
        manifest = Manifest(cluster="none", cloud=DEFAULT_CLOUD, control_url="memory://", data_url="memory://")
    limits = manifest.limits
    return NoticeTime(provider(manifest.cloud).notice(manifest), limits.notice_poll + limits.stop_margin)
