"""Stands in for AWS's other services: says which of moto's parts are ours, and puts moto's own back afterwards.

Everything that is not named here is moto as it comes: S3, SQS, EventBridge, IAM, STS, SSM, Logs, CloudWatch and more.
"""

from moto.autoscaling import models as autoscaling_models
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.authorization import ActionAuthenticatorMixin
from moto.core.base_backend import BackendDict
from moto.core.responses import BaseResponse
from moto.ec2.models import EC2Backend, ec2_backends
from moto.ec2.models import amis as moto_amis
from moto.ec2.models import instances as moto_instances
from moto.iam.models import SERVICE_NAME_CONVERSION, IAMBackend
from moto.moto_api._internal.models import moto_api_backend
from moto.s3.models import FakeBucket, FakeDeleteMarker
from moto.s3.responses import S3Response
from moto.servicequotas.responses import ServiceQuotasResponse
from moto.sqs.models import Queue

from everspot_local import autoscaling, iam, refresh, refusals, s3, s3_door, service_quotas, sqs
from everspot_local.ec2 import roles
from everspot_local.ec2.images import LocalAmi
from everspot_local.ec2.instances import LocalInstance
from everspot_local.ec2.models import LocalEC2Backend
from everspot_local.world import ACCOUNT

_REPLACED: list[tuple[object, str, object]] = [
    (moto_instances, "Instance", LocalInstance),
    (moto_amis, "Ami", LocalAmi),
    (ServiceQuotasResponse, "list_service_quotas", service_quotas.list_service_quotas),
    (ServiceQuotasResponse, "get_service_quota", service_quotas.get_service_quota),
    (autoscaling_models, "FakeAutoScalingGroup", autoscaling.LocalGroup),
    (AutoScalingResponse, "call_action", autoscaling.call_action),
    (AutoScalingResponse, "start_instance_refresh", refresh.start_instance_refresh),
    (AutoScalingResponse, "describe_instance_refreshes", refresh.describe_instance_refreshes),
    (AutoScalingResponse, "cancel_instance_refresh", refresh.cancel_instance_refresh),
    (IAMBackend, "create_service_linked_role", roles.create_service_linked_role),
    (BaseResponse, "call_action", refusals.call_action),
    (ActionAuthenticatorMixin, "_authenticate_and_authorize_normal_action", iam.enter_normal),
    (ActionAuthenticatorMixin, "_authenticate_and_authorize_s3_action", iam.enter_s3),
    (FakeBucket, "get_permission", iam.bucket_permission),
    (FakeDeleteMarker, "dispose", s3.dispose),
    (S3Response, "_bucket_response", s3_door.bucket_response),
    (S3Response, "_key_response", s3_door.key_response),
    (S3Response, "_bucket_response_put", s3.bucket_response_put),
    (Queue, "_set_attributes", sqs.set_attributes),
    (Queue, "attributes", property(sqs.attributes)),
]
_ABSENT = object()
_originals = [(place, name, getattr(place, name, _ABSENT)) for place, name, _ in _REPLACED]


def take_moto() -> None:
    """Put our classes where moto makes its own, in an account with nothing in it."""
    for place, name, ours in _REPLACED:
        setattr(place, name, ours)
    SERVICE_NAME_CONVERSION.update(roles.NAMES)
    _use_backend(LocalEC2Backend)


def give_moto_back() -> None:
    """moto as it comes, with nothing in it."""
    for place, name, original in _originals:
        if original is _ABSENT:
            delattr(place, name)
        else:
            setattr(place, name, original)
    for name in roles.NAMES:
        SERVICE_NAME_CONVERSION.pop(name, None)
    _use_backend(EC2Backend)


def empty_moto() -> None:
    """An account with nothing in it, in every service."""
    moto_api_backend.reset()


def zone_ids(region: str) -> dict[str, str]:
    """Zone ids by zone name."""
    zones = ec2_backends[ACCOUNT][region].describe_availability_zones()
    return {zone.name: zone.zone_id for zone in zones}


def _use_backend(kind: type[EC2Backend]) -> None:
    BackendDict.reset()
    ec2_backends.backend = kind
    ec2_backends.clear()
    empty_moto()
