"""Where a job may move, checked at submission against the peers of the cluster."""

from collections.abc import Collection
from pathlib import Path

from everspot_core.job import JobSubmission
from everspot_core.problems import near

from everspot_cli.errors import CliError
from everspot_cli.session import Session


def travel_warnings(session: Session, file: Path, submission: JobSubmission) -> list[str]:
    """Warnings about a job that may move, in a cluster without peers.

    Raises:
        CliError: if it names clouds or clusters that no peer has, or lacks the cloud that it is submitted to.
    """
    spec, manifest = submission.spec, session.manifest
    if not spec.clouds and not spec.clusters:
        return []
    if not manifest.federation:
        field = "clouds" if spec.clouds else "clusters"
        return [f"{field} does nothing here: the cluster {manifest.cluster} has no peers, so the job stays in it"]
    clouds = sorted({manifest.cloud, *(peer.cloud for peer in manifest.federation)})
    names = sorted(peer.name for peer in manifest.federation)
    problems = [
        *_unknown("clouds", spec.clouds, clouds, "the cloud of neither this cluster nor a peer"),
        *_unknown("clusters", spec.clusters, names, "no peer of this cluster"),
    ]
    if spec.clouds and manifest.cloud not in spec.clouds:
        words = f"lacks {manifest.cloud}, where the job is submitted and begins"
        problems.append({"field": "clouds", "problem": words})
    if problems:
        raise CliError(
            f"{file}: the job cannot move as it says",
            hint="`everspot federation` shows the peers; without clouds and clusters a job stays where it is",
            problems=problems,
        )
    return []


def _unknown(field: str, names: Collection[str], allowed: Collection[str], complaint: str) -> list[dict[str, str]]:
    return [
        {"field": field, "problem": f"{name} is {complaint}{near(name, allowed)}; allowed: {', '.join(allowed)}"}
        for name in names
        if name not in allowed
    ]
