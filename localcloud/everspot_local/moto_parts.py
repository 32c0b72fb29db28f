"""Stands in for AWS's other services: says which of moto's parts are ours, and empties them all.

Everything that is not named here is moto as it comes: S3, SQS, EventBridge, IAM, STS, SSM, Logs, CloudWatch and more.
"""

import threading

from moto.core.base_backend import BackendDict
from moto.ec2.models import ec2_backends
from moto.ec2.models import instances as moto_instances
from moto.moto_api._internal.models import moto_api_backend

from everspot_local import autoscaling, iam
from everspot_local.ec2 import roles
from everspot_local.ec2.instances import LocalInstance
from everspot_local.ec2.models import LocalEC2Backend
from everspot_local.world import ACCOUNT

_lock = threading.Lock()


def teach_moto() -> None:
    """Put our classes where moto makes its own. Doing it twice changes nothing."""
    with _lock:
        if ec2_backends.backend is not LocalEC2Backend:
            BackendDict.reset()
            ec2_backends.backend = LocalEC2Backend
            ec2_backends.clear()
        moto_instances.Instance = LocalInstance  # type: ignore[misc]
        roles.teach_moto()
        autoscaling.teach_moto()
        iam.teach_moto()


def empty_moto() -> None:
    """An account with nothing in it, in every service."""
    with _lock:
        moto_api_backend.reset()


def zone_ids(region: str) -> dict[str, str]:
    """Zone ids by zone name."""
    zones = ec2_backends[ACCOUNT][region].describe_availability_zones()
    return {zone.name: zone.zone_id for zone in zones}
