"""What a person asks of a cluster on Google: doctor's checks, what is left of it, and the way into an instance."""

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from everspot_clouds.base import Check, CloudError, NotOffered, Verdict
from everspot_clouds.gcp.errors import ApiError
from everspot_clouds.gcp.hourly import Upkeep, hourly_cost
from everspot_clouds.registry import provider
from everspot_core.capacity.catalogue import builtin
from everspot_core.capacity.fleet import CapacitySpec, TypeChoice
from everspot_core.capacity.hourly import ElasticCap
from everspot_core.capacity.market import Market
from everspot_core.cluster.manifest import Elastic, Manifest, Standing
from everspot_local.cloud import LocalCloud
from google_site import CLUSTER, REGION, TEMPLATE, A, GoogleSite

FOUR = "g2-standard-4"


@pytest.fixture
def site(google: LocalCloud) -> GoogleSite:
    built = GoogleSite(google)
    built.build()
    for zone in "abc":
        google.do("depth", pool=f"{FOUR}/{REGION}-{zone}", instances=4, market="on-demand")
    return built


def group(site: GoogleSite, name: str, size: int, template: str = TEMPLATE) -> None:
    """A regional group of standard machines."""
    body = {
        "name": name, "baseInstanceName": name, "targetSize": size,
        "versions": [{"instanceTemplate": template}],
        "distributionPolicy": {"targetShape": "ANY"},
        "updatePolicy": {"type": "OPPORTUNISTIC", "instanceRedistributionType": "NONE"},
    }  # fmt: skip
    site.do("POST", f"regions/{REGION}/instanceGroupManagers", body)


def until(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + 60
    while not (value := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
    return value


def checked(site: GoogleSite, manifest: Manifest | None = None) -> dict[str, list[Check]]:
    """Doctor's checks by their names."""
    by_name: dict[str, list[Check]] = {}
    for check in provider("gcp").checks(REGION, manifest or site.manifest(), builtin(), site.clock):
        by_name.setdefault(check.name, []).append(check)
    return by_name


def test_doctor_asks_credentials_first_and_nothing_else_without_them(
    site: GoogleSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = checked(site)
    assert checks["credentials"][0].verdict is Verdict.OK
    assert checks["credentials"][0].detail == "project everspot-local"
    assert checks["clock"][0].verdict is Verdict.OK
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "somebody")
    (refused,) = [check for named_checks in checked(site).values() for check in named_checks]
    assert (refused.verdict, refused.group) == (Verdict.FAIL, "credentials")
    assert "gcloud auth" in refused.fix


def test_doctor_looks_for_what_limits_a_jobs_token(site: GoogleSite) -> None:
    (without,) = checked(site)["job role"]
    assert without.verdict is Verdict.WARN and "all permissions of the agents" in without.detail
    limited = site.manifest().model_copy(update={"job_role": "projects/everspot-local/roles/jobs"})
    (absent,) = checked(site, limited)["job role"]
    assert (absent.verdict, absent.fix) == (Verdict.FAIL, "pulumi up, which makes it again")
    site.api.post("iam", "projects/everspot-local/roles", {"roleId": "jobs", "role": {"includedPermissions": []}})
    whole = checked(site, limited)
    assert [check.verdict for name in ("job role", "job tokens") for check in whole[name]] == [Verdict.OK, Verdict.OK]


def test_doctor_tells_groups_that_are_whole_and_why_others_are_not(site: GoogleSite) -> None:
    assert "no instance group's template" in checked(site)["fleet"][0].detail
    group(site, "train-standard", 2)
    until(lambda: checked(site)["fleet"][0].verdict is Verdict.OK)
    assert checked(site)["fleet"][0].detail == "train-standard: 2 of 2"
    site.template("other", labels={"everspot-cluster": "other"})
    group(site, "other", 1, TEMPLATE.replace("train-elastic", "other"))
    assert len(checked(site)["fleet"]) == 1, "another cluster's group is its own business"
    for zone in "abc":
        site.cloud.do("drought", pool=f"{FOUR}/{REGION}-{zone}", market="on-demand")
    site.do("POST", f"regions/{REGION}/instanceGroupManagers/train-standard/resize?size=4", None)
    (dry,) = until(lambda: [c for c in checked(site)["fleet"] if "RESOURCE_POOL" in c.detail])
    assert (dry.group, dry.verdict) == ("capacity", Verdict.WARN)
    assert dry.detail.startswith("train-standard: 2 of 4 ZONE_RESOURCE_POOL_EXHAUSTED")


def declared(site: GoogleSite, **more: Any) -> Manifest:
    standing = Standing(on_demand_units=2, spot_units=1, weights={FOUR: 1})
    elastic = Elastic(types=[FOUR, "g2-standard-24"], markets=[Market.SPOT, Market.ON_DEMAND], max_instances=2,
                      template=TEMPLATE, template_version="", places={A: "net"})  # fmt: skip
    parts = {"standing": standing, "elastic": elastic, "scheduler_type": "e2-small", **more}
    return site.manifest().model_copy(update=parts)


def test_doctor_holds_all_of_a_cluster_against_its_quotas(site: GoogleSite) -> None:
    by_metric = {check.detail.partition(":")[0]: check for check in checked(site, declared(site))["quota"]}
    assert {metric: check.detail.partition(" at most: ")[2] for metric, check in by_metric.items()} == {
        "CPUS": "the scheduler 2",
        "NVIDIA_L4_GPUS": "standing 2 and launched 4",  # the larger type has two
        "PREEMPTIBLE_NVIDIA_L4_GPUS": "standing 1 and launched 4",
        "GPUS_ALL_REGIONS": "standing 3 and launched 4",  # whichever market they are launched on
    }
    assert all(check.verdict is Verdict.OK for check in by_metric.values())


@pytest.mark.parametrize(("limit", "verdict"), [(0, Verdict.FAIL), (5, Verdict.WARN), (7, Verdict.OK)])
def test_gpus_in_all_regions_are_a_quota_like_others(site: GoogleSite, limit: int, verdict: Verdict) -> None:
    site.cloud.do("quota", code="GPUS_ALL_REGIONS", value=limit)
    (check,) = [c for c in checked(site, declared(site))["quota"] if c.detail.startswith("GPUS_ALL_REGIONS")]
    assert check.verdict is verdict


def test_a_preview_says_the_same_figures_as_doctor(site: GoogleSite) -> None:
    types = (TypeChoice(name=FOUR), TypeChoice(name="g2-standard-24"))
    shape = CapacitySpec(types=types, target=3, on_demand_base=2)
    cap = ElasticCap(instances=2, usd_per_hour=None, markets=(Market.SPOT, Market.ON_DEMAND))
    lines = hourly_cost(REGION, builtin(), shape, Upkeep(scheduler_type="e2-small"), cap)
    standing = Standing(on_demand_units=2, spot_units=1, weights={FOUR: 1, "g2-standard-24": 1})
    for check in checked(site, declared(site, standing=standing))["quota"]:
        metric, most = re.fullmatch(r"(\w+): .* takes (\d+) at most: .*", check.detail).groups()
        assert f"{most} of {metric}" in lines


def test_everything_that_costs_money_is_told_and_other_clusters_are_not(site: GoogleSite) -> None:
    group(site, "train-standard", 1)
    for name in ("train-network-router-1a2b3c4", "train-eu-network-router-1a2b3c4"):  # of clusters `train`, `train-eu`
        body = {"name": name, "network": "global/networks/net",
                "nats": [{"name": f"nat-of-{name}", "natIpAllocateOption": "AUTO_ONLY",
                          "sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES"}]}  # fmt: skip
        site.do("POST", f"regions/{REGION}/routers", body)
    other = {"everspot-cluster": "other"}
    site.run("stranger", A, labels=other, disks=site.disks(other))
    place = provider("gcp").site(site.manifest())
    resources = until(lambda: (resource := place.remaining()) and len(resource) == 4 and resource)
    assert sorted((resource.kind, resource.ending) for resource in resources) == [
        ("NAT gateway", False), ("disk", True), ("instance", False), ("instance group", False),
    ]  # fmt: skip
    assert [r.name for r in resources if r.kind == "NAT gateway"] == ["nat-of-train-network-router-1a2b3c4"]


def test_the_way_in_is_a_tunnel_and_only_where_it_is_open(site: GoogleSite) -> None:
    own = site.run("one", A, tags={"items": ["everspot-door"]})
    closed = site.run("two", A)
    remote_access = provider("gcp").remote_access(site.manifest())
    entered = remote_access.enter(own, "nvidia-smi -l")
    assert entered.command == (
        "gcloud", "compute", "ssh", "one", "--zone", A, "--project", "everspot-local", "--tunnel-through-iap",
        "--command", "nvidia-smi -l", "--", "-t",
    )  # fmt: skip
    assert entered.needs == (("gcloud", "the gcloud CLI"),)
    assert remote_access.forward(own, 6006, 16006).command[-4:] == ("--", "-N", "-L", "127.0.0.1:16006:127.0.0.1:6006")
    with pytest.raises(NotOffered, match="closed to people: set `iapSsh: true`"):
        remote_access.enter(closed, "true")
    with pytest.raises(CloudError, match="no instance of this cluster"):
        remote_access.enter("1", "true")


@pytest.mark.parametrize(
    ("state", "verdict", "words"),
    [
        ("DEPRECATED", Verdict.WARN, "is deprecated"),
        ("OBSOLETE", Verdict.FAIL, "is OBSOLETE"),
        ("DELETED", Verdict.FAIL, "is DELETED"),
        ("", Verdict.OK, "everspot"),
        ("gone", Verdict.FAIL, "does not exist any more"),
    ],
)
def test_doctor_names_an_image_from_which_nothing_starts(
    site: GoogleSite, state: str, verdict: Verdict, words: str
) -> None:
    own = "projects/everspot-local/global/images/everspot"
    disk = {**site.disks({"everspot-cluster": CLUSTER})[0]}
    disk["initializeParams"] = {**disk["initializeParams"], "sourceImage": own}
    site.template("train-agents", disks=[disk])
    assert all(check.verdict is Verdict.OK for check in checked(site)["image"])
    if state == "gone":
        site.do("DELETE", "global/images/everspot")
    elif state:
        site.do("POST", "global/images/everspot/deprecate", {"state": state})
    (image_check,) = [check for check in checked(site)["image"] if "train-agents" in check.detail]
    assert (image_check.verdict, words in image_check.detail, own in image_check.detail) == (verdict, True, True)
    assert verdict is not Verdict.FAIL or "pulumi up" in image_check.fix
    if state:  # a family has no other image then
        with pytest.raises(ApiError):
            site.api.get("compute", "projects/everspot-local/global/images/family/everspot")
