"""Reads the metadata service for the agent: the parsed manifest, and notices with their source."""

import logging

from everspot_clouds.base import Metadata, MetadataError
from everspot_core.clock import Clock
from everspot_core.cluster.manifest import Manifest, left_out
from everspot_core.jobs.records import Notice, NoticeKind
from pydantic import ValidationError

SOURCE = "metadata"
"""The name of every cloud's metadata service in notices and settings."""

_log = logging.getLogger(__name__)


def read_manifest(metadata: Metadata) -> Manifest:
    """Return the manifest from this instance's user data.

    Raises:
        MetadataError: if there is no manifest. The message names the place.
    """
    text = metadata.manifest()
    try:
        manifest = Manifest.read(text)
    except ValidationError as error:
        raise MetadataError(f"{metadata.where} holds no manifest: {error}") from error
    for problem in left_out(text):
        _log.warning("manifest of %s: %s: left out", metadata.where, problem)
    return manifest


def read_interruption(metadata: Metadata, clock: Clock) -> Notice | None:
    """Return the interruption notice of this instance; None without a notice. Raises `MetadataError`."""
    at = metadata.interruption()
    if at is None:
        return None
    return Notice(kind=NoticeKind.INTERRUPTION, source=SOURCE, seen_at=clock.now(), action_at=at)


def read_rebalance(metadata: Metadata, clock: Clock) -> Notice | None:
    """Return the rebalance recommendation; None without one. Raises `MetadataError`."""
    at = metadata.rebalance()
    if at is None:
        return None
    return Notice(kind=NoticeKind.REBALANCE, source=SOURCE, seen_at=clock.now(), action_at=at)
