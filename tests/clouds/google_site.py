"""Helpers for tests of the Google Cloud adapter: a cluster's network, template, manifest and launches."""

from datetime import timedelta
from typing import Any

from everspot_clouds.gcp.errors import ApiError
from everspot_clouds.gcp.http_api import Api
from everspot_core.capacity.launching import LaunchIntent, LaunchPool, store_mark
from everspot_core.capacity.market import Market
from everspot_core.cluster.manifest import Manifest
from everspot_local.cloud import LocalCloud
from everspot_store import SystemClock

REGION, CLUSTER = "europe-west4", "train"
CONTROL_URL = "gs://train-control"
MARK = store_mark(CONTROL_URL)
A, B, C = (f"{REGION}-{letter}" for letter in "abc")
TEMPLATE = f"projects/everspot-local/regions/{REGION}/instanceTemplates/{CLUSTER}-elastic"
SPOT = {"provisioningModel": "SPOT", "instanceTerminationAction": "DELETE"}
STANDARD = {"onHostMaintenance": "TERMINATE", "automaticRestart": False}


class GoogleSite:
    """A cluster's place in the local Google Cloud. `api`: as the project's owner; `clock`: the market's."""

    def __init__(self, cloud: LocalCloud) -> None:
        self.cloud = cloud
        market = cloud.market.clock
        self.clock = SystemClock(market.scale, market.epoch.timestamp())
        self.api = Api(self.clock)
        self.seq = 0

    def build(self, **more: Any) -> None:
        """The network, and the template of what is launched."""
        self.do("POST", "global/networks", {"name": "net", "autoCreateSubnetworks": False})
        body = {"name": "net", "network": "global/networks/net", "ipCidrRange": "10.0.0.0/20"}
        self.do("POST", f"regions/{REGION}/subnetworks", body)
        self.template(f"{CLUSTER}-elastic", **more)

    def template(self, name: str, **more: Any) -> None:
        """A regional template with the cluster's label."""
        body = {"name": name, "properties": self.properties(**more)}
        self.do("POST", f"regions/{REGION}/instanceTemplates", body)

    def properties(self, **more: Any) -> dict[str, Any]:
        """Return the properties of a standard machine."""
        return {
            "machineType": "g2-standard-4",
            "disks": self.disks({"everspot-cluster": CLUSTER}),
            "networkInterfaces": [{"subnetwork": f"regions/{REGION}/subnetworks/net"}],
            "scheduling": STANDARD,
            "labels": {"everspot-cluster": CLUSTER, "everspot-image": "train-image-7"},
            **more,
        }

    def disks(self, labels: dict[str, str]) -> list[dict[str, Any]]:
        """The boot disk of an instance."""
        image = "projects/debian-cloud/global/images/family/debian-12"
        disk = {"sourceImage": image, "diskType": "pd-balanced", "labels": labels}
        return [{"boot": True, "autoDelete": True, "initializeParams": disk}]

    def bind(self, product: str, path: str, verb: str, *pairs: tuple[str, str]) -> None:
        """Write a policy that binds each role to its member, as a person does by hand; an account that was just made is
        seen some seconds later."""
        bindings = [{"role": role, "members": [member]} for role, member in pairs]
        body: dict[str, Any] = {"bindings": bindings}
        for _ in range(600):
            try:
                self.api.call(verb, product, path, body=body if product == "storage" else {"policy": body})
                return
            except ApiError as error:
                if "does not exist" not in str(error):
                    raise
                self.clock.sleep(self.clock.to_real(timedelta(seconds=5)))
        raise AssertionError("the account was never seen")

    def run(self, name: str, zone: str = A, **more: Any) -> str:
        """The id of an instance that runs."""
        body = {"name": name, **self.properties(**more)}
        body["machineType"] = f"zones/{zone}/machineTypes/{body['machineType']}"
        return str(self.do("POST", f"zones/{zone}/instances", body)["targetId"])

    def do(self, verb: str, path: str, body: Any = None) -> dict[str, Any]:
        """A change that is carried out: its operation at the end."""
        operation = self.api.call(verb, "compute", f"projects/everspot-local/{path}", body=body)
        link = operation["selfLink"].partition("/compute/v1/")[2]
        while operation["status"] != "DONE":
            operation = self.api.call("POST", "compute", f"{link}/wait")
        assert "error" not in operation, operation
        return operation

    def logging(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """A call of an API that the product itself never calls."""
        url = f"{self.cloud.endpoint}/logging/v2/projects/everspot-local/{path}"
        return self.api._once("POST", url, body, None, timedelta(seconds=30))

    def manifest(self, **fields: Any) -> Manifest:
        """The cluster's."""
        urls = {"control_url": CONTROL_URL, "data_url": "gs://train-data"}
        return Manifest(cluster=CLUSTER, cloud="gcp", region=REGION, account="everspot-local", **{**urls, **fields})

    def intent(
        self, *pools: tuple[str, str], jobs: int = 1, whole: bool = False, market: Market = Market.SPOT
    ) -> LaunchIntent:
        """A launch of pools (type, zone), best first."""
        self.seq += 1
        return LaunchIntent(
            seq=self.seq, token=f"{MARK}{self.seq:024x}", jobs=tuple(f"job-{n}" for n in range(jobs)),
            pools=tuple(
                LaunchPool(instance_type=kind, zone=zone, market=market, place="net") for kind, zone in pools
            ),
            ordered=False, whole=whole, template=TEMPLATE, template_version="", usd_per_hour=1.0,
            made_at=self.clock.now(), scheduler_id="s-1",
        )  # fmt: skip
