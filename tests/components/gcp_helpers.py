"""Mock answers of Google Cloud, and valid inputs of a cluster."""

from typing import Any

from everspot import GcpTrainingClusterArgs

ZONES = ["europe-west4-a", "europe-west4-b"]
IMAGE = "projects/everspot-local/global/images/everspot-1"
SPEC: GcpTrainingClusterArgs = {
    "tags": {"Project": "vision", "Team": "ml", "Environment": "test"},
    "zones": ZONES,
    "image_id": "projects/everspot-local/global/images/everspot-1",
    "capacity": {
        "instance_types": [{"type": "g2-standard-4"}, {"type": "g2-standard-8"}, {"type": "a3-highgpu-1g"}],
        "standing": {"target": 5, "on_demand_base": 1},
    },
}


def new_resource(args: Any) -> tuple[str, dict[str, Any]]:
    """Id and outputs of what is made, in the forms that the provider gives them."""
    kind, name = args.typ.rpartition(":")[2], args.name
    where = "projects/everspot-local"
    link = f"https://www.googleapis.com/compute/v1/{where}"
    ids = {
        "RegionInstanceTemplate": f"{where}/regions/europe-west4/instanceTemplates/{name}",
        "Topic": f"{where}/topics/{name}",
        "Subscription": f"{where}/subscriptions/{name}",
        "HealthCheck": f"{where}/global/healthChecks/{name}",
        "Network": f"{where}/global/networks/{name}",
        "Subnetwork": f"{where}/regions/europe-west4/subnetworks/{name}",
    }
    answer = {
        "name": f"projects/everspot-local/roles/{name}" if kind == "IAMCustomRole" else name,
        "selfLink": f"{link}/{kind}/{name}",
        "email": f"{args.inputs.get('accountId')}@everspot-local.iam.gserviceaccount.com",
        "uniqueId": "100000000000123456789",
        "numericId": "4242",
        "writerIdentity": f"serviceAccount:{name}@logging",
    }
    return ids.get(kind, f"{name}-id"), {**answer, **args.inputs}


def image_name(query: dict[str, Any]) -> str:
    """The image of this name, or the first of this family."""
    return str(query.get("name") or f"{query.get('family', 'everspot')}-1")


def call(token: str, query: dict[str, Any]) -> Any:
    """The answers of the provider's functions."""
    return {
        "gcp:organizations/getClientConfig:getClientConfig": {
            "project": "everspot-local",
            "region": "europe-west4",
            "zone": "",
            "accessToken": "token",
        },
        "gcp:organizations/getProject:getProject": {"number": "100000000001"},
        "gcp:compute/getZones:getZones": {"names": [f"europe-west4-{zone}" for zone in "abc"]},
        "gcp:compute/getImage:getImage": {
            "selfLink": f"https://www.googleapis.com/compute/v1/{IMAGE.rpartition('/')[0]}/{image_name(query)}",
            "diskSizeGb": 60,
            "name": image_name(query),
        },
        "gcp:storage/getProjectServiceAccount:getProjectServiceAccount": {"emailAddress": "gcs@google"},
        "gcp:compute/getSubnetwork:getSubnetwork": {
            "name": "subnet-1",
            "selfLink": query.get("selfLink"),
            "network": "https://www.googleapis.com/compute/v1/projects/host-project/global/networks/shared",
            "region": "europe-west4",
            "privateIpGoogleAccess": not str(query.get("selfLink")).endswith("closed"),
        },
    }[token]
