"""The demo's checks of the local Google Cloud itself: the instances that were launched for jobs, and leftovers."""

from typing import Any

from everspot_clouds.gcp.rules import LAUNCH_LABEL
from everspot_local.demo.site import load_site
from everspot_local.gcp.environment import owner

SITE = load_site("gcp")
PROJECT = "everspot-local"


def test_the_cloud_is_asked_and_not_the_stack(kit: Any) -> None:
    env = owner(kit.cloud.endpoint, "europe-west4")
    assert SITE.leftovers(env, "demo") == SITE.launched(env) == []
    kit.network()
    kit.run("standing")
    kit.run("mine", labels={LAUNCH_LABEL: "abc"})
    for verb, path, body in (
        ("POST", f"/storage/v1/b?project={PROJECT}", {"name": "demo-control", "location": "europe-west4"}),
        ("PUT", f"/pubsub/v1/projects/{PROJECT}/topics/demo", {}),
        ("POST", f"/iam/v1/projects/{PROJECT}/serviceAccounts", {"accountId": "demo-agent"}),
        ("POST", f"/iam/v1/projects/{PROJECT}/roles", {"roleId": "demo_agent", "role": {"title": "Agent"}}),
    ):
        assert kit.call(verb, path, body).status == 200
    member = f"serviceAccount:demo-agent@{PROJECT}.iam.gserviceaccount.com"
    policy = {"bindings": [{"role": "roles/logging.logWriter", "members": [member]}]}
    kit.until(
        lambda: any("service account" in leftover for leftover in SITE.leftovers(env, "demo"))
    )  # after ten seconds
    assert kit.call("POST", f"/resourcemanager/v1/projects/{PROJECT}:setIamPolicy", {"policy": policy}).status == 200
    assert SITE.launched(env) == ["mine"]
    leftovers = SITE.leftovers(env, "demo")
    for kind in ("instances standing", "instances mine", "subnetworks net", "networks net", "bucket demo-control"):
        assert kind in leftovers
    for kind in ("topic projects", "service account projects", "role projects", "grant of roles/logging.logWriter"):
        assert any(leftover.startswith(kind) for leftover in leftovers), (kind, leftovers)
