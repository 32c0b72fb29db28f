"""A cluster on Google Cloud by the real engine and provider: it comes up, stays, changes in place, and goes."""

import json
from typing import Any

import pytest
import yaml
from everspot.gcp import deployers

pytestmark = pytest.mark.engine
STACK = "local-gcp"
NAME = f"everspot-{STACK}"
TEMPLATES = {f"{NAME}-{name}" for name in ("fleet-on-demand-agent", "fleet-spot-agent", "scheduler-template")}


def declare(google: Any, **changes: Any) -> None:
    path = google.project / "stacks" / f"Pulumi.{STACK}.yaml"
    content = yaml.safe_load(path.read_text())
    content["config"]["everspot:cluster"] |= changes
    path.write_text(yaml.safe_dump(content, sort_keys=False))


def test_a_cluster_comes_up_stays_changes_in_place_and_goes(google: Any) -> None:
    told = google.preview(STACK).told
    assert "An hour of the cluster, at list prices of europe-west4" in told
    up = google.up(STACK)
    assert up.changes[f"{NAME}-fleet-spot"] == "create" and len(up.changes) >= 50
    # A second one changes nothing, and nothing is found to have drifted.
    assert google.pulumi("preview", "--refresh", "--run-program", "--expect-no-changes", stack=STACK)
    capacity = google.declared(STACK)["capacity"]
    declare(google, capacity={**capacity, "standing": {"target": 3, "onDemandBase": 1}})
    assert google.up(STACK).changes == {f"{NAME}-fleet-spot": "update", f"{NAME}-manifest": "update"}
    # What a cluster may have besides, so that all that deployers need is asked for once.
    more = {"monitoring": {}, "nat": True, "flowLogs": True, "iapSsh": True}
    declare(google, limits={**google.declared(STACK)["limits"], "noticePoll": "1s"}, **more)
    changed = google.up(STACK).changes
    groups = {f"{NAME}-{name}" for name in ("fleet-on-demand", "fleet-spot", "scheduler-group")}
    assert {changed[name] for name in groups} == {"update"}
    assert set(changed) >= TEMPLATES
    declare(google, capacity={**capacity, "standing": {"target": 2, "shape": "EVEN"}, "maxPrice": 1.0})
    refused = google.refused(STACK)
    assert "capacity.standing.shape: EVEN goes with one instance type only" in refused
    assert "capacity.maxPrice: is another cloud's setting" in refused
    declare(google, capacity=capacity)
    google.destroy(STACK)
    assert json.loads(google.pulumi("stack", "export", stack=STACK))["deployment"].get("resources", []) == []


def test_a_project_is_set_up_and_deployers_need_exactly_what_is_listed(google: Any) -> None:
    """After the other test, whose calls count as well."""
    file = google.project / "stacks" / "Pulumi.gcp-account.yaml"
    file.write_text(file.read_text().replace("my-project", "everspot-local"))
    google.preview("gcp-account")
    assert google.up("gcp-account").changes
    google.destroy("gcp-account")
    assert google.unlisted(deployers) == set()
    listed = deployers.PREVIEW | deployers.DEPLOY | deployers.ACCOUNT
    assert listed - google.asked["preview"] - google.asked["deploy"] == set()
