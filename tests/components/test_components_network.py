"""The network: what a new one opens, and what is asked of an existing one before anything is made in it."""

import asyncio
import base64
import json
import re
from collections.abc import Callable
from typing import Any

import pulumi
import pytest
from everspot import AwsNetwork, AwsTrainingCluster

Declare = Callable[..., tuple[Any, dict[str, Any]]]
TAGS = {"Project": "vision", "Team": "ml", "Environment": "test"}
EXISTING = {"zones": None, "vpc_id": "vpc-mine", "subnet_ids": ["eu-west-1a", "eu-west-1b"]}
EGRESS = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"


@pytest.fixture
def cluster(declare: Declare, spec: Any) -> Callable[..., Any]:
    def build(**changes: Any) -> Any:
        args: Any = {key: value for key, value in {**spec, **changes}.items() if value is not None}
        return declare(lambda: {"id": AwsTrainingCluster("train", args).vpc_id}, preview=True)[0]

    return build


def rules(recorder: Any) -> dict[str, tuple[Any, int]]:
    """Destination and port of each way out, by its name."""
    kinds = ("cidrIpv4", "prefixListId", "referencedSecurityGroupId")
    return {
        rule.name.removeprefix("train-network-out-"): (
            next(rule.inputs[kind] for kind in kinds if kind in rule.inputs),
            rule.inputs["toPort"],
        )
        for rule in recorder.of_type(EGRESS)
    }


EVERY_WAY_OUT = {
    "cidrs": ["10.1.0.0/16"], "prefix_list_ids": ["pl-1"], "security_group_ids": ["sg-1"],
    "proxy": "http://proxy:3128", "proxy_cidrs": ["10.2.0.0/28"], "unchecked": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("network", "count"), [({}, 3), ({**EXISTING, "egress": EVERY_WAY_OUT}, 6)], ids=["new", "existing"]
)
def test_every_group_and_every_rule_of_one_says_what_it_is_for(
    cluster: Callable[..., Any], network: dict[str, Any], count: int
) -> None:
    recorder = cluster(**network)
    rules_of = [*recorder.of_type(EGRESS), *recorder.of_type(INGRESS)]
    assert len(rules_of) == count
    for declared in (*rules_of, *recorder.of_type("aws:ec2/securityGroup:SecurityGroup")):
        # What EC2 takes as a description (EC2 API Reference, IpRange and CreateSecurityGroup).
        assert re.fullmatch(r"[A-Za-z0-9 ._\-:/()#,@\[\]+=&;{}!$*]{1,255}", declared.inputs["description"]), (
            declared.name
        )


def test_s3s_endpoint_lets_requests_to_the_clusters_buckets_pass_and_to_those_of_the_spec(declare: Declare) -> None:
    args: Any = {
        "cluster": "train", "tags": TAGS, "zones": ["eu-west-1a"], "bucket_arns": ["arn:control", "arn:more"],
        "services": ["secretsmanager", "ec2"], "session_manager": True, "flow_log_bucket_arn": "arn:aws:s3:::flows",
    }  # fmt: skip
    recorder, _ = declare(lambda: {"id": AwsNetwork("net", args).vpc_id})
    (statement,) = json.loads(recorder.inputs("net-endpoint-s3")["policy"])["Statement"]
    assert statement["Effect"] == "Allow"
    assert statement["Resource"] == ["arn:control", "arn:control/*", "arn:more", "arn:more/*"]
    services = {
        name.removeprefix("net-endpoint-") for name in recorder.types_by_name() if name.startswith("net-endpoint-")
    }
    assert services == {"s3", "ec2", "sqs", "sts", "ssm", "ssmmessages", "secretsmanager"}
    flows = recorder.inputs("net-flow-log")
    assert (flows["trafficType"], flows["logDestination"]) == ("ALL", "arn:aws:s3:::flows")
    assert {"ingress", "egress"}.isdisjoint(recorder.inputs("net-default"))  # adopted without a rule: closed


def test_what_jobs_may_read_passes_the_endpoint_and_the_role(declare: Declare, spec: Any) -> None:
    spec["read_bucket_arns"] = ["arn:aws:s3:::corpus"]
    recorder, _ = declare(lambda: {"id": AwsTrainingCluster("train", spec).vpc_id})
    endpoint = json.loads(recorder.inputs("train-network-endpoint-s3")["policy"])["Statement"][0]["Resource"]
    buckets = ["arn:train-store-control", "arn:train-store-data", "arn:aws:s3:::corpus"]
    assert endpoint == [resource for arn in buckets for resource in (arn, f"{arn}/*")]
    agent = json.loads(recorder.inputs("train-identity-agent-permissions")["policy"])["Statement"]
    (reads,) = [s for s in agent if s["Sid"] == "ReadFurtherBuckets"]
    assert reads["Resource"] == ["arn:aws:s3:::corpus", "arn:aws:s3:::corpus/*"]
    assert set(reads["Action"]) == {"s3:GetObject", "s3:ListBucket"}


def test_secrets_that_jobs_read_are_named_in_the_role_and_their_service_has_an_endpoint(
    declare: Declare, spec: Any
) -> None:
    wandb, hub = (
        "arn:aws:secretsmanager:eu-west-1:123456789012:secret:wandb-*",
        "arn:aws:ssm:eu-west-1:123456789012:parameter/hub",
    )
    spec["secret_arns"] = [wandb, hub]
    recorder, _ = declare(lambda: {"id": AwsTrainingCluster("train", spec).vpc_id})
    agent = json.loads(recorder.inputs("train-identity-agent-permissions")["policy"])["Statement"]
    read = {s["Action"][0]: s["Resource"] for s in agent if s["Sid"].startswith("ReadSecrets")}
    assert read == {"secretsmanager:GetSecretValue": [wandb], "ssm:GetParameter": [hub]}
    scheduler = recorder.inputs("train-identity-scheduler-permissions")["policy"]
    assert "secretsmanager" not in scheduler
    for service in ("secretsmanager", "ssm"):
        recorder.inputs(f"train-network-endpoint-{service}")


REPOSITORY = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/team/train"


def test_agents_pull_images_from_the_repositories_that_are_named(declare: Declare, spec: Any) -> None:
    """Given a repository of ECR, when a cluster is declared, then its agents may pull from it alone, by endpoints of
    the network, and the store of its layers is reachable."""
    spec["image_repositories"] = [REPOSITORY]
    recorder, _ = declare(lambda: {"id": AwsTrainingCluster("train", spec).vpc_id})
    roles = {
        role: recorder.inputs(f"train-identity-{role}-permissions")["policy"] for role in ("agent", "scheduler", "job")
    }
    agent = {s["Sid"]: (s["Action"], s["Resource"]) for s in json.loads(roles["agent"])["Statement"]}
    assert agent["LogInToRegistry"] == (["ecr:GetAuthorizationToken"], ["*"])
    arn = "arn:aws:ecr:eu-west-1:123456789012:repository/team/train"
    pull = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
    assert agent["PullImages"] == (pull, [arn])
    assert "ecr:" not in roles["scheduler"] + roles["job"]
    for service in ("ecr.api", "ecr.dkr"):
        recorder.inputs(f"train-network-endpoint-{service}")
    (endpoint,) = json.loads(recorder.inputs("train-network-endpoint-s3")["policy"])["Statement"]
    assert "arn:aws:s3:::prod-eu-west-1-starport-layer-bucket/*" in endpoint["Resource"]
    assert json.loads(recorder.inputs("train-manifest")["content"])["image_repositories"] == [REPOSITORY]
    launched = recorder.inputs("train-fleet-template")["userData"]
    assert "image_repositories" not in base64.b64decode(launched).decode(), "no instance is replaced for it"


@pytest.mark.parametrize(
    ("repository", "problem"),
    [
        ("docker.io/library/python", "is no repository of ECR, ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME"),
        (f"{REPOSITORY}:latest", "is no repository of ECR"),
        (f"{REPOSITORY}/*", "is no repository of ECR"),
        (REPOSITORY.replace("eu-west-1", "us-east-1"), "is not in the cluster's region, eu-west-1"),
    ],
)
def test_what_is_no_repository_of_the_region_is_refused(cluster: Any, repository: str, problem: str) -> None:
    with pytest.raises(pulumi.RunError, match=rf"imageRepositories\[1\]: .*{re.escape(problem)}"):
        cluster(image_repositories=[REPOSITORY, repository])


def test_a_repository_of_another_region_is_refused_beside_an_existing_network(cluster: Any) -> None:
    """Whose settings name no zone, so that only the provider tells the region."""
    elsewhere = REPOSITORY.replace("eu-west-1", "us-east-1")
    services = {"services": ["ecr.api", "ecr.dkr"]}
    with pytest.raises(pulumi.InputPropertiesError, match=r"imageRepositories\[0\]: .* is not in the cluster's region"):
        cluster(**{**EXISTING, **services}, image_repositories=[elsewhere])


def test_the_scheduler_may_tell_whom_the_settings_name_and_nobody_else(declare: Declare, spec: Any) -> None:
    topic = "arn:aws:sns:eu-west-1:123456789012:jobs"
    hook = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:hook"
    spec["notifications"] = {"topic_arn": topic, "webhook_secret_arn": hook, "on": ["failed"]}
    recorder, _ = declare(lambda: {"id": AwsTrainingCluster("train", spec).vpc_id})
    scheduler = json.loads(recorder.inputs("train-identity-scheduler-permissions")["policy"])["Statement"]
    targets = {s["Action"][0]: s["Resource"] for s in scheduler if s["Action"][0].startswith(("sns", "secrets"))}
    assert targets == {"sns:Publish": [topic], "secretsmanager:GetSecretValue": [hook]}
    assert "sns:Publish" not in recorder.inputs("train-identity-agent-permissions")["policy"]
    for service in ("sns", "secretsmanager"):
        recorder.inputs(f"train-network-endpoint-{service}")
    published = json.loads(recorder.inputs("train-manifest")["content"])
    assert published["notifications"] == {"topic_arn": topic, "webhook_secret_arn": hook, "on": ["failed"]}


@pytest.mark.parametrize(
    ("notifications", "message"),
    [
        ({}, r"notifications.topicArn: topicArn or webhookSecretArn has to be given"),
        ({"topic_arn": "jobs"}, r"notifications.topicArn: 'jobs' is not an ARN"),
        ({"topic_arn": "arn:aws:sns:eu-west-1:123456789012:j", "on": ["broken"]}, r"on\[0\]: 'broken' is not allowed"),
    ],
)
def test_notifications_that_go_nowhere_are_refused(cluster: Any, notifications: Any, message: str) -> None:
    with pytest.raises(pulumi.RunError, match=message):
        cluster(notifications=notifications)


def test_what_is_no_secret_is_refused(cluster: Any) -> None:
    with pytest.raises(pulumi.RunError, match=r"secretArns\[0\]: 'wandb' is the ARN neither of a secret"):
        cluster(secret_arns=["wandb"])


def test_zones_that_the_account_lacks_there_are_refused_before_anything_is_made(cluster: Any) -> None:
    with pytest.raises(pulumi.RunError) as refused:
        cluster(zones=["us-east-1a", "us-east-1b"])
    assert "zones[0]: us-east-1a is not a zone of this account in eu-west-1, whose names begin with" in str(
        refused.value
    )
    with pytest.raises(pulumi.RunError, match=r"eu-west-1i is not a zone of this account in eu-west-1 \(did you mean"):
        cluster(zones=["eu-west-1a", "eu-west-1i"])
    with pytest.raises(pulumi.RunError, match=r"zones\[0\]: '../x' is not the name of an availability zone"):
        cluster(zones=["../x"])


def test_an_existing_network_is_open_to_all_its_blocks_and_to_s3(cluster: Any) -> None:
    recorder = cluster(**EXISTING)
    assert rules(recorder) == {"vpc": ("train-network-blocks-id", 443), "s3": ("pl-found", 443)}
    blocks = recorder.inputs("train-network-blocks")
    assert [entry["cidr"] for entry in blocks["entries"]] == ["10.9.0.0/16", "100.64.0.0/16"]
    assert blocks["maxEntries"] == 2
    overrides = recorder.inputs("train-fleet-spot")["launchTemplateConfigs"][0]["overrides"]
    assert {o["subnetId"] for o in overrides} == {"eu-west-1a", "eu-west-1b"}
    assert not [
        name for name in recorder.types_by_name() if name.startswith(("train-network-vpc", "train-network-default"))
    ]


def test_its_ways_out_are_inputs_and_the_machines_know_the_proxy(declare: Declare, spec: Any) -> None:
    egress = {
        "cidrs": ["10.200.0.0/16"], "prefix_list_ids": ["pl-0a"], "security_group_ids": ["sg-0a"],
        "proxy": "http://proxy.corp:3128", "proxy_cidrs": ["10.1.2.0/24"],
    }  # fmt: skip
    args: Any = {k: v for k, v in {**spec, **EXISTING, "egress": egress}.items() if v is not None}
    recorder, _ = declare(lambda: {"id": AwsTrainingCluster("train", args).vpc_id})
    assert rules(recorder) == {
        "vpc": ("train-network-blocks-id", 443), "s3": ("pl-found", 443), "cidr-10.200.0.0/16": ("10.200.0.0/16", 443),
        "list-pl-0a": ("pl-0a", 443), "group-sg-0a": ("sg-0a", 443), "proxy-10.1.2.0/24": ("10.1.2.0/24", 3128),
    }  # fmt: skip
    manifest = json.loads(recorder.inputs("train-manifest")["content"])
    assert manifest["proxy"]["url"] == "http://proxy.corp:3128"
    assert {"169.254.169.254", "s3.eu-west-1.amazonaws.com"} <= set(manifest["proxy"]["no_proxy"])


@pytest.mark.parametrize(
    ("subnets", "words"),
    [
        (["eu-west-1a", "eu-west-1a-twin"], "eu-west-1a too"),
        (["eu-west-1a", "eu-west-1bstray"], "belongs to vpc-other"),
    ],
)
def test_existing_subnets_that_do_not_fit_are_refused(cluster: Any, subnets: list[str], words: str) -> None:
    with pytest.raises(pulumi.InputPropertiesError, match=words):
        cluster(**{**EXISTING, "subnet_ids": subnets})


def test_subnets_from_which_nothing_is_reached_are_refused_and_named(declare: Declare, spec: Any) -> None:
    args: Any = {k: v for k, v in {**spec, **EXISTING}.items() if v is not None}
    with pytest.raises(pulumi.RunError) as refused:
        declare(lambda: {"id": AwsTrainingCluster("train", args).vpc_id}, preview=True, endpoints=("ec2",))
    text = str(refused.value)
    assert "subnetIds[0]: eu-west-1a cannot reach S3: the VPC has no gateway endpoint of S3" in text
    assert "subnetIds[1]: eu-west-1b cannot reach sqs, sts: the VPC has no interface endpoint with private DNS" in text


@pytest.mark.parametrize("gateway", [{"gatewayId": "igw-0abc"}, {"carrierGatewayId": "cagw-0abc"}])
def test_a_public_subnet_is_no_way_out_for_instances_without_public_addresses(
    declare: Declare, spec: Any, gateway: dict[str, str]
) -> None:
    args: Any = {k: v for k, v in {**spec, **EXISTING, "egress": {"cidrs": ["0.0.0.0/0"]}}.items() if v is not None}
    routes = [{"cidrBlock": "0.0.0.0/0", **gateway}]
    program = lambda: {"id": AwsTrainingCluster("train", args).vpc_id}  # noqa: E731
    with pytest.raises(pulumi.RunError) as refused:
        declare(program, preview=True, endpoints=(), routes=routes)
    text = str(refused.value)
    assert "subnetIds[0]: eu-west-1a cannot reach S3" in text and "eu-west-1a cannot reach ec2, sqs, sts" in text
    assert "It is a public subnet: its internet gateway carries only instances with a public address" in text
    declare(program, preview=True, endpoints=(), routes=[{"cidrBlock": "0.0.0.0/0", "natGatewayId": "nat-1"}])


def test_the_wrong_half_of_the_settings_is_refused(cluster: Any) -> None:
    with pytest.raises(pulumi.RunError) as refused:
        cluster(**EXISTING, flow_log_bucket_arn="arn:aws:s3:::flows", egress={"proxy": "http://u:p@proxy:1"})
    assert "flowLogBucketArn: is for a new network" in str(refused.value)
    assert "egress.proxy: 'http://u:p@proxy:1' is not a proxy such as" in str(refused.value)
    with pytest.raises(pulumi.RunError, match="egress: is for an existing network"):
        cluster(egress={"cidrs": ["0.0.0.0/0"]})


def test_jobs_of_a_new_network_do_not_reach_the_internet(declare: Declare, spec: Any) -> None:
    recorder, _ = declare(lambda: {"id": AwsTrainingCluster("train", spec).vpc_id})
    assert not {name for name in recorder.types_by_name() if name.endswith(("-nat", "-out-internet"))}
    assert json.loads(recorder.inputs("train-manifest")["content"])["internet"] is False


def test_jobs_reach_the_internet_where_nat_asks_for_it_and_a_preview_says_what_it_costs(
    declare: Declare, spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    monkeypatch.setattr("pulumi.log.info", lambda words, *_, **__: messages.append(words))
    spec["nat"] = True
    recorder, _ = declare(lambda: {"id": AwsTrainingCluster("train", spec).vpc_id}, preview=True)
    out = recorder.inputs("train-network-out-internet")
    assert (out["cidrIpv4"], out["fromPort"], out["toPort"], out["ipProtocol"]) == ("0.0.0.0/0", 443, 443, "tcp")
    assert out["securityGroupId"] == "train-network-instances-id"
    route = recorder.inputs("train-network-to-nat")
    assert (route["destinationCidrBlock"], route["natGatewayId"]) == ("0.0.0.0/0", "train-network-nat-id")
    assert json.loads(recorder.inputs("train-manifest")["content"])["internet"] is True
    (cost,) = [words for words in messages if "way to the internet" in words]
    assert "$0.050 an hour, $36.50 a month, and $0.045 per GB" in cost
    assert any("NAT gateway $0.050" in words for words in messages if words.startswith("An hour of the cluster"))


def test_an_existing_network_gets_no_nat_gateway(declare: Declare, spec: Any) -> None:
    del spec["zones"]
    spec |= {"vpc_id": "vpc-1", "subnet_ids": ["eu-west-1a"], "nat": True}
    with pytest.raises(pulumi.InputPropertiesError, match="nat: is for a new network; vpcId names an existing one"):
        declare(lambda: {"id": AwsTrainingCluster("train", spec).vpc_id})


@pytest.mark.parametrize("earlier", [True, False])
def test_a_vpc_that_the_same_update_makes_is_warned_about_in_its_preview(
    declare: Declare, monkeypatch: pytest.MonkeyPatch, earlier: bool
) -> None:
    messages: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", lambda message, *_, **__: messages.append(message))

    def program() -> dict[str, Any]:
        subnet: pulumi.Output[str] = pulumi.Output(set(), future("eu-west-1b" if earlier else None), future(earlier))
        args: Any = {"cluster": "train", "tags": TAGS, "vpc_id": "vpc-mine", "subnet_ids": ["eu-west-1a", subnet]}
        return {"group": AwsNetwork("net", args).security_group_id}

    def future(value: Any) -> "asyncio.Future[Any]":
        done = asyncio.get_event_loop().create_future()
        done.set_result(value)
        return done

    declare(program, preview=True)
    warned = [message for message in messages if "made by the same update" in message]
    assert len(warned) == (0 if earlier else 1), messages
