"""The metadata service as the agent reads it: the parsed manifest, and notices with their source."""

import logging

from everspot_clouds.base import Metadata, MetadataError
from everspot_core.clock import Clock
from everspot_core.cluster.manifest import Manifest, left_out
from everspot_core.jobs.records import Notice, NoticeKind
from pydantic import ValidationError

SOURCE = "metadata"
"""The name of the metadata service in notices and settings, whichever cloud's it is."""

_log = logging.getLogger(__name__)


def read_manifest(metadata: Metadata) -> Manifest:
    """Return the manifest that the infrastructure handed to this instance.

    Raises:
        MetadataError: without a manifest; the message says where it was searched.
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
    """Return the notice that this instance will be taken away; None while there is no notice. Raises
    `MetadataError`."""
    at = metadata.interruption()
    if at is None:
        return None
    return Notice(kind=NoticeKind.INTERRUPTION, source=SOURCE, seen_at=clock.now(), action_at=at)


def read_rebalance(metadata: Metadata, clock: Clock) -> Notice | None:
    """Return the rebalance recommendation; None while there is no recommendation. Raises `MetadataError`."""
    at = metadata.rebalance()
    if at is None:
        return None
    return Notice(kind=NoticeKind.REBALANCE, source=SOURCE, seen_at=clock.now(), action_at=at)
