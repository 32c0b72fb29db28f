"""Two clusters, one in each cloud, that exchange jobs: each declares what the other's scheduler may do, and no more."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from everspot import AwsTrainingCluster, GcpTrainingCluster
from everspot_core.manifest import Manifest
from everspot_core.problems import camel
from everspot_core.visits import visits_of
from everspot_local.aws.iam.policy_language import Call, PolicyDecision, decide
from everspot_local.gcp.iam.conditions import compiled, holds
from gcp_helpers import SPEC

Declare = Callable[..., tuple[Any, dict[str, Any]]]
AWS, GOOGLE, NEAR = "everspot-aws", "everspot-gcp", "everspot-near"
ROLE = "arn:aws:iam::123456789012:role/everspot-aws-identity-scheduler-1"
ACCOUNT = f"{GOOGLE}-scheduler@everspot-local.iam.gserviceaccount.com"
ON_AWS = {
    "name": AWS, "cloud": "aws", "control": "s3://aws-control?region=eu-west-1",
    "data": "s3://aws-data?region=eu-west-1", "scheduler": ROLE,
}  # fmt: skip
ON_GOOGLE = {
    "name": GOOGLE, "cloud": "gcp", "control": "gs://everspot-gcp-store-control", "data": "gs://everspot-gcp-store-data",
    "scheduler": ACCOUNT, "scheduler_id": "100000000000123456789", "project_number": "100000000001",
}  # fmt: skip
NEIGHBOUR = {**ON_AWS, "name": NEAR, "control": "s3://near-control?region=eu-west-1",
             "data": "s3://near-data?region=eu-west-1"}  # fmt: skip
ROLES = "aws:iam/role:Role"
POLICIES = "aws:iam/rolePolicy:RolePolicy"


class Pair:
    """A cluster of each cloud, declared with peers."""

    def __init__(self, declare: Declare, spec: Any) -> None:
        self._declare, self._spec = declare, spec

    def aws(self, *peers: Any, preview: bool = False, **changes: Any) -> tuple[Any, dict[str, Any]]:
        args: Any = {**copy.deepcopy(self._spec), **changes, "federation": list(peers)}
        return self._declare(lambda: {"peer": AwsTrainingCluster(AWS, args).peer}, preview=preview)

    def google(self, *peers: Any, preview: bool = False, **changes: Any) -> tuple[Any, dict[str, Any]]:
        args: Any = {**copy.deepcopy(SPEC), **changes, "federation": list(peers)}
        return self._declare(lambda: {"peer": GcpTrainingCluster(GOOGLE, args).peer}, preview=preview)


@pytest.fixture
def pair(declare: Declare, spec: Any) -> Pair:
    return Pair(declare, spec)


def manifest(recorder: Any, cluster: str) -> Manifest:
    content = recorder.inputs(f"{cluster}-manifest")["content"]
    return Manifest.model_validate_json(content if isinstance(content, str) else content["value"])


def statements(recorder: Any, name: str) -> list[Any]:
    return [json.loads(recorder.inputs(name)["policy"])]


def test_what_a_stack_prints_is_an_entry_of_anothers_federation(pair: Pair) -> None:
    _, on_aws = pair.aws()
    _, on_google = pair.google()
    assert set(on_aws["peer"]) == {camel(key) for key in ON_AWS}
    assert set(on_google["peer"]) == {camel(key) for key in ON_GOOGLE}
    assert on_google["peer"] == {camel(key): value for key, value in ON_GOOGLE.items()}


def test_each_becomes_at_the_other_what_the_other_declares_for_it(pair: Pair) -> None:
    aws, _ = pair.aws(ON_GOOGLE)
    google, _ = pair.google(ON_AWS)
    (there,) = manifest(aws, AWS).federation
    (back,) = manifest(google, GOOGLE).federation
    # At Google Cloud: a service account, by the pool's provider for this cluster.
    account = google.inputs(f"{GOOGLE}-peer-{AWS}")["accountId"]
    assert there.identity == f"{account}@everspot-local.iam.gserviceaccount.com"
    pool = google.inputs(f"{GOOGLE}-peers")["workloadIdentityPoolId"]
    provider = google.inputs(f"{GOOGLE}-peer-{AWS}-provider")
    place = f"projects/100000000001/locations/global/workloadIdentityPools/{pool}"
    assert there.audience == f"{place}/providers/{provider['workloadIdentityPoolProviderId']}"
    assert 4 <= len(pool) <= 32 and 4 <= len(provider["workloadIdentityPoolProviderId"]) <= 32 and len(account) <= 30
    # At AWS: a role.
    role = aws.inputs(f"{AWS}-peer-{GOOGLE}")["name"]
    assert (back.identity, back.audience) == (f"arn:aws:iam::123456789012:role/{role}", "")
    assert (there.control_url, there.data_url) == (ON_GOOGLE["control"], ON_GOOGLE["data"])
    assert there.egress_usd_per_gb == back.egress_usd_per_gb == 0.12
    assert manifest(pair.aws({**ON_GOOGLE, "egress_usd_per_gb": 0.02})[0], AWS).federation[0].egress_usd_per_gb == 0.02


def test_within_a_cloud_nothing_is_proven_to_another_one(pair: Pair) -> None:
    aws, _ = pair.aws(NEIGHBOUR)
    google, _ = pair.google({**ON_GOOGLE, "name": "everspot-far"})
    (near,) = manifest(aws, AWS).federation
    (far,) = manifest(google, GOOGLE).federation
    assert near.identity.startswith("arn:aws:iam::123456789012:role/everspot-visit-")
    assert (near.audience, far.identity, far.audience) == ("", "", "")
    assert (near.egress_usd_per_gb, far.egress_usd_per_gb) == (0.0, 0.02)
    assert not [a for a in google.seen if "workloadIdentityPool" in a.typ]
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
    taken = compiled(provider["attributeCondition"], names)
    mapped = {key: compiled(text, names) for key, text in provider["attributeMapping"].items()}
    session = "arn:aws:sts::123456789012:assumed-role/everspot-aws-identity-scheduler-1/i-1"
    assert taken({"assertion.arn": session}) is True
    for other in (session.replace("scheduler-1", "scheduler-12"), session.replace("1234", "4321"), ROLE):
        assert taken({"assertion.arn": other}) is False
    assert provider["aws"] == {"accountId": "123456789012"}
    assert mapped["attribute.aws_role"]({"assertion.arn": session}) == "everspot-aws-identity-scheduler-1"
    user = google.inputs(f"{GOOGLE}-peer-{AWS}-user")
    assert user["role"] == "roles/iam.workloadIdentityUser"
    assert user["member"].endswith("/attribute.aws_role/everspot-aws-identity-scheduler-1")


CONTROL, DATA = "arn:everspot-aws-store-control", "arn:everspot-aws-store-data"
MINE, THEIRS = (f"{visits_of(home)}{'5' * 16}-v1" for home in (GOOGLE, NEAR))
"""A visit of the peer, and one of another peer."""
MAY = [
    ("s3:GetObject", f"{CONTROL}/cluster.json", True),
    ("s3:GetObject", f"{CONTROL}/pools.json", True),
    *[("s3:GetObject", f"{CONTROL}/{place}/{MINE}.json", True) for place in ("visits", "records", "heads")],
    ("s3:GetObject", f"{CONTROL}/events/{MINE}/1.json", True),
    ("s3:GetObject", f"{CONTROL}/archive/2026-01/{MINE}.json", True),
    ("s3:GetObject", f"{CONTROL}/archive/2026-01/train.json", False),
    *[("s3:GetObject", f"{CONTROL}/jobs/{job}.json", False) for job in ("train", MINE)],
    ("s3:GetObject", f"{CONTROL}/records/train-v1.json", False),
    ("s3:GetObject", f"{CONTROL}/ledger/launches/i-1.json", False),
    *[("s3:PutObject", f"{CONTROL}/{place}/{MINE}.json", True) for place in ("visits", "heads", "cancels")],
    *[
        ("s3:PutObject", f"{CONTROL}/{place}/{other}.json", False)
        for place in ("visits", "heads", "cancels")
        for other in ("train", "train-v1", "visit-0-v1", THEIRS)
    ],
    ("s3:PutObject", f"{CONTROL}/jobs/{MINE}.json", False),
    ("s3:PutObject", f"{CONTROL}/records/{MINE}.json", False),
    ("s3:PutObject", f"{CONTROL}/cluster.json", False),
    ("s3:DeleteObject", f"{CONTROL}/visits/{MINE}.json", True),
    ("s3:DeleteObject", f"{CONTROL}/visits/{THEIRS}.json", False),
    ("s3:DeleteObject", f"{CONTROL}/heads/{MINE}.json", False),
    ("s3:PutObject", f"{DATA}/jobs/{MINE}/checkpoints/1", True),
    ("s3:GetObject", f"{DATA}/jobs/{MINE}/outputs/1", True),
    *[
        (f"s3:{verb}Object", f"{DATA}/jobs/{job}/checkpoints/1", False)
        for verb in ("Get", "Put")
        for job in ("train", "train-v1", THEIRS)
    ],
    ("s3:PutObject", f"{DATA}/code/abc", True),
    ("s3:DeleteObject", f"{DATA}/code/abc", False),
    ("s3:GetObject", f"{DATA}/agents/i-1", False),
]


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    return {}


@pytest.mark.parametrize(("action", "resource", "allowed"), MAY)
def test_a_visitor_on_aws_may_this_and_no_more(
    pair: Pair, kept: dict[str, Any], action: str, resource: str, allowed: bool
) -> None:
    if not kept:  # declared once
        kept["policy"] = statements(pair.aws(ON_GOOGLE)[0], f"{AWS}-peer-{GOOGLE}-permissions")
    assert (decide(kept["policy"], Call(action, resource)) is PolicyDecision.ALLOW) is allowed


def test_a_visitor_on_google_may_this_and_no_more(pair: Pair) -> None:
    google, _ = pair.google(ON_AWS)
    control, data = f"{GOOGLE}-store-control", f"{GOOGLE}-store-data"
    roles = {
        f"projects/everspot-local/roles/{args.name}": args.inputs["permissions"]
        for args in google.of("gcp:projects/iAMCustomRole:IAMCustomRole")
    }
    email = f"{google.inputs(f'{GOOGLE}-peer-{AWS}')['accountId']}@everspot-local.iam.gserviceaccount.com"
    own = [
        a.inputs for a in google.seen if a.typ.endswith("IAMMember") and a.inputs["member"] == f"serviceAccount:{email}"
    ]
    assert own and all("bucket" in binding and "condition" in binding for binding in own)

    def may(permission: str, bucket: str, key: str) -> bool:
        name = f"projects/_/buckets/{bucket}/objects/{key}" if key else f"projects/_/buckets/{bucket}"
        return any(
            b["bucket"] == bucket
            and permission in roles[b["role"]]
            and holds(b["condition"]["expression"], {"resource.name": name})
            for b in own
        )

    mine, theirs = (f"{visits_of(home)}{'5' * 16}-v1" for home in (AWS, NEAR))
    read, write, delete = "storage.objects.get", "storage.objects.create", "storage.objects.delete"
    published = ("cluster.json", "pools.json")
    of_visits = ("visits/", "records/", "heads/", "events/", "cancels/")
    assert all(may(read, control, key) for key in published)
    assert all(may(read, control, f"{place}{mine}.json") for place in (*of_visits, "archive/2026-01/"))
    assert may("storage.objects.list", control, "") and may("storage.objects.list", data, "")
    assert all(may(write, control, f"{place}{mine}.json") for place in ("visits/", "heads/", "cancels/"))
    assert not may(read, control, f"jobs/{mine}.json")
    assert not any(may(write, control, k) for k in (f"jobs/{mine}.json", f"records/{mine}.json", *published))
    for other in (theirs, "train", "train-v1", "visit-"):
        keys = [f"{place}{other}.json" for place in (*of_visits, "jobs/", "archive/2026-01/")]
        assert not any(may(verb, control, key) for verb in (read, write, delete) for key in keys), other
        assert not any(may(verb, data, f"jobs/{other}/part") for verb in (read, write, delete)), other
    assert all(may(write, data, k) for k in (f"jobs/{mine}/part", "code/x", "datasets/x", "wheels/x"))
    assert may(delete, control, f"visits/{mine}.json") and may(delete, data, "code/named/x/y")
    assert not any(may(delete, data, k) for k in ("code/x", "code/own/train/x", "datasets/x", "wheels/x"))
    assert not any(may(p, data, "agents/i-1") for p in (read, write))


def test_a_home_may_carry_jobs_out_of_its_own_buckets_and_without_peers_it_may_not(pair: Pair) -> None:
    aws, _ = pair.aws(ON_GOOGLE)
    own = statements(aws, f"{AWS}-federation")
    for action, resource, allowed in (
        ("s3:GetObject", f"{DATA}/jobs/train/checkpoints/1", True),
        ("s3:PutObject", f"{DATA}/jobs/train/outputs/1", True),
        ("s3:PutObject", f"{DATA}/code/x", False),
        ("s3:PutObject", f"{CONTROL}/heads/train.json", True),
        ("s3:PutObject", f"{CONTROL}/visits/train-v1.json", True),
        ("s3:PutObject", f"{CONTROL}/cluster.json", False),
        ("sts:AssumeRole", f"{ROLE}", False),
    ):
        assert (decide(own, Call(action, resource)) is PolicyDecision.ALLOW) is allowed, resource
    alone, _ = pair.aws()
    assert not [args.name for args in alone.seen if "peer" in args.name or "federation" in args.name]
    assert not [args.name for args in pair.google()[0].seen if "peer" in args.name or "federation" in args.name]


def test_the_way_out_is_the_schedulers_alone_and_only_where_endpoints_do_not_lead(pair: Pair) -> None:
    aws, _ = pair.aws(ON_GOOGLE)
    kinds = {args.typ.rpartition(":")[2] for args in aws.seen}
    assert {"NatGateway", "InternetGateway", "Eip", "Route"} <= kinds
    scheduler, agents = (
        aws.inputs(f"{AWS}-{part}-template")["networkInterfaces"][0]["securityGroups"]
        for part in ("scheduler", "fleet")
    )
    outside = f"{AWS}-network-scheduler-id"
    assert outside in scheduler and outside not in agents
    open_to_all = [a.inputs for a in aws.of("aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule")
                   if a.inputs.get("cidrIpv4") == "0.0.0.0/0"]  # fmt: skip
    assert [rule["securityGroupId"] for rule in open_to_all] == [outside]
    assert aws.inputs(f"{AWS}-network-outside")["cidrBlock"] == "10.64.255.240/28"
    near, _ = pair.aws(NEIGHBOUR)
    assert not {args.typ.rpartition(":")[2] for args in near.seen} & {"NatGateway", "InternetGateway", "Eip", "Route"}
    assert f"{AWS}-network-endpoint-sts" in near.named()
    allowed = json.loads(near.inputs(f"{AWS}-network-endpoint-s3")["policy"])["Statement"][0]["Resource"]
    assert {"arn:aws:s3:::near-control", "arn:aws:s3:::near-data/*"} <= set(allowed)
    assert [a.name for a in pair.google(ON_AWS)[0].seen if a.typ.endswith(":RouterNat")] == [f"{GOOGLE}-network-nat"]
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
    assert not [a.name for a in alone.seen if a.typ.endswith(":RouterNat")]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What previews tell."""
    told: list[str] = []
    monkeypatch.setattr("pulumi.log.info", lambda words, *_, **__: told.append(words))
    return told


def test_a_preview_on_aws_says_what_the_way_out_costs(pair: Pair, said: list[str]) -> None:
    pair.aws(ON_GOOGLE, preview=True)
    (nat,) = [words for words in said if "way out" in words]
    assert "at least $0.050 an hour, $36.50 a month, and $0.045 per GB" in nat


def test_a_preview_on_google_says_what_the_way_out_costs(pair: Pair, said: list[str]) -> None:
    pair.google(ON_AWS, preview=True)
    assert any("Cloud NAT costs" in words and "serves the scheduler alone" in words for words in said)


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What previews warn of."""
    told: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", lambda words, *_, **__: told.append(words))
    return told


@pytest.mark.parametrize(
    ("changes", "about"),
    [
        ({}, ["egress lets nothing out of the VPC but to S3", "eu-west-1a, eu-west-1b have no route to 0.0.0.0/0"]),
        ({"egress": {"cidrs": ["0.0.0.0/0"]}}, ["eu-west-1a, eu-west-1b have no route to 0.0.0.0/0"]),
        ({"egress": {"proxy": "http://proxy.corp:3128", "proxy_cidrs": ["10.1.2.0/24"]}}, []),
        ({"federation": [NEIGHBOUR]}, []),
    ],
)
def test_a_preview_warns_where_an_existing_vpc_has_no_way_to_the_peers(
    declare: Declare, spec: Any, warned: list[str], changes: Any, about: list[str]
) -> None:
    mine = {"vpc_id": "vpc-mine", "subnet_ids": ["eu-west-1a", "eu-west-1b"], "federation": [ON_GOOGLE]}
    args: Any = {**{key: value for key, value in spec.items() if key != "zones"}, **mine, **changes}
    declare(lambda: {"id": AwsTrainingCluster(AWS, args).vpc_id}, preview=True)
    told = [words for words in warned if "federation leads to another cloud" in words]
    assert len(told) == len(about) and all(part in words for part, words in zip(about, told, strict=True)), told


def test_a_preview_warns_that_an_existing_network_has_to_have_a_way_to_the_peers(pair: Pair, warned: list[str]) -> None:
    where = "projects/host-project"
    theirs = {"network": f"{where}/global/networks/shared",
              "subnetwork": f"{where}/regions/europe-west4/subnetworks/subnet-1"}  # fmt: skip
    pair.google(ON_AWS, preview=True, **theirs)
    assert any("Cloud NAT, or another way out to port 443, has to serve its subnetwork" in words for words in warned)


def test_a_federation_within_a_region_pays_for_no_way_out(pair: Pair, said: list[str]) -> None:
    pair.aws(NEIGHBOUR, preview=True)
    assert said and not any("NAT gateway" in words for words in said)


@pytest.mark.parametrize("cloud", ["aws", "google"])
def test_everything_that_is_wrong_with_the_peers_is_told_at_once(pair: Pair, cloud: str) -> None:
    wrong = [
        {**ON_AWS, "name": AWS if cloud == "aws" else GOOGLE, "control": "s3://aws-control", "scheduler": "scheduler",
         "scheduler_id": "1"},
        {**ON_GOOGLE, "name": "Gcp", "data": "s3://x?region=eu-west-1", "project_number": "my-project",
         "egress_usd_per_gb": -1},
        {**ON_GOOGLE, "name": "Gcp", "cloud": "azure"},
        {key: value for key, value in ON_GOOGLE.items() if key != "scheduler_id"} | {"name": "everspot-third"},
    ]  # fmt: skip
    with pytest.raises(Exception, match="bad inputs") as refused:
        (pair.aws if cloud == "aws" else pair.google)(*wrong)
    said = str(refused.value)
    for words in (
        "federation[0].name: ", "is this cluster itself",
        "federation[0].control: 's3://aws-control' is not of the form",
        "federation[0].scheduler: 'scheduler' is not of the form arn:aws:iam::ACCOUNT:role/NAME",
        "federation[0].schedulerId: is for clusters on Google Cloud", "federation[1].name: 'Gcp' has to be",
        "federation[1].name: 'Gcp' is named twice", "federation[1].data: ", "is not of the form gs://BUCKET",
        "federation[1].projectNumber: 'my-project' is no number", "federation[1].egressUsdPerGb: ",
        "federation[2].cloud: 'azure' is none; there is aws, gcp", "federation[3].schedulerId: is missing",
    ):  # fmt: skip
        assert words in said, (words, said)


def test_a_nat_gateway_needs_the_last_block_of_the_network(pair: Pair) -> None:
    zones = [f"eu-west-1{letter}" for letter in "abcdefgh"]
    with pytest.raises(Exception, match="zones: at most 7 with a NAT gateway"):
        pair.aws(ON_GOOGLE, zones=zones)
