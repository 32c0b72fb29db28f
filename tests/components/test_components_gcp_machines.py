"""Instance templates on Google Cloud, and how groups choose types, heal and roll out."""

from functools import partial
from typing import Any

import pytest
from gcp_cluster_helpers import ELASTIC, SUBNETWORK, TEMPLATE, Cluster, Declare, manifest, registered
from gcp_helpers import IMAGE, ZONES


@pytest.fixture
def cluster(declare: Declare) -> Cluster:
    return partial(registered, declare)


def test_every_instance_has_the_label_of_its_image(cluster: Cluster) -> None:
    recorder = cluster(capacity={"elastic": ELASTIC})
    templates = recorder.of_type(TEMPLATE)
    assert len(templates) == 4
    for args in templates:
        assert args.inputs["labels"]["everspot-image"] == "everspot-1"
        assert args.inputs["disks"][0]["labels"] == args.inputs["labels"]


def test_templates_give_no_address_no_key_and_a_checked_boot(cluster: Cluster) -> None:
    recorder = cluster(capacity={"elastic": ELASTIC})
    templates = recorder.of_type(TEMPLATE)
    assert len(templates) == 4
    for name, template in ((args.name, args.inputs) for args in templates):
        assert template["shieldedInstanceConfig"] == {
            "enableSecureBoot": True, "enableVtpm": True, "enableIntegrityMonitoring": True,
        }  # fmt: skip
        own = name == "train-scheduler-template"
        subnetwork = SUBNETWORK.replace("-network-subnetwork", "-network-scheduler") if own else SUBNETWORK
        assert template["networkInterfaces"] == [{"subnetwork": subnetwork}]
        assert template["metadata"]["enable-oslogin"] == "TRUE"
        assert template["metadata"]["block-project-ssh-keys"] == "TRUE"
        assert template["canIpForward"] is False
        assert template["serviceAccount"]["scopes"] == ["https://www.googleapis.com/auth/cloud-platform"]
        (disk,) = template["disks"]
        assert disk["autoDelete"] and disk["boot"] and disk["sourceImage"] == IMAGE and disk["diskSizeGb"] == 60
        assert template["labels"] == disk["labels"]
        assert template["labels"]["everspot-cluster"] == "train" and template["labels"]["project"] == "vision"
        assert "tags" not in template
    assert recorder.inputs("train-scheduler-template")["labels"]["everspot-role"] == "scheduler"
    accounts = {args.name: args.inputs["serviceAccount"]["email"].partition("@")[0] for args in templates}
    assert accounts == {
        "train-fleet-on-demand-agent": "train-agent", "train-fleet-spot-agent": "train-agent",
        "train-elastic-template": "train-agent", "train-scheduler-template": "train-scheduler",
    }  # fmt: skip


def test_the_scheduler_gets_a_disk_that_its_own_machine_takes(cluster: Cluster) -> None:
    recorder = cluster(capacity={"instance_types": [{"type": "a3-highgpu-1g"}]}, volume_type="hyperdisk-balanced")
    disks = {
        template.inputs["machineType"]: template.inputs["disks"][0]["diskType"]
        for template in recorder.of_type(TEMPLATE)
    }
    assert disks == {"a3-highgpu-1g": "hyperdisk-balanced", "e2-small": "pd-balanced"}


def test_each_market_has_its_scheduling(cluster: Cluster) -> None:
    recorder = cluster(capacity={"elastic": ELASTIC})
    scheduling = {args.name: args.inputs["scheduling"] for args in recorder.of_type(TEMPLATE)}
    standard = {"automaticRestart": False, "onHostMaintenance": "TERMINATE", "provisioningModel": "STANDARD", "preemptible": False}  # noqa: E501  # fmt: skip
    assert scheduling["train-fleet-on-demand-agent"] == standard
    assert scheduling["train-fleet-spot-agent"] == {
        "automaticRestart": False, "onHostMaintenance": "TERMINATE", "provisioningModel": "SPOT", "preemptible": True,
        "instanceTerminationAction": "DELETE", "preemptionNoticeDuration": {"seconds": 120},
    }  # fmt: skip
    assert scheduling["train-elastic-template"] == {
        **standard, "instanceTerminationAction": "DELETE", "maxRunDuration": {"seconds": 30 * 86400},
    }  # fmt: skip
    assert scheduling["train-scheduler-template"] == {**standard, "onHostMaintenance": "MIGRATE"}
    silent = cluster(capacity={"notice": "0s"})
    assert "preemptionNoticeDuration" not in silent.inputs("train-fleet-spot-agent")["scheduling"]
    assert manifest(silent, "train-fleet-spot-agent")["notice"] == 0


def test_the_groups_choose_by_price_heal_in_place_and_are_never_moved(cluster: Cluster) -> None:
    recorder = cluster()
    on_demand, spot = recorder.inputs("train-fleet-on-demand"), recorder.inputs("train-fleet-spot")
    assert (on_demand["targetSize"], spot["targetSize"]) == (1, 4)
    assert (on_demand["baseInstanceName"], spot["baseInstanceName"]) == ("train-agent-on-demand", "train-agent-spot")
    for group in (on_demand, spot):
        assert group["distributionPolicyTargetShape"] == "ANY"
        assert group["distributionPolicyZones"] == ZONES
        assert group["updatePolicy"] == {
            "type": "OPPORTUNISTIC", "minimalAction": "REPLACE", "instanceRedistributionType": "NONE",
            "maxSurgeFixed": 2, "maxUnavailableFixed": 2,
        }  # fmt: skip
        assert group["instanceLifecyclePolicy"] == {
            "defaultActionOnFailure": "REPAIR", "forceUpdateOnRepair": "YES", "onRepair": {"allowChangingZone": "YES"},
        }  # fmt: skip
        assert group["autoHealingPolicies"] == {
            "healthCheck": "projects/everspot-local/global/healthChecks/train-fleet-health", "initialDelaySec": 600,
        }  # fmt: skip
    # 0.74 and 0.90 on demand are within a quarter of each other; an H100 costs 13.98, and on Spot ten times an L4.
    assert selections(on_demand) == [(0, ["g2-standard-4", "g2-standard-8"]), (1, ["a3-highgpu-1g"])]
    assert selections(spot) == [(0, ["g2-standard-4", "g2-standard-8"]), (1, ["a3-highgpu-1g"])]
    faster = cluster(capacity={
        "instance_types": [{"type": "g2-standard-4"}, {"type": "a3-highgpu-1g", "throughput": 12}],
        "standing": {"target": 2, "prefer": "price"},
    })  # fmt: skip
    assert selections(faster.inputs("train-fleet-spot")) == [(0, ["a3-highgpu-1g"]), (1, ["g2-standard-4"])]
    assert selections(faster.inputs("train-fleet-on-demand")) == [(0, ["g2-standard-4"]), (1, ["a3-highgpu-1g"])]


def test_one_type_needs_no_choice_and_may_be_spread_evenly(cluster: Cluster) -> None:
    single_type = {"instance_types": [{"type": "n1-standard-8+t4"}], "standing": {"target": 2, "shape": "EVEN"}}
    recorder = cluster(capacity=single_type)
    group, template = recorder.inputs("train-fleet-spot"), recorder.inputs("train-fleet-spot-agent")
    assert "instanceFlexibilityPolicy" not in group
    assert group["distributionPolicyTargetShape"] == "EVEN"
    assert group["instanceLifecyclePolicy"]["onRepair"] == {"allowChangingZone": "NO"}
    assert (template["machineType"], template["guestAccelerators"]) == (
        "n1-standard-8", [{"type": "nvidia-tesla-t4", "count": 1}],
    )  # fmt: skip
    assert template["instanceDescription"] == "Everspot n1-standard-8+t4"


def test_the_scheduler_is_a_group_of_one_that_is_renewed_beside_the_old_one(cluster: Cluster) -> None:
    group = cluster().inputs("train-scheduler-group")
    assert (group["targetSize"], group["baseInstanceName"]) == (1, "train-scheduler")
    policy = group["updatePolicy"]
    assert (policy["type"], policy["maxSurgeFixed"], policy["maxUnavailableFixed"]) == ("PROACTIVE", 2, 0)
    assert group["instanceLifecyclePolicy"]["onRepair"] == {"allowChangingZone": "YES"}


def selections(group: dict[str, Any]) -> list[tuple[int, list[str]]]:
    listed = group["instanceFlexibilityPolicy"]["instanceSelections"]
    assert [selection["name"] for selection in listed] == [f"rank-{selection['rank']:.0f}" for selection in listed]
    return [(int(selection["rank"]), selection["machineTypes"]) for selection in listed]
