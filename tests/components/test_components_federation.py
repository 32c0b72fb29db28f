"""Two clusters, one in each cloud, that exchange jobs: each grants the other's scheduler the permissions that it needs,
and no others."""

import json
from typing import Any

import pytest
from everspot.aws.federation import near_arns
from everspot_core.cluster.manifest import Manifest
from everspot_core.validation.problems import camel
from everspot_local.aws.iam.policy_language import Call, PolicyDecision, decide
from everspot_local.gcp.iam.conditions import compiled
from federated_pair import AWS, GOOGLE, NEAR, NEIGHBOUR, ON_AWS, ON_GOOGLE, ROLE, Pair, statements

ROLES = "aws:iam/role:Role"
POLICIES = "aws:iam/rolePolicy:RolePolicy"


def manifest(recorder: Any, cluster: str) -> Manifest:
    content = recorder.inputs(f"{cluster}-manifest")["content"]
    return Manifest.model_validate_json(content if isinstance(content, str) else content["value"])


def test_what_a_stack_prints_is_an_entry_of_anothers_federation(pair: Pair) -> None:
    _, on_aws = pair.aws()
    _, on_google = pair.google()
    assert set(on_aws["peer"]) == {camel(key) for key in ON_AWS}
    assert set(on_google["peer"]) == {camel(key) for key in ON_GOOGLE}
    assert on_google["peer"] == {camel(key): value for key, value in ON_GOOGLE.items()}


def test_each_becomes_at_the_other_what_the_other_declares_for_it(pair: Pair) -> None:
    aws, _ = pair.aws(ON_GOOGLE)
    google, _ = pair.google(ON_AWS)
    (outbound,) = manifest(aws, AWS).federation
    (back,) = manifest(google, GOOGLE).federation
    # At Google Cloud: a service account, by the pool's provider for this cluster.
    account = google.inputs(f"{GOOGLE}-peer-{AWS}")["accountId"]
    assert outbound.identity == f"{account}@everspot-local.iam.gserviceaccount.com"
    pool = google.inputs(f"{GOOGLE}-peers")["workloadIdentityPoolId"]
    provider = google.inputs(f"{GOOGLE}-peer-{AWS}-provider")
    place = f"projects/100000000001/locations/global/workloadIdentityPools/{pool}"
    assert outbound.audience == f"{place}/providers/{provider['workloadIdentityPoolProviderId']}"
    assert 4 <= len(pool) <= 32 and 4 <= len(provider["workloadIdentityPoolProviderId"]) <= 32 and len(account) <= 30
    # At AWS: a role.
    role = aws.inputs(f"{AWS}-peer-{GOOGLE}")["name"]
    assert (back.identity, back.audience) == (f"arn:aws:iam::123456789012:role/{role}", "")
    assert (outbound.control_url, outbound.data_url) == (ON_GOOGLE["control"], ON_GOOGLE["data"])
    assert outbound.egress_usd_per_gb == back.egress_usd_per_gb == 0.12
    assert manifest(pair.aws({**ON_GOOGLE, "egress_usd_per_gb": 0.02})[0], AWS).federation[0].egress_usd_per_gb == 0.02


def test_within_a_cloud_nothing_is_proven_to_another_one(pair: Pair) -> None:
    aws, _ = pair.aws(NEIGHBOUR)
    google, _ = pair.google({**ON_GOOGLE, "name": "everspot-far"})
    (near,) = manifest(aws, AWS).federation
    (far,) = manifest(google, GOOGLE).federation
    assert near.identity.startswith("arn:aws:iam::123456789012:role/everspot-visit-")
    assert (near.audience, far.identity, far.audience) == ("", "", "")
    assert (near.egress_usd_per_gb, far.egress_usd_per_gb) == (0.0, 0.02)
    assert not [a for a in google.resources if "workloadIdentityPool" in a.typ]
    (trust,) = json.loads(aws.inputs(f"{AWS}-peer-{NEAR}")["assumeRolePolicy"])["Statement"]
    assert trust["Principal"] == {"AWS": ROLE} and trust["Action"] == "sts:AssumeRole"
    may = Call("sts:AssumeRole", near.identity)
    assert decide(statements(aws, f"{AWS}-federation"), may) is PolicyDecision.ALLOW
    assert decide(statements(aws, f"{AWS}-federation"), Call("sts:AssumeRole", f"{near.identity}0")) is not may


def test_aws_trusts_one_service_account_and_tokens_for_this_role_alone(pair: Pair) -> None:
    aws, _ = pair.aws(ON_GOOGLE)
    trust = json.loads(aws.inputs(f"{AWS}-peer-{GOOGLE}")["assumeRolePolicy"])
    role = f"arn:{AWS}-identity-scheduler".partition(":role/")[0]
    unique = ON_GOOGLE["scheduler_id"]
    (statement,) = trust["Statement"]
    keys = statement["Condition"]["StringEquals"]
    assert (
        keys["accounts.google.com:oaud"].startswith(role)
        and ":role/everspot-visit-" in keys["accounts.google.com:oaud"]
    )
    sound = {key: (value,) for key, value in keys.items()}
    action = "sts:AssumeRoleWithWebIdentity"
    assert keys["accounts.google.com:sub"] == keys["accounts.google.com:aud"] == unique
    assert decide([trust], Call(action, context=sound), "accounts.google.com") is PolicyDecision.ALLOW
    for key in keys:
        for other in ({**sound, key: ("1",)}, {k: v for k, v in sound.items() if k != key}):
            assert decide([trust], Call(action, context=other), "accounts.google.com") is PolicyDecision.IMPLICIT
    assert decide([trust], Call(action, context=sound), "cognito-identity.amazonaws.com") is PolicyDecision.IMPLICIT


def test_google_takes_sessions_of_one_role_and_lets_nobody_else_become_the_visitor(pair: Pair) -> None:
    google, _ = pair.google(ON_AWS)
    provider = google.inputs(f"{GOOGLE}-peer-{AWS}-provider")
    names = ("assertion.arn",)
    admits = compiled(provider["attributeCondition"], names)
    mapped = {key: compiled(text, names) for key, text in provider["attributeMapping"].items()}
    session = "arn:aws:sts::123456789012:assumed-role/everspot-aws-identity-scheduler-1/i-1"
    assert admits({"assertion.arn": session}) is True
    for other in (session.replace("scheduler-1", "scheduler-12"), session.replace("1234", "4321"), ROLE):
        assert admits({"assertion.arn": other}) is False
    assert provider["aws"] == {"accountId": "123456789012"}
    assert mapped["attribute.aws_role"]({"assertion.arn": session}) == "everspot-aws-identity-scheduler-1"
    user = google.inputs(f"{GOOGLE}-peer-{AWS}-user")
    assert user["role"] == "roles/iam.workloadIdentityUser"
    assert user["member"].endswith("/attribute.aws_role/everspot-aws-identity-scheduler-1")


def test_the_way_out_is_the_schedulers_alone_and_only_where_endpoints_do_not_lead(pair: Pair) -> None:
    aws, _ = pair.aws(ON_GOOGLE)
    kinds = {args.typ.rpartition(":")[2] for args in aws.resources}
    assert {"NatGateway", "InternetGateway", "Eip", "Route"} <= kinds
    scheduler, agents = (
        aws.inputs(f"{AWS}-{part}-template")["networkInterfaces"][0]["securityGroups"]
        for part in ("scheduler", "fleet")
    )
    outside = f"{AWS}-network-scheduler-id"
    assert outside in scheduler and outside not in agents
    open_to_all = [a.inputs for a in aws.of_type("aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule")
                   if a.inputs.get("cidrIpv4") == "0.0.0.0/0"]  # fmt: skip
    assert [rule["securityGroupId"] for rule in open_to_all] == [outside]
    assert aws.inputs(f"{AWS}-network-outside")["cidrBlock"] == "10.64.255.240/28"
    near, _ = pair.aws(NEIGHBOUR)
    assert not {args.typ.rpartition(":")[2] for args in near.resources} & {
        "NatGateway",
        "InternetGateway",
        "Eip",
        "Route",
    }
    assert f"{AWS}-network-endpoint-sts" in near.types_by_name()
    allowed = json.loads(near.inputs(f"{AWS}-network-endpoint-s3")["policy"])["Statement"][0]["Resource"]
    assert {"arn:aws:s3:::near-control", "arn:aws:s3:::near-data/*"} <= set(allowed)
    assert [a.name for a in pair.google(ON_AWS)[0].resources if a.typ.endswith(":RouterNat")] == [
        f"{GOOGLE}-network-nat"
    ]
    google, _ = pair.google(ON_AWS)
    (served,) = google.inputs(f"{GOOGLE}-network-nat")["subnetworks"]
    scheduler, agents = (
        google.inputs(f"{GOOGLE}-{part}")["networkInterfaces"][0]["subnetwork"]
        for part in ("scheduler-template", "fleet-spot-agent")
    )
    assert served["name"] == scheduler != agents
    own = google.inputs(f"{GOOGLE}-network-scheduler")
    assert (own["ipCidrRange"], own["privateIpGoogleAccess"]) == ("10.63.255.240/28", True)
    everybody = pair.google(ON_AWS, nat=True)[0].inputs(f"{GOOGLE}-network-nat")["subnetworks"]
    assert {each["name"] for each in everybody} == {scheduler, agents}
    alone = pair.google({**ON_GOOGLE, "name": "everspot-far"})[0]
    assert not [a.name for a in alone.resources if a.typ.endswith(":RouterNat")]


@pytest.mark.parametrize(
    ("region", "partition"),
    [("eu-west-1", "aws"), ("us-gov-west-1", "aws-us-gov"), ("cn-north-1", "aws-cn"), ("eusc-de-east-1", "aws-eusc")],
)
def test_buckets_of_a_peer_in_the_region_are_named_in_the_regions_partition(region: str, partition: str) -> None:
    urls = {part: f"s3://near-{part}?region={region}" for part in ("control", "data")}
    peer: Any = {**NEIGHBOUR, **urls}
    assert near_arns([peer], region) == [f"arn:{partition}:s3:::near-control", f"arn:{partition}:s3:::near-data"]
