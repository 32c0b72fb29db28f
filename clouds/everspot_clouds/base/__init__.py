"""The protocols that every cloud implements, and the plain values in which it answers. Nothing is decided here.

These modules and the metadata readers use only the standard library, so that a booting instance learns its identity,
and whether it is about to be interrupted, before it loads anything heavier.
"""

from everspot_core.cluster.checks import Check, Verdict

from everspot_clouds.base.cloud import (
    Cloud,
    CloudEnd,
    CloudInstance,
    LaunchAnswer,
    Launched,
    Message,
    MessageKind,
    Phase,
    PlacementScore,
)
from everspot_clouds.base.errors import CloudError, Codes, NotOffered, StillPending, Trouble, fixes
from everspot_clouds.base.job_credentials import JobAnswer, JobCredentials
from everspot_clouds.base.metadata import Identity, Metadata, MetadataError, MetadataUnavailable
from everspot_clouds.base.operator import Handover, RemainingResource, RemoteAccess, Site, image_check
from everspot_clouds.base.proof import Proof, Prover
from everspot_clouds.base.provider import Provider
from everspot_clouds.base.registry_login import RegistryLogin

__all__ = [
    "Check",
    "Cloud",
    "CloudEnd",
    "CloudError",
    "CloudInstance",
    "Codes",
    "Handover",
    "Identity",
    "JobAnswer",
    "JobCredentials",
    "LaunchAnswer",
    "Launched",
    "Message",
    "MessageKind",
    "Metadata",
    "MetadataError",
    "MetadataUnavailable",
    "NotOffered",
    "Phase",
    "PlacementScore",
    "Proof",
    "Prover",
    "Provider",
    "RegistryLogin",
    "RemainingResource",
    "RemoteAccess",
    "Site",
    "StillPending",
    "Trouble",
    "Verdict",
    "fixes",
    "image_check",
]
