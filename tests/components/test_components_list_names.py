"""Resources of the entries of a list: an entry that leaves takes its own resource along, and nobody else's."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import everspot
import pytest
from everspot import common
from gcp_helpers import SPEC as GCP_SPEC

Declare = Callable[..., tuple[Any, dict[str, Any]]]
KEYS = [f"projects/p/locations/eu/keyRings/r/cryptoKeys/{name}" for name in "abc"]
SECRETS = [f"projects/p/secrets/{name}" for name in ("wandb", "hub", "git")]
RUNNERS = [f"runner-{name}@p.iam.gserviceaccount.com" for name in "abc"]
BUCKETS = ["corpus-a", "corpus-b", "corpus-c"]
BLOCKS = ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16"]
GROUPS = ["sg-0a", "sg-0b", "sg-0c"]
AWS_SPEC = {
    "tags": GCP_SPEC["tags"],
    "vpc_id": "vpc-mine",
    "subnet_ids": ["eu-west-1a", "eu-west-1b"],
    "image_id": "ami-1",
    "capacity": {"instance_types": [{"type": "m6i.large"}], "standing": {"target": 1}},
}
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
EGRESS = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"


def gcp_cluster(setting: str) -> Callable[[list[str]], Any]:
    return lambda targets: everspot.GcpTrainingCluster("train", {**GCP_SPEC, setting: targets}).urn  # type: ignore[misc]


def aws_cluster(section: str, setting: str, **more: str) -> Callable[[list[str]], Any]:
    def build(targets: list[str]) -> Any:
        args: Any = {**AWS_SPEC, section: {setting: targets, **more}}
        return everspot.AwsTrainingCluster("train", args).urn

    return build


def gcp_bootstrap(targets: list[str]) -> Any:
    args: Any = {"tags": GCP_SPEC["tags"], "preview_runner_accounts": ["p@p.iam.gserviceaccount.com"],
                 "deploy_runner_accounts": targets}  # fmt: skip
    return everspot.GcpBootstrap("train", args).urn


def gcp_account(targets: list[str]) -> Any:
    return everspot.GcpAccountSetup("train", {"tags": GCP_SPEC["tags"], "volume_kms_keys": targets}).urn


@dataclass(frozen=True)
class Listed:
    """A list of the settings.

    Attributes:
        build: Declares the component whose list has these entries.
        targets: Three entries.
        kind: The type of the entries' resources.
        prefix: The beginning of the names of the entries' resources.
        key: The input of a resource that has the entry.
    """

    build: Callable[[list[str]], Any]
    targets: list[str]
    kind: str
    prefix: str
    key: str


LISTS = {
    "buckets": Listed(
        gcp_cluster("read_buckets"), BUCKETS, "gcp:storage/bucketIAMMember:BucketIAMMember",
        "train-identity-agent-read-", "bucket",
    ),
    "secrets": Listed(
        gcp_cluster("secrets"), SECRETS, "gcp:secretmanager/secretIamMember:SecretIamMember",
        "train-identity-agent-secret-", "secretId",
    ),
    "runners": Listed(
        gcp_bootstrap, RUNNERS, "gcp:serviceaccount/iAMMember:IAMMember", "train-deploy-runner-", "member",
    ),
    "volume keys": Listed(
        gcp_account, KEYS, "gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember", "train-volumes-", "cryptoKeyId",
    ),
    "blocks of Prometheus": Listed(
        aws_cluster("prometheus", "cidrs"), BLOCKS, INGRESS, "train-metrics-in-cidr-", "cidrIpv4",
    ),
    "groups of Prometheus": Listed(
        aws_cluster("prometheus", "security_group_ids"), GROUPS, INGRESS, "train-metrics-in-group-",
        "referencedSecurityGroupId",
    ),
    "blocks outside": Listed(
        aws_cluster("egress", "cidrs"), BLOCKS, EGRESS, "train-network-out-cidr-", "cidrIpv4",
    ),
    "prefix lists outside": Listed(
        aws_cluster("egress", "prefix_list_ids"), ["pl-0a", "pl-0b", "pl-0c"], EGRESS, "train-network-out-list-",
        "prefixListId",
    ),
    "groups outside": Listed(
        aws_cluster("egress", "security_group_ids"), GROUPS, EGRESS, "train-network-out-group-",
        "referencedSecurityGroupId",
    ),
    "blocks of a proxy": Listed(
        aws_cluster("egress", "proxy_cidrs", proxy="http://proxy.corp:3128"), BLOCKS, EGRESS,
        "train-network-out-proxy-", "cidrIpv4",
    ),
}  # fmt: skip


@pytest.fixture(params=LISTS.values(), ids=LISTS.keys())
def listed(request: pytest.FixtureRequest) -> Listed:
    """One list after the other."""
    listed: Listed = request.param
    return listed


@pytest.fixture
def resources(declare: Declare, listed: Listed) -> Callable[[list[str]], dict[str, dict[str, Any]]]:
    """Return the inputs of the entries' resources by name."""

    def build(targets: list[str]) -> dict[str, dict[str, Any]]:
        recorder, _ = declare(lambda: {"urn": listed.build(targets)})
        return {r.name: r.inputs for r in recorder.of_type(listed.kind) if r.name.startswith(listed.prefix)}

    return build


Resources = Callable[[list[str]], dict[str, dict[str, Any]]]


def test_resources_that_were_named_after_their_place_are_taken_over(
    listed: Listed, former_names: dict[str, list[str]], resources: Resources
) -> None:
    entries = resources(listed.targets)
    former_targets = {former: entry[listed.key] for name, entry in entries.items() for former in former_names[name]}
    assert len(former_targets) == len(entries) == len(listed.targets)
    for index, target in enumerate(listed.targets):
        assert former_targets[f"{listed.prefix}{index}"].endswith(target)
    assert not former_targets.keys() & entries.keys(), "an old name is nobody's new one"


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_entry_that_leaves_deletes_its_own_resource_and_changes_no_other(
    listed: Listed, place: int, former_names: dict[str, list[str]], resources: Resources
) -> None:
    before = resources(listed.targets)
    after = resources([target for index, target in enumerate(listed.targets) if index != place])
    (deleted,) = before.keys() - after.keys()
    assert before[deleted][listed.key].endswith(listed.targets[place])
    assert after == {name: entry for name, entry in before.items() if name != deleted}
    assert not before.keys() & {former for name in after for former in former_names[name]}


def test_the_order_of_entries_changes_nothing(listed: Listed, resources: Resources) -> None:
    assert resources(listed.targets[::-1]) == resources(listed.targets)


def test_entries_without_a_known_value_are_named_among_themselves() -> None:
    unknown: list[Any] = [object(), object()]
    suffixes = [
        (suffix, former) for suffix, former, _ in common.name_by_target("group", [unknown[0], "sg-1", unknown[1]])
    ]
    assert suffixes == [("group-output-0", "group-0"), ("group-sg-1", "group-1"), ("group-output-1", "group-2")]
    assert [entry.suffix for entry in common.name_by_target("group", unknown)] == ["group-output-0", "group-output-1"]
