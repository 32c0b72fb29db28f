"""The Google Cloud components only use names that the SDK has, whose sources mypy does not read."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from everspot import GcpAccountSetup, GcpTrainingCluster
from everspot_local.bridge.sdk import Sdk, Shape
from gcp_helpers import SPEC

Declare = Callable[..., tuple[Any, dict[str, Any]]]
SDK = Sdk("pulumi_gcp")
KEY = "projects/p-12345/locations/europe-west4/keyRings/r/cryptoKeys/k"
SECRET = "projects/p-12345/secrets/s"
EVERYTHING: Any = {
    **SPEC,
    "capacity": {**SPEC["capacity"], "elastic": {"max_instances": 3}},
    "nat": True,
    "flow_logs": True,
    "iap_ssh": True,
    "kms_key": KEY,
    "volume_kms_key": KEY,
    "jobs_expire_days": 40,
    "secrets": [SECRET],
    "image_repositories": ["europe-docker.pkg.dev/p-12345/images"],
    "read_buckets": ["data-sets"],
    "notifications": {"topic": "projects/p-12345/topics/t", "webhook_secret": SECRET},
    "monitoring": {"channels": ["projects/p-12345/notificationChannels/7"]},
    "prometheus": {"cidrs": ["10.0.0.0/24"]},
}
ATTACHED: Any = {**SPEC, "capacity": {"instance_types": [{"type": "n1-standard-8+t4"}], "standing": {"target": 1}}}


def strangers(token: str, nested: Any, shape: Shape, path: str) -> Iterator[str]:
    """The names in a value that its type does not have."""
    if shape.kind == "list" and isinstance(nested, list) and shape.element is not None:
        for entry in nested:
            yield from strangers(token, entry, shape.element, f"{path}[]")
    elif shape.kind == "object" and isinstance(nested, dict):
        fields = SDK.nested(token, shape.cls)
        for name, value in nested.items():
            if name not in fields:
                yield f"{token}: {path}.{name}"
            else:
                yield from strangers(token, value, fields[name], f"{path}.{name}")
    elif shape.kind in ("list", "object") and nested is not None:
        yield f"{token}: {path} is not of the kind {shape.kind}"


@pytest.mark.parametrize("spec", [EVERYTHING, ATTACHED], ids=["everything", "attached"])
def test_every_name_is_one_of_the_sdks(declare: Declare, spec: Any) -> None:
    def program() -> dict[str, Any]:
        GcpAccountSetup("once", {"tags": spec["tags"], "volume_kms_keys": [KEY]})
        return {"url": GcpTrainingCluster("train", copy.deepcopy(spec)).control_url}

    recorder, _ = declare(program)
    unknown, tokens = [], set()
    for resource in recorder.resources:
        if resource.typ.startswith("gcp:"):
            tokens.add(resource.typ)
            inputs = SDK.resource(resource.typ).inputs
            for name, value in resource.inputs.items():
                shape = inputs.get(name)
                unknown += [f"{resource.typ}: {name}"] if shape is None else strangers(resource.typ, value, shape, name)
    assert unknown == []
    assert len(tokens) > 15


def test_a_name_that_the_sdk_lacks_is_found() -> None:
    shape = SDK.resource("gcp:compute/regionInstanceTemplate:RegionInstanceTemplate").inputs["scheduling"]
    scheduling = {"preemptible": True, "on_host_maintenance": "TERMINATE"}
    assert list(strangers("gcp:compute/regionInstanceTemplate:RegionInstanceTemplate", scheduling, shape, "s")) == [
        "gcp:compute/regionInstanceTemplate:RegionInstanceTemplate: s.on_host_maintenance"
    ]
