"""Replaces parts of moto by this package's classes, and restores them afterwards.

All other parts of AWS's services are moto's own: S3, SQS, EventBridge, IAM, STS, SSM, Logs, CloudWatch and more.
"""

from moto.autoscaling import models as autoscaling_models
from moto.autoscaling.responses import AutoScalingResponse
from moto.budgets.responses import BudgetsResponse
from moto.ce.responses import CostExplorerResponse
from moto.cloudwatch.models import CloudWatchBackend
from moto.core.authorization import ActionAuthenticatorMixin
from moto.core.base_backend import BackendDict
from moto.core.responses import BaseResponse
from moto.ec2.models import EC2Backend, ec2_backends
from moto.ec2.models import amis as moto_amis
from moto.ec2.models import instances as moto_instances
from moto.ec2.models import security_groups as moto_groups
from moto.ec2.models.nat_gateways import NatGatewayBackend
from moto.ec2.responses import instances as moto_instance_responses
from moto.ecr.responses import ECRResponse
from moto.eks import urls as eks_urls
from moto.eks.responses import EKSResponse
from moto.events.models import EventsBackend
from moto.iam.models import SERVICE_NAME_CONVERSION, IAMBackend
from moto.iam.responses import IamResponse
from moto.moto_api._internal.models import moto_api_backend
from moto.s3.models import FakeBucket, FakeDeleteMarker
from moto.s3.responses import S3Response
from moto.servicequotas.responses import ServiceQuotasResponse
from moto.sqs.models import Queue, SQSBackend
from moto.ssm.models import SimpleSystemManagerBackend
from moto.sts.responses import TokenResponse

from everspot_local.aws import budgets, cost_explorer, ecr, eks, eks_access, pages, refusals, service_quotas, sqs
from everspot_local.aws.account import ACCOUNT
from everspot_local.aws.autoscaling import groups as autoscaling
from everspot_local.aws.autoscaling import refresh
from everspot_local.aws.cloudwatch import alarms
from everspot_local.aws.ec2 import gateways, roles
from everspot_local.aws.ec2.images import LocalAmi
from everspot_local.aws.ec2.instances import LocalInstance
from everspot_local.aws.ec2.models import LocalEC2Backend
from everspot_local.aws.ec2.network_rules import LocalRule
from everspot_local.aws.events import rules as rule_limits
from everspot_local.aws.iam import door as iam
from everspot_local.aws.iam import rules as iam_rules
from everspot_local.aws.iam import signed_identity, simulator, web_identity
from everspot_local.aws.s3 import corrections as s3
from everspot_local.aws.s3 import door as s3_door
from everspot_local.aws.s3 import listing

_REPLACED: list[tuple[object, str, object]] = [
    (moto_instances, "Instance", LocalInstance),
    (moto_amis, "Ami", LocalAmi),
    (moto_groups, "SecurityGroupRule", LocalRule),
    (ServiceQuotasResponse, "list_service_quotas", service_quotas.list_service_quotas),
    (ServiceQuotasResponse, "get_service_quota", service_quotas.get_service_quota),
    (ServiceQuotasResponse, "get_aws_default_service_quota", service_quotas.get_aws_default_service_quota),
    (autoscaling_models, "FakeAutoScalingGroup", autoscaling.LocalGroup),
    (AutoScalingResponse, "call_action", autoscaling.call_action),
    (AutoScalingResponse, "start_instance_refresh", refresh.start_instance_refresh),
    (AutoScalingResponse, "describe_instance_refreshes", refresh.describe_instance_refreshes),
    (AutoScalingResponse, "cancel_instance_refresh", refresh.cancel_instance_refresh),
    (BudgetsResponse, "create_budget", budgets.create_budget),
    (BudgetsResponse, "list_tags_for_resource", budgets.list_tags_for_resource),
    (BudgetsResponse, "describe_subscribers_for_notification", budgets.describe_subscribers_for_notification),
    *((CostExplorerResponse, method.__name__, method) for method in cost_explorer.METHODS),
    *((EKSResponse, method.__name__, method) for method in (*eks.METHODS, *eks_access.METHODS)),
    (ECRResponse, "get_authorization_token", ecr.get_authorization_token),
    (eks_urls, "url_paths", {**eks.URL_PATHS, **eks_access.URL_PATHS}),
    (SimpleSystemManagerBackend, "get_parameter", eks.get_parameter),
    (NatGatewayBackend, "delete_nat_gateway", gateways.delete_nat_gateway),
    (IAMBackend, "create_service_linked_role", roles.create_service_linked_role),
    (BaseResponse, "call_action", refusals.call_action),
    (ActionAuthenticatorMixin, "_authenticate_and_authorize_normal_action", iam.enter_normal),
    (ActionAuthenticatorMixin, "_authenticate_and_authorize_s3_action", iam.enter_s3),
    (IAMBackend, "create_role", iam_rules.create_role),
    (IAMBackend, "update_assume_role_policy", iam_rules.update_assume_role_policy),
    (IAMBackend, "put_role_permissions_boundary", iam_rules.put_role_permissions_boundary),
    (IAMBackend, "put_role_policy", iam_rules.put_role_policy),
    (IAMBackend, "create_policy", iam_rules.create_policy),
    (IAMBackend, "create_policy_version", iam_rules.create_policy_version),
    (IAMBackend, "attach_role_policy", iam_rules.attach_role_policy),
    (IAMBackend, "create_instance_profile", iam_rules.create_instance_profile),
    (IAMBackend, "add_role_to_instance_profile", iam_rules.add_role_to_instance_profile),
    (IAMBackend, "remove_role_from_instance_profile", iam_rules.remove_role_from_instance_profile),
    (IAMBackend, "_tag_verification", iam_rules.tag_verification),
    (TokenResponse, "assume_role", web_identity.assume_role),
    (TokenResponse, "assume_role_with_web_identity", web_identity.assume_role_with_web_identity),
    (TokenResponse, "get_caller_identity", signed_identity.get_caller_identity),
    (EventsBackend, "put_rule", rule_limits.put_rule),
    (EventsBackend, "put_targets", rule_limits.put_targets),
    (EventsBackend, "tag_resource", rule_limits.tag_resource),
    (EventsBackend, "iter_tagged_resources", rule_limits.iter_tagged_resources),
    (CloudWatchBackend, "put_metric_alarm", alarms.put_metric_alarm),
    (SQSBackend, "create_queue", sqs.create_queue),
    (SQSBackend, "delete_queue", sqs.delete_queue),
    (SQSBackend, "tag_queue", sqs.tag_queue),
    (moto_instance_responses, "filter_iam_instance_profiles", iam_rules.filter_profiles),
    (IamResponse, "list_instance_profiles", pages.list_instance_profiles),
    (IamResponse, "list_instance_profiles_for_role", pages.list_instance_profiles_for_role),
    (IamResponse, "list_role_policies", pages.list_role_policies),
    (IamResponse, "simulate_principal_policy", simulator.simulate_principal_policy),
    (S3Response, "all_buckets", pages.all_buckets),
    (S3Response, "serialized", listing.serialized),
    (FakeBucket, "get_permission", iam.bucket_permission),
    (FakeDeleteMarker, "dispose", s3.dispose),
    (S3Response, "_bucket_response", s3_door.bucket_response),
    (S3Response, "_key_response", s3_door.key_response),
    (S3Response, "_bucket_response_put", s3.bucket_response_put),
    (Queue, "delete_message", sqs.delete_message),
    (SQSBackend, "send_message", sqs.send_message),
    (Queue, "add_message", sqs.add_message),
    (SQSBackend, "receive_message", sqs.receive_message),
    (Queue, "_set_attributes", sqs.set_attributes),
    (Queue, "attributes", property(sqs.attributes)),
]
_ABSENT = object()
_originals = [(place, name, getattr(place, name, _ABSENT)) for place, name, _ in _REPLACED]


def take_moto() -> None:
    """Put our classes in place of moto's, in an empty account."""
    for place, name, replacement in _REPLACED:
        setattr(place, name, replacement)
    SERVICE_NAME_CONVERSION.update(roles.NAMES)
    _use_backend(LocalEC2Backend)


def give_moto_back() -> None:
    """Restore moto's own classes, and empty its state."""
    for place, name, original in _originals:
        if original is _ABSENT:
            delattr(place, name)
        else:
            setattr(place, name, original)
    for name in roles.NAMES:
        SERVICE_NAME_CONVERSION.pop(name, None)
    _use_backend(EC2Backend)


def empty_moto() -> None:
    """Empty the account in every service."""
    moto_api_backend.reset()


def zone_ids(region: str) -> dict[str, str]:
    """Return zone ids by zone name."""
    zones = ec2_backends[ACCOUNT][region].describe_availability_zones()
    return {zone.name: zone.zone_id for zone in zones}


def _use_backend(kind: type[EC2Backend]) -> None:
    BackendDict.reset()
    ec2_backends.backend = kind
    ec2_backends.clear()
    empty_moto()
