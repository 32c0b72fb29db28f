"""Bad inputs of the components of Google Cloud: one error that names every one of them."""

import copy
import re
from typing import Any

import pulumi
import pytest
from everspot.gcp.checking import asked_zones, check_cluster
from everspot_clouds.gcp.labels import label_key, label_problems, to_labels
from everspot_clouds.gcp.machines import attached_problem
from everspot_clouds.gcp.names import account_id
from everspot_core.capacity.catalogue import builtin
from everspot_core.jobs.records import Role
from everspot_core.validation.problems import Problems
from gcp_helpers import SPEC


def refused(name: str = "train", capacity: Any = None, **changes: Any) -> dict[str, str]:
    """The reason by path of each problem of a cluster, with the spec changed by keyword."""
    args: Any = {key: value for key, value in {**copy.deepcopy(SPEC), **changes}.items() if value is not None}
    args["capacity"] = {k: v for k, v in {**args["capacity"], **(capacity or {})}.items() if v is not None}
    with pytest.raises(pulumi.InputPropertiesError) as raised:
        check_cluster(name, args)
    return {error["property_path"]: error["reason"] for error in raised.value.errors or []}


def test_a_sound_cluster_is_not_refused() -> None:
    check_cluster("train", copy.deepcopy(SPEC))


def test_one_error_names_every_bad_field() -> None:
    reasons = refused(
        tags={"Project": "Vision", "Team": "ml", "goog-x": "1"},
        zones=["europe-west4-a", "eu-west-1a"],
        image_id="ami-1",
        volume_gib=5,
        volume_type="gp3",
        vpc_cidr="10.0.0.0/33",
        jobs_expire_days=3,
        kms_key="arn:aws:kms:x",
        secrets=["db-password"],
        read_buckets=["gs://x"],
        notifications={"topic": "t"},
        monitoring={"channels": ["mail"]},
        prometheus={"cidrs": ["0.0.0.0/0"]},
        shares={"ml": 0.0},
        anomalies={"job_times": 0.1},
        scheduler_type="e2-tiny",
        limits={"lease_ttl": "1s"},
        capacity={"notice": "30s"},
    )
    assert set(reasons) == {
        *("tags", "tags.Project", "tags.goog-x", "zones[1]", "imageId", "volumeGib", "volumeType", "vpcCidr"),
        *("jobsExpireDays", "kmsKey", "secrets[0]", "readBuckets[0]", "notifications.topic", "monitoring.channels[0]"),
        *(
            "prometheus.cidrs[0]",
            "shares.ml",
            "anomalies.jobTimes",
            "schedulerType",
            "limits.leaseTtl",
            "capacity.notice",
        ),
    }
    assert reasons["tags.Project"].endswith("'vision' would do")


def test_repositories_are_those_of_artifact_registry() -> None:
    repositories = ["europe-docker.pkg.dev/p-12345/images", "europe-docker.pkg.dev/p-12345", "docker.io/p-12345/images"]
    reasons = refused(image_repositories=repositories)
    assert set(reasons) == {"imageRepositories[1]", "imageRepositories[2]"}
    assert "is not of the form LOCATION-docker.pkg.dev/PROJECT/REPOSITORY" in reasons["imageRepositories[1]"]


def test_a_jobs_limits_name_a_few_buckets_alone() -> None:
    buckets = [f"corpus-{number}" for number in range(6)]
    (reason,) = refused(read_buckets=buckets).values()
    assert "at most 5: take fewer, or jobRole: false" in reason
    check_cluster("train", {**copy.deepcopy(SPEC), "read_buckets": buckets, "job_role": False})


def test_the_blocks_of_a_network_overlap_nothing() -> None:
    assert refused(vpc_cidr="10.0.0.0/8") == {"schedulerCidr": "10.63.255.240/28 overlaps vpcCidr (10.0.0.0/8)"}
    check_cluster("train", {**copy.deepcopy(SPEC), "vpc_cidr": "10.0.0.0/8", "scheduler_cidr": "192.168.7.0/28"})
    reasons = refused(scheduler_cidr="172.16.0.0/30", peer_cidrs=["172.16.0.0/12"])
    assert set(reasons) == {"schedulerCidr"}


@pytest.mark.parametrize(
    ("capacity", "path", "reason"),
    [
        ({"standing": {"target": 2, "shape": "EVEN"}}, "standing.shape", "EVEN goes with one instance type only"),
        ({"standing": {"target": 2, "shape": "WIDE"}}, "standing.shape", "one of: ANY, BALANCED, ANY_SINGLE"),
        ({"standing": {"target": 2, "prefer": "luck"}}, "standing.prefer", "one of: price, balance, depth, order"),
        ({"standing": {"target": 2001}}, "standing.target", "between 0 and 2000"),
        ({"standing": {"target": 2, "on_demand_base": 3}}, "standing.onDemandBase", "between 0 and 2, not 3"),
        ({"notice": "30s"}, "notice", "has to be 0s or 2m, not '30s'"),
        ({"elastic": {"max_instances": 1, "max_run": "200d"}}, "elastic.maxRun", "between 1h and 120d"),
        ({"elastic": {"max_instances": 1, "max_run": "long"}}, "elastic.maxRun", "is not a duration"),
        ({"elastic": {"max_instances": 1, "zones": ["x-y1-a"]}}, "elastic.zones", "the cluster is not there"),
        ({"max_price": 1.0}, "maxPrice", "takes no maximum price"),
        ({"instance_types": [{"type": "g2-standard-4", "weight": 2}]}, "instanceTypes[0].weight", "counts machines"),
        ({"instance_types": [{"type": "e2-medium"}]}, "instanceTypes[0].type", "e2-medium is burstable"),
        ({"instance_types": [{"type": "g2-standard-5"}]}, "instanceTypes[0].type", "did you mean g2-standard-"),
        ({"instance_types": [{"type": "g2-standard-4", "zones": ["europe-west4-a"]}]}, "instanceTypes[0].zones",
         "for elastic capacity alone"),
        ({"instance_types": [{"type": "g2-standard-4"}, {"type": "n1-standard-8+t4"}]}, "instanceTypes[1].type",
         "has to be the only type of its cluster: its GPUs are attached"),
        ({"instance_types": [{"type": "n1-standard-8+v100"}]}, "instanceTypes[0].type", "compute capability 7.0"),
        ({"instance_types": [{"type": "g2-standard-4", "priority": 1.0}]}, "standing.prefer", "has to be order"),
        ({"instance_types": [{"type": "a2-highgpu-1g"}]}, "instanceTypes[0].onDemandUsdPerHour",
         "no price of a2-highgpu-1g in europe-west4 is known"),
        ({"instance_types": [{"type": f"n2-standard-{n}", "vcpus": 8, "memory_gib": 32.0} for n in range(11)]},
         "instanceTypes", "11 types; Compute Engine takes 10"),
        ({"standing": None}, "", "neither standing nor elastic is given"),
    ],
)  # fmt: skip
def test_what_the_capacity_cannot_be_is_refused_by_name(capacity: Any, path: str, reason: str) -> None:
    reasons = refused(capacity=capacity)
    where = f"capacity.{path}" if path else "capacity"
    assert list(reasons) == [where]
    assert reason in reasons[where]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("n1-standard-16+3xt4", "1 or 2 or 4 t4 can be attached, not 3"),
        ("n1-standard-64+2xt4", "a machine with 2 t4 has at most 48 vCPUs, not 64"),
        ("n1-highmem-32+p100", "a machine with 1 p100 has at most 16 vCPUs, not 32"),
        ("g2-standard-4+t4", "can be attached to N1 machine types alone"),
    ],
)
def test_gpus_that_cannot_be_attached_are_refused(name: str, message: str) -> None:
    more = {"vcpus": 8, "memory_gib": 32.0, "gpu": "T4", "gpus": 1, "gpu_memory_gib": 16.0}
    reasons = refused(capacity={"instance_types": [{"type": name, "on_demand_usd_per_hour": 1.0, **more}]})
    assert message in reasons["capacity.instanceTypes[0].type"]


@pytest.mark.parametrize("name", ["n1-standard-8+t4", "n1-standard-96+4xt4", "n1-highcpu-96+8xv100", "g2-standard-4"])
def test_gpus_that_can_be_attached_have_no_problem(name: str) -> None:
    assert attached_problem(name) is None


@pytest.mark.parametrize(
    ("types", "disk", "message"),
    [
        (
            ["g2-standard-4", "a3-highgpu-1g"],
            "hyperdisk-balanced",
            "g2-standard-4 takes pd-balanced or pd-ssd, and",
        ),
        (["n2-standard-8"], "hyperdisk-balanced", "n2-standard-8 takes pd-balanced or pd-ssd"),
        (["c4-standard-8"], None, "c4-standard-8 takes hyperdisk-balanced, and not pd-balanced"),
        (["a3-ultragpu-8g"], "pd-ssd", "a3-ultragpu-8g takes hyperdisk-balanced"),
    ],
)
def test_a_boot_disk_that_one_of_the_types_does_not_take_is_refused(types: Any, disk: str | None, message: str) -> None:
    listed = builtin().types
    size, price = {"vcpus": 8, "memory_gib": 32.0}, {"on_demand_usd_per_hour": 1.0}
    declared = [{"type": name, **price, **({} if name in listed else size)} for name in types]
    reasons = refused(capacity={"instance_types": declared}, **({"volume_type": disk} if disk else {}))
    assert list(reasons) == ["volumeType"] and message in reasons["volumeType"]


def test_a_name_by_which_machines_could_be_confused_is_refused() -> None:
    for name in ("train-agent", "vision-e-eu", "a-scheduler"):
        assert "tell what they are" in refused(name)["cluster"]
    check_cluster("agent-training", copy.deepcopy(SPEC))


def test_settings_of_a_new_network_do_not_go_with_an_existing_one() -> None:
    reasons = refused(network="projects/host-project/global/networks/n", nat=True, flow_logs=True)
    assert set(reasons) == {"subnetwork", "nat", "flowLogs"}
    assert set(refused(firewall=False)) == {"firewall"}


def test_a_zone_that_the_region_lacks_is_named_with_the_one_that_was_meant() -> None:
    problems = Problems()
    asked_zones(problems, copy.deepcopy(SPEC), ("europe-west4", ["europe-west4-a", "europe-west4-c"]))
    (problem,) = problems.collected
    assert problem.path == "zones[1]" and "did you mean" in problem.reason


def test_tags_become_labels_and_invalid_ones_are_reported() -> None:
    assert label_key("ModelVersion") == "model-version"
    assert to_labels({"Project": "vision", "CostCenter2": "a_1"}) == {"project": "vision", "cost-center2": "a_1"}
    problems = Problems()
    tags = {"Team": "a b", "team": "x", "1st": "x", "everspot-x": "x", "Long": "x" * 64, "N": 3}
    label_problems(problems, tags, own=4)
    assert [p.path for p in problems.collected] == ["Team", "team", "1st", "everspot-x", "Long", "N"]


def test_the_ids_of_service_accounts_fit_and_differ() -> None:
    assert account_id("everspot-gcp-prod", Role.SCHEDULER) == "everspot-gcp-prod-scheduler"
    long = [account_id(f"{'a' * 31}{end}", role) for end in "bc" for role in (Role.AGENT, Role.SCHEDULER)]
    assert len(set(long)) == 4
    assert all(re.fullmatch(r"[a-z][a-z0-9-]{4,28}[a-z0-9]", name) for name in long)
