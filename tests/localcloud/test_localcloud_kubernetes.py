"""`everspot-local up --cloud kubernetes`: Karpenter gives a pod a machine of the market, and nothing outlives the
command's process, even if that is killed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from everspot_local.demo.site import load_site
from everspot_local.kubernetes.api import KubeApi
from everspot_local.kubernetes.machine import read_api
from everspot_local.kubernetes.programs import STANDING, have_programs
from everspot_local.machines import keeper

ROOT = Path(__file__).resolve().parents[2]
MISSING = "there is no control plane of Kubernetes, or no Karpenter: make setup WITH=kubernetes builds both"
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not have_programs(ROOT / ".everspot/toolchain/kubernetes"), reason=MISSING),
]
TAGS = {"karpenter.sh/discovery": "local"}
NODE_CLASS = {
    "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
    "spec": {
        "role": "KarpenterNodeRole-local", "amiFamily": "Custom", "amiSelectorTerms": [{"id": "ami-12c6146b"}],
        "subnetSelectorTerms": [{"tags": TAGS}], "securityGroupSelectorTerms": [{"tags": TAGS}],
    },
}  # fmt: skip
NODE_POOL = {
    "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
    "spec": {"template": {"spec": {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
        "requirements": [
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m6i.large"]},
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
        ],
    }}},
}  # fmt: skip
POD = {
    "metadata": {"name": "hello"},
    "spec": {
        "restartPolicy": "Never",
        "nodeSelector": {"karpenter.sh/nodepool": "default"},
        "containers": [{"name": "hello", "image": "none", "command": ["sleep", "1000"]}],
    },
}
SITE = load_site("kubernetes")
SCRIPT = '[ "$(cat $0/word)" = hello ] || exit 9; [ -e ended ] || { touch ended; exit 3; }; exec sleep 1000'
"""Ends once with an error, and then runs on. `$0`: the path of the mount."""
DEPLOYMENT = {
    "metadata": {"name": "server"},
    "spec": {
        "selector": {"matchLabels": {"app": "server"}},
        "template": {"metadata": {"labels": {"app": "server"}}, "spec": {
            "containers": [{
                "name": "server", "image": "none", "command": ["sh", "-c", SCRIPT, "/etc/words"],
                "volumeMounts": [{"name": "words", "mountPath": "/etc/words"}],
            }],
            "volumes": [{"name": "words", "configMap": {"name": "words"}}],
        }},
    },
}  # fmt: skip


def command(*arguments: str) -> Any:
    """What `everspot-local` answers."""
    line = [sys.executable, "-m", "everspot_local.main", *arguments, "--json"]
    return json.loads(subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True, timeout=600).stdout)


def phase(api: KubeApi) -> str:
    return str(api.get("/api/v1/namespaces/default/pods/hello")["status"].get("phase"))


def check_deployment(api: KubeApi, helpers: Any) -> None:
    """A Deployment runs on the node that costs nothing, reads its ConfigMap, and is started again after an error."""
    api.create("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "words"}, "data": {"word": "hello"}})
    api.create("/apis/apps/v1/namespaces/default/deployments", DEPLOYMENT)
    pods = "/api/v1/namespaces/default/pods?labelSelector=app%3Dserver"

    def restarted() -> Any:
        (status,) = [each["status"] for each in api.get(pods)["items"]] or [{}]
        containers = status.get("containerStatuses", [])
        return containers and containers[0]["ready"] and containers[0]["restartCount"] == 1

    helpers.until(restarted, 120)
    (pod,) = api.get(pods)["items"]
    assert pod["spec"]["nodeName"] == STANDING
    path = "/apis/apps/v1/namespaces/default/deployments/server"
    helpers.until(lambda: api.get(path)["status"].get("availableReplicas") == 1, 60)
    api.delete(path, {"propagationPolicy": "Background"})
    helpers.until(lambda: not api.get(pods)["items"], 120)


def test_a_pod_gets_a_machine_of_the_market_and_all_ends_with_the_process(tmp_path: Path, helpers: Any) -> None:
    state = ("--state-dir", str(tmp_path))
    options = ("--cloud", "kubernetes", "--delay", "boot=2s", "--delay", "pending=1s", "--delay", "propagation=1s")
    address = command("up", *options, *state)
    assert (address["cloud"], address["time_scale"]) == ("aws", 1)
    try:
        env = command("env", *state)
        api = read_api(Path(env["KUBECONFIG"]))
        helpers.until(lambda: SITE.launched(env) == SITE.leftovers(env, "demo") == [], 60)
        api.create("/apis/karpenter.k8s.aws/v1/ec2nodeclasses", NODE_CLASS)
        api.create("/apis/karpenter.sh/v1/nodepools", NODE_POOL)
        api.create("/api/v1/namespaces/default/pods", POD)
        helpers.until(lambda: phase(api) == "Running", 300)
        (machine,) = command("status", *state)["instances"]
        assert (machine["type"], machine["market"]) == ("m6i.large", "spot")
        assert api.get("/api/v1/namespaces/default/pods/hello")["spec"]["nodeName"] == machine["id"]
        leftovers = SITE.leftovers(env, "demo")
        assert {"node pool default", "node class default", f"node {machine['id']}", f"instance {machine['id']}"} <= set(
            leftovers
        )
        (claim,) = SITE.launched(env)
        assert f"node claim {claim}" in leftovers
        check_deployment(api, helpers)
        programs = keeper.descendants(address["pid"])
        assert len(programs) >= 12, "six programs with their keepers, and those of the machine"
    finally:
        os.kill(address["pid"], signal.SIGKILL)
    running = keeper.processes
    helpers.until(lambda: not set(programs) & set(running()), 60)
