"""Every input of a cluster reaches a declared resource: the spec is passed to the parts by the names of its keys."""

import copy
from collections.abc import Callable
from typing import Any

import pulumi
import pytest
from everspot import AwsTrainingCluster, AwsTrainingClusterArgs, GcpTrainingCluster, GcpTrainingClusterArgs
from everspot.aws.network import AwsNetworkArgs
from everspot.parts import inputs
from federated_pair import ON_AWS, ON_GOOGLE
from gcp_helpers import SPEC as GCP_SPEC
from google.protobuf.json_format import MessageToDict

from tests.components.conftest import SPEC as AWS_SPEC

Declare = Callable[..., tuple[Any, dict[str, Any]]]
Change = tuple[dict[str, Any], dict[str, Any]]
"""An input with another value than by default, and the other inputs that it needs, with and without it."""

EXISTING_VPC = {"zones": None, "vpc_id": "vpc-mine", "subnet_ids": ["eu-west-1a", "eu-west-1b"]}
ELASTIC = {"max_instances": 4, "max_usd_per_hour": 3.0}
KEY = "arn:aws:kms:eu-west-1:123456789012:key/0a1b2c3d-1111-2222-3333-444455556666"
AWS: dict[str, Change] = {
    "tags": ({"tags": {**AWS_SPEC["tags"], "Owner": "ann"}}, {}),
    "capacity": ({"capacity": {**AWS_SPEC["capacity"], "standing": {"target": 6}}}, {}),
    "image_id": ({"image_id": "ami-2"}, {}),
    "image_parameter": ({"image_parameter": "/everspot/image", "image_id": None}, {}),
    "volume_gib": ({"volume_gib": 120}, {}),
    "volume_iops": ({"volume_iops": 4000}, {}),
    "volume_throughput": ({"volume_throughput": 250}, {}),
    "volume_initialization_rate": ({"volume_initialization_rate": 300}, {}),
    "zones": ({"zones": ["eu-west-1a"]}, {}),
    "nat": ({"nat": True}, {}),
    "vpc_cidr": ({"vpc_cidr": "10.80.0.0/16"}, {}),
    "vpc_id": (EXISTING_VPC, {}),
    "subnet_ids": ({"subnet_ids": ["eu-west-1a"]}, EXISTING_VPC),
    "egress": ({"egress": {"cidrs": ["10.1.0.0/16"]}}, EXISTING_VPC),
    "services": ({"services": ["secretsmanager"]}, {}),
    "flow_log_bucket_arn": ({"flow_log_bucket_arn": "arn:aws:s3:::logs"}, {}),
    "read_bucket_arns": ({"read_bucket_arns": ["arn:aws:s3:::images"]}, {}),
    "secret_arns": ({"secret_arns": ["arn:aws:secretsmanager:eu-west-1:123456789012:secret:token-*"]}, {}),
    "image_repositories": ({"image_repositories": ["123456789012.dkr.ecr.eu-west-1.amazonaws.com/team/train"]}, {}),
    "notifications": ({"notifications": {"topic_arn": "arn:aws:sns:eu-west-1:123456789012:ops"}}, {}),
    "anomalies": ({"anomalies": {"job_times": 3}}, {}),
    "monitoring": ({"monitoring": {}}, {}),
    "prometheus": ({"prometheus": {"cidrs": ["10.1.0.0/16"]}}, {}),
    "interruption_events": ({"interruption_events": False}, {}),
    "job_role": ({"job_role": False}, {}),
    "shares": ({"shares": {"ml": 2.0}}, {}),
    "shared_instances": ({"shared_instances": True}, {}),
    "federation": ({"federation": [ON_GOOGLE]}, {}),
    "scheduler_type": ({"scheduler_type": "m6i.large"}, {}),
    "retain_store": ({"retain_store": False}, {}),
    "jobs_expire_days": ({"jobs_expire_days": 60}, {}),
    "protect": ({"protect": True}, {}),
    "guard_jobs": ({"guard_jobs": False}, {}),
    "kms_key_arn": ({"kms_key_arn": KEY}, {}),
    "former_kms_key_arns": ({"former_kms_key_arns": [KEY]}, {}),
    "volume_key_arns": ({"volume_key_arns": [KEY]}, {"capacity": {**AWS_SPEC["capacity"], "elastic": ELASTIC}}),
    "permissions_boundary_arn": ({"permissions_boundary_arn": "arn:aws:iam::123456789012:policy/bound"}, {}),
    "session_manager": ({"session_manager": True}, {}),
    "limits": ({"limits": {"lease_ttl": "90s"}}, {}),
}
EXISTING_NETWORK = {
    "network": "projects/host-project/global/networks/shared",
    "subnetwork": "projects/host-project/regions/europe-west4/subnetworks/subnet-1",
}
GCP: dict[str, Change] = {
    "tags": ({"tags": {**GCP_SPEC["tags"], "Owner": "ann"}}, {}),
    "capacity": ({"capacity": {**GCP_SPEC["capacity"], "standing": {"target": 6}}}, {}),
    "zones": ({"zones": ["europe-west4-a"]}, {}),
    "image_id": ({"image_id": "projects/everspot-local/global/images/everspot-2"}, {}),
    "image_family": ({"image_family": "nightly", "image_id": None}, {}),
    "volume_gib": ({"volume_gib": 120}, {}),
    "volume_type": ({"volume_type": "pd-ssd"}, {}),
    "volume_kms_key": (
        {"volume_kms_key": "projects/everspot-local/locations/europe-west4/keyRings/r/cryptoKeys/k"},
        {},
    ),
    "secure_boot": ({"secure_boot": False}, {}),
    "vpc_cidr": ({"vpc_cidr": "10.80.0.0/16"}, {}),
    "scheduler_cidr": ({"scheduler_cidr": "10.90.0.0/28"}, {}),
    "network": (EXISTING_NETWORK, {}),
    "subnetwork": ({"subnetwork": EXISTING_NETWORK["subnetwork"] + "0"}, EXISTING_NETWORK),
    "firewall": ({"firewall": False}, EXISTING_NETWORK),
    "nat": ({"nat": True}, {}),
    "flow_logs": ({"flow_logs": True}, {}),
    "iap_ssh": ({"iap_ssh": True}, {}),
    "read_buckets": ({"read_buckets": ["images-of-ours"]}, {}),
    "job_role": ({"job_role": False}, {}),
    "secrets": ({"secrets": ["projects/everspot-local/secrets/token"]}, {}),
    "image_repositories": ({"image_repositories": ["europe-docker.pkg.dev/everspot-local/images"]}, {}),
    "notifications": ({"notifications": {"topic": "projects/everspot-local/topics/ops"}}, {}),
    "anomalies": ({"anomalies": {"job_times": 3}}, {}),
    "monitoring": ({"monitoring": {}}, {}),
    "prometheus": ({"prometheus": {"cidrs": ["10.1.0.0/16"]}}, {}),
    "shares": ({"shares": {"ml": 2.0}}, {}),
    "shared_instances": ({"shared_instances": True}, {}),
    "federation": ({"federation": [ON_AWS]}, {}),
    "scheduler_type": ({"scheduler_type": "e2-standard-4"}, {}),
    "retain_store": ({"retain_store": False}, {}),
    "jobs_expire_days": ({"jobs_expire_days": 60}, {}),
    "protect": ({"protect": True}, {}),
    "guard_jobs": ({"guard_jobs": False}, {}),
    "kms_key": ({"kms_key": "projects/everspot-local/locations/europe-west4/keyRings/r/cryptoKeys/k"}, {}),
    "limits": ({"limits": {"lease_ttl": "90s"}}, {}),
}
REFUSED_BY_A_CHECK: dict[type, dict[str, Change]] = {
    AwsTrainingCluster: {
        "gpu_arches": (
            {"gpu_arches": ["sm_100"]},
            {"capacity": {"instance_types": [{"type": "g5.xlarge"}], "standing": {"target": 1}}},
        ),
        "peer_cidrs": ({"peer_cidrs": ["10.64.0.0/16"]}, {}),
    },
    GcpTrainingCluster: {
        "gpu_arches": ({"gpu_arches": ["sm_100"]}, {}),
        "peer_cidrs": ({"peer_cidrs": ["10.64.0.0/16"]}, {}),
    },
}
"""The inputs that only a check reads, with a value that it refuses."""

CLUSTERS: dict[type, tuple[Any, dict[str, Change]]] = {
    AwsTrainingCluster: (AWS_SPEC, AWS),
    GcpTrainingCluster: (GCP_SPEC, GCP),
}
WITHOUT_CHANGES: dict[Any, dict[str, Any]] = {}
"""What the spec of each kind registers, once a test has asked for it."""
KINDS = {AwsTrainingCluster: AwsTrainingClusterArgs, GcpTrainingCluster: GcpTrainingClusterArgs}


def changed(spec: Any, *changes: dict[str, Any]) -> Any:
    """The spec with other values; None removes an input."""
    args = copy.deepcopy(dict(spec))
    for change in changes:
        args |= change
    return {key: value for key, value in args.items() if value is not None}


@pytest.fixture
def registered(declare: Declare) -> Callable[..., dict[str, Any]]:
    """All that a cluster asks the engine to register, by name: inputs, options and dependencies."""

    def run(kind: Any, args: Any) -> dict[str, Any]:
        requests: dict[str, Any] = {}
        register = pulumi.runtime.mocks.MockMonitor.RegisterResource

        def spy(self: Any, request: Any) -> Any:
            entry = MessageToDict(request)
            requests[request.name] = {
                key: sorted(value) if isinstance(value, list) and all(isinstance(v, str) for v in value) else value
                for key, value in entry.items()
                if key != "propertyDependencies"  # whose lists come in any order
            }
            return register(self, request)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pulumi.runtime.mocks.MockMonitor, "RegisterResource", spy)
            declare(lambda: {"cluster": kind("train", args).cluster})
        return requests

    return run


@pytest.mark.parametrize("kind", CLUSTERS, ids=["aws", "gcp"])
def test_the_tables_have_every_input(kind: Any) -> None:
    assert KINDS[kind].__annotations__.keys() == CLUSTERS[kind][1].keys() | REFUSED_BY_A_CHECK[kind].keys()


@pytest.mark.parametrize(
    ("kind", "key"),
    [(kind, key) for kind, (_, table) in CLUSTERS.items() for key in table],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_every_input_changes_what_is_declared(registered: Callable[..., dict[str, Any]], kind: Any, key: str) -> None:
    spec, table = CLUSTERS[kind]
    change, needed = table[key]
    assert key in change
    if not needed and kind not in WITHOUT_CHANGES:  # most inputs need no other one: they are compared with the same
        WITHOUT_CHANGES[kind] = registered(kind, changed(spec))
    without_change = registered(kind, changed(spec, needed)) if needed else WITHOUT_CHANGES[kind]
    assert registered(kind, changed(spec, needed, change)) != without_change


def test_the_same_spec_is_declared_in_the_same_way(registered: Callable[..., dict[str, Any]]) -> None:
    for kind, (spec, _) in CLUSTERS.items():
        assert registered(kind, changed(spec)) == registered(kind, changed(spec))


@pytest.mark.parametrize(
    ("kind", "key"),
    [(kind, key) for kind, table in REFUSED_BY_A_CHECK.items() for key in table],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_an_input_that_only_a_check_reads_reaches_it(
    registered: Callable[..., dict[str, Any]], kind: Any, key: str
) -> None:
    change, needed = REFUSED_BY_A_CHECK[kind][key]
    spec = CLUSTERS[kind][0]
    registered(kind, changed(spec, needed))
    with pytest.raises(pulumi.InputPropertiesError):
        registered(kind, changed(spec, needed, change))


def test_a_part_is_given_no_input_that_it_does_not_declare() -> None:
    spec = {"tags": {}, "zones": ["eu-west-1a"], "image_id": "ami-1"}
    assert inputs(AwsNetworkArgs, spec, cluster="train") == {"tags": {}, "zones": ["eu-west-1a"], "cluster": "train"}
    with pytest.raises(TypeError, match="AwsNetworkArgs has no input zone, subnet"):
        inputs(AwsNetworkArgs, spec, zone="eu-west-1a", subnet="subnet-1")
