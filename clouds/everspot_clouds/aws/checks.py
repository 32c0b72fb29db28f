"""Checks of `everspot doctor` that ask AWS: credentials, service-linked roles, clock, and why a fleet lacks
instances."""

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from importlib.util import find_spec
from typing import Any

from everspot_core.capacity.catalogue import Catalogue
from everspot_core.capacity.market import Market
from everspot_core.clock import Clock
from everspot_core.cluster.manifest import Elastic, Manifest
from everspot_core.counting import counted

from everspot_clouds.aws import rules
from everspot_clouds.aws.quotas import (
    CONSOLE,
    Launchable,
    Quota,
    Reach,
    enough,
    find_quota,
    launchable,
    needs,
    stated_quotas,
)
from everspot_clouds.base import Check, Trouble, Verdict, image_check

LINKED_ROLES = (rules.FLEET_ROLE[1], rules.SPOT_ROLE[1])
SKEW = timedelta(seconds=60)  # signatures are refused from five minutes on
_HISTORY = timedelta(hours=1)
_QUOTA_FIX = f"ask for more: {CONSOLE}"
_MATTER = {Trouble.CAPACITY: "capacity", Trouble.QUOTA: "quota", Trouble.CREDENTIALS: "credentials"}
"""The group of checks that an error belongs to. An error that is not listed belongs to the group of the check that met
it."""


def cloud_checks(region: str | None, manifest: Manifest | None, catalogue: Catalogue, clock: Clock) -> list[Check]:
    """Check credentials first, and the rest only if they work. Without boto3 nothing is asked. `manifest` None: it
    cannot be read."""
    if (checks := client_missing()) is not None:
        return checks
    checks = guarded("credentials", "credentials", lambda: credential_checks(client(region, "sts"), clock))
    if checks[0].verdict is Verdict.OK:
        checks += _account(checks[0].detail, manifest)
        checks += guarded("service-linked roles", "user", lambda: linked_role_checks(client(region, "iam")))
        if manifest is not None:
            checks += guarded("job role", "user", lambda: _job_role(client(region, "iam"), manifest.job_role))
            checks += guarded("image", "user", lambda: _images(client(region, "ec2"), manifest.cluster))
            checks += guarded("fleet", "capacity", lambda: _fleet(client(region, "ec2"), manifest.cluster))
            checks += guarded(
                "quota", "quota", lambda: quota_checks(client(region, "service-quotas"), manifest, catalogue)
            )
    return checks


def account_checks(region: str | None, manifest: Manifest | None, catalogue: Catalogue, clock: Clock) -> list[Check]:
    """Check what the instances of any kind of cluster need of an account: the credentials first, and if they work and
    there is a manifest the service-linked roles and the quotas."""
    checks = guarded("credentials", "credentials", lambda: credential_checks(client(region, "sts"), clock))
    if checks[0].verdict is Verdict.OK and manifest is not None:
        checks += guarded("service-linked roles", "user", lambda: linked_role_checks(client(region, "iam")))
        checks += guarded("quota", "quota", lambda: quota_checks(client(region, "service-quotas"), manifest, catalogue))
    return checks


def client_missing() -> list[Check] | None:
    """Return the only check that can be made without boto3; None if it is installed."""
    if find_spec("boto3") is not None:
        return None
    fix = "pip install 'everspot[cli]'"
    return [Check("credentials", "credentials", Verdict.SKIP, "boto3 is not installed", fix)]


def client(region: str | None, service: str) -> Any:
    """Return boto3's client of a service for checks: it gives up soon. `region` None: the environment's."""
    import boto3
    from botocore.config import Config

    config = Config(connect_timeout=5, read_timeout=15, retries={"total_max_attempts": 2})
    # boto3 itself reads AWS_DEFAULT_REGION only.
    return boto3.client(service, region_name=region or os.environ.get("AWS_REGION"), config=config)


def guarded(name: str, group: str, check: Callable[[], list[Check]]) -> list[Check]:
    """Make a check, and return AWS's refusal as a check if it cannot be made."""
    from botocore.exceptions import BotoCoreError, ClientError

    from everspot_clouds.aws.errors import FIX, format_error, trouble

    try:
        return check()
    except ClientError as error:
        kind = trouble(error)
        verdict = Verdict.FAIL if group == "credentials" else Verdict.SKIP
        return [Check(_MATTER.get(kind, group), name, verdict, format_error(error), FIX[kind])]
    except BotoCoreError as error:
        return [Check(group, name, Verdict.FAIL, str(error), FIX[Trouble.CREDENTIALS])]


def credential_checks(sts: Any, clock: Clock) -> list[Check]:
    """Return the checks of the caller's identity, and of this machine's clock."""
    answer = sts.get_caller_identity()
    checks = [Check("credentials", "credentials", Verdict.OK, answer["Arn"])]
    stated = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    if stated:
        # The service's clock against this machine's: both real time, whatever the market's time is.
        skew = abs(datetime.now(UTC) - parsedate_to_datetime(stated))
        detail = f"{skew.total_seconds():.0f} s from the service's"
        verdict = Verdict.OK if skew < SKEW else Verdict.FAIL
        checks.append(Check("clock", "clock", verdict, detail, "set this machine's clock: signatures will be refused"))
    return checks


def _account(identity: str, manifest: Manifest | None) -> list[Check]:
    """Return a warning if the caller's account is not that of the cluster's roles. `identity`: the caller's ARN."""
    own, roles = identity.split(":")[4], (manifest.job_role or "").split(":") if manifest is not None else []
    if len(roles) < 5 or roles[4] == own:
        return []
    detail = f"these credentials are of {own}, and the cluster's roles of {roles[4]}: the checks below ask {own}"
    fix = "the cluster's profile: everspot cluster use NAME --profile PROFILE"
    return [Check("credentials", "account", Verdict.WARN, detail, fix)]


def _job_role(iam: Any, arn: str | None) -> list[Check]:
    """Return the check of the role that agents take for each job. `arn`: None with `jobRole: false`, and in
    clusters of an earlier release."""
    from botocore.exceptions import ClientError

    if arn is None:
        detail = "jobs have all permissions of the agents: the cluster has no role for them"
        return [Check("user", "job role", Verdict.WARN, detail, "leave out `jobRole: false`, then pulumi up")]
    try:
        iam.get_role(RoleName=arn.rpartition("/")[2])
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") != "NoSuchEntity":
            raise
        detail = f"{arn} does not exist, so that no job can begin"
        return [Check("user", "job role", Verdict.FAIL, detail, "pulumi up, which makes it again")]
    return [Check("user", "job role", Verdict.OK, arn)]


def linked_role_checks(iam: Any) -> list[Check]:
    """Return the check of the roles that EC2 Fleet and Spot need once per account."""
    from botocore.exceptions import ClientError

    missing = []
    for role in LINKED_ROLES:
        try:
            iam.get_role(RoleName=role)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") != "NoSuchEntity":
                raise
            missing.append(role)
    if missing:
        fix = "once per account: pulumi up -s account"
        return [Check("user", "service-linked roles", Verdict.FAIL, f"missing: {', '.join(missing)}", fix)]
    return [Check("user", "service-linked roles", Verdict.OK, "both exist")]


def _images(ec2: Any, cluster: str) -> list[Check]:
    """Return one check for each image that the cluster's launch templates name. None without a template."""
    filters = [{"Name": f"tag:{rules.CLUSTER_TAG}", "Values": [cluster]}]
    templates = ec2.get_paginator("describe_launch_templates").paginate(Filters=filters)
    users: dict[str, list[str]] = {}
    for template in (template for page in templates for template in page["LaunchTemplates"]):
        versions = ec2.describe_launch_template_versions(
            LaunchTemplateId=template["LaunchTemplateId"], Versions=["$Latest"]
        )["LaunchTemplateVersions"]
        for image in (version["LaunchTemplateData"].get("ImageId") for version in versions):
            if image:
                users.setdefault(image, []).append(template["LaunchTemplateName"])
    return [_image(ec2, image, names) for image, names in sorted(users.items())]


def _image(ec2: Any, image: str, templates: list[str]) -> Check:
    """Return the state of an image. By a filter, since an image id that is not there fails the whole call."""
    filters = [{"Name": "image-id", "Values": [image]}]
    images = ec2.describe_images(Filters=filters, IncludeDeprecated=True, IncludeDisabled=True)["Images"]
    label = f"{image}, of {', '.join(sorted(templates))}"
    if not images:
        words = f"{label}, does not exist or is not shared with this account any more (InvalidAMIID.NotFound)"
        return image_check(words)
    if (state := images[0].get("State", "available")) != "available":
        return image_check(f"{label}, is {state} (InvalidAMIID.Unavailable)")
    return Check("user", "image", Verdict.OK, label)


def _fleet(ec2: Any, cluster: str) -> list[Check]:
    from everspot_clouds.aws.errors import FIX, classify_code

    pages = ec2.get_paginator("describe_fleets").paginate(
        Filters=[{"Name": "fleet-state", "Values": ["active", "modifying"]}]
    )
    cluster_tag = {"Key": rules.CLUSTER_TAG, "Value": cluster}
    own = [fleet for page in pages for fleet in page["Fleets"] if cluster_tag in fleet.get("Tags", [])]
    if not own:
        return [Check("user", "fleet", Verdict.WARN, f"no fleet is tagged {rules.CLUSTER_TAG}={cluster}", "pulumi up")]
    checks = []
    for fleet in own:
        target = fleet["TargetCapacitySpecification"]["TotalTargetCapacity"]
        has = fleet.get("FulfilledCapacity", 0.0)
        errors = _errors(ec2, fleet) if has < target else []
        label = f"{fleet['FleetId']}: {has:g} of {target:g}"
        if has >= target:
            checks.append(Check("capacity", "fleet", Verdict.OK, label))
        for code, text in errors or ([("", "")] if has < target else []):
            kind = (classify_code(code) or Trouble.REQUEST) if code else Trouble.CAPACITY
            matter = _MATTER.get(kind, "user")
            checks.append(Check(matter, "fleet", Verdict.WARN, f"{label} {code} {text}".strip(), FIX[kind]))
    return checks


def _errors(ec2: Any, fleet: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the last hour's errors, one for each code."""
    messages = {e["ErrorCode"]: e.get("ErrorMessage", "") for e in fleet.get("Errors", []) if "ErrorCode" in e}
    from botocore.exceptions import ClientError

    try:
        records = ec2.describe_fleet_history(
            FleetId=fleet["FleetId"], EventType="service-error", StartTime=datetime.now(UTC) - _HISTORY
        )["HistoryRecords"]
    except ClientError:
        records = []  # the history only adds the reasons, so failing to read it is not reported
    for record in records:
        event = record.get("EventInformation", {})
        messages[event.get("EventSubType", "error")] = event.get("EventDescription", "")
    return sorted(messages.items())


def quota_checks(service_quotas: Any, manifest: Manifest, catalogue: Catalogue) -> list[Check]:
    """Return one check for each quota that counts for the fleets, and for launches on top of them. None for a cluster
    that declares neither."""
    standing, elastic = manifest.standing, manifest.elastic
    if standing is None and elastic is None:
        return []
    pages = service_quotas.get_paginator("list_service_quotas").paginate(ServiceCode="ec2")
    stated = [quota for page in pages for quota in page["Quotas"]]
    values = {quota["QuotaCode"]: float(quota["Value"]) for quota in stated}
    quotas = stated_quotas({quota["QuotaCode"]: quota["QuotaName"] for quota in stated})
    first = _scheduler_quota(manifest.scheduler_type or "", catalogue, values)
    quota_needs = needs(
        {Market.ON_DEMAND: standing.on_demand_units, Market.SPOT: standing.spot_units} if standing else {},
        standing.weights if standing else {},
        _launchable(elastic, catalogue, manifest.region) if elastic is not None else {},
        catalogue.types,
        values,
        quotas,
    )
    checks = [first] if first is not None else []
    checks += _unstated(manifest, quotas)
    for need in quota_needs:
        # Elastic capacity makes do with what there is: only a quota that allows none at all is a failure.
        suffices = enough(need.count, need.reaches) if need.standing else any(r.units != 0 for r in need.reaches)
        noun = "unit" if need.standing else "launched instance"
        checks += [_check(need.count, noun, reach, suffices) for reach in need.reaches]
    return checks


def _unstated(manifest: Manifest, quotas: Sequence[Quota]) -> list[Check]:
    """Return a check for the Spot types whose quota the account does not state: they are compared with none."""
    standing, elastic = manifest.standing, manifest.elastic
    names = set(standing.weights) if standing is not None and standing.spot_units else set()
    if elastic is not None and Market.SPOT in elastic.markets:
        names |= set(elastic.types)
    unstated = sorted(name for name in names if find_quota(name, Market.SPOT, quotas) is None)
    if not unstated:
        return []
    detail = f"{', '.join(unstated)}: Service Quotas names no Spot quota of this family; it is compared with none"
    return [Check("quota", "quota", Verdict.SKIP, detail)]


def _scheduler_quota(kind: str, catalogue: Catalogue, values: dict[str, float]) -> Check | None:
    """Return the use of the scheduler's machine of its quota, and take it off `values`. None if its type or the quota
    is unknown."""
    quota, machine = find_quota(kind, Market.ON_DEMAND), catalogue.types.get(kind)
    if quota is None or machine is None or quota.code not in values:
        return None
    vcpus = values[quota.code]
    values[quota.code] = max(0.0, vcpus - machine.vcpus)
    detail = f"{quota.name} ({quota.code}): {vcpus:g} vCPUs; the scheduler, {kind}, takes {machine.vcpus}"
    verdict = Verdict.OK if vcpus >= machine.vcpus else Verdict.FAIL
    return Check(
        "quota", "quota", verdict, detail, "" if vcpus >= machine.vcpus else _QUOTA_FIX.format(code=quota.code)
    )


def _launchable(elastic: Elastic, catalogue: Catalogue, region: str) -> Launchable:
    cap = elastic.max_usd_per_hour
    return launchable(elastic.max_instances, cap, elastic.markets, elastic.types, catalogue, region)


def _check(count: int, noun: str, reach: Reach, suffices: bool) -> Check:
    quota, types = reach.quota, ", ".join(reach.types)
    if reach.vcpus is None:
        return Check("quota", "quota", Verdict.SKIP, f"{quota.name} ({quota.code}): not told by Service Quotas")
    label = f"{quota.name} ({quota.code}): {reach.vcpus:g} vCPUs"
    if reach.units is None:
        return Check("quota", "quota", Verdict.OK, f"{label}; {counted(count, noun)} of {types} take {reach.least:g}")
    verdict = Verdict.WARN if suffices else Verdict.FAIL
    detail = (
        f"{label}, enough for {reach.units:g} of {counted(count, noun)} of {types}; all of them take {reach.least:g}"
    )
    return Check("quota", "quota", verdict, detail, _QUOTA_FIX.format(code=quota.code))
