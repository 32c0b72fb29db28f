"""A cluster whose scheduler launches through the Google Cloud adapter, in a local Google Cloud."""

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "clouds"))  # the network and the template that its tests have

from elastic_helpers import ElasticCluster, Killer, elastic
from everspot_clouds.base import Phase
from everspot_clouds.gcp.cloud import GcpCloud
from everspot_core.jobs.records import Market
from everspot_local.cloud import LocalCloud
from everspot_scheduler.loop import Scheduler
from everspot_store import ManualClock
from google_site import REGION, TEMPLATE, A, GoogleSite

TYPE, OTHER = "n2-standard-8", "n2-standard-16"


class GoogleProject:
    """A local Google Cloud with a network and a template."""

    def __init__(self, cloud: LocalCloud) -> None:
        self.cloud, self.site = cloud, GoogleSite(cloud)
        self.site.build()

    def launched(self, cluster: str) -> set[str]:
        """Return every instance that was ever launched for a cluster, including deleted ones, which are no longer
        described."""
        pages = self.site.api.pages("compute", "projects/everspot-local/aggregated/operations")
        operations = [o for page in pages for scope in page["items"].values() for o in scope.get("operations", ())]
        return {
            str(o["targetId"])
            for o in operations
            if o["operationType"] == "insert" and f"/instances/{cluster}-e-" in o["targetLink"] and "error" not in o
        }


class GoogleElastic(ElasticCluster):
    """A cluster whose cloud is the adapter against the local Google Cloud. The scheduler's market time is the test's
    own; the adapter waits for operations in the cloud's."""

    kind, zone = TYPE, A

    def __init__(self, store: Any, clock: ManualClock, name: str, project: GoogleProject) -> None:
        super().__init__(store, clock)
        self.project, self.name = project, name
        self.declare(cluster=name, cloud="gcp", region=REGION, account="everspot-local", notice=timedelta(seconds=120))
        self.offer()

    def offer(self, **update: object) -> None:
        """Declare what may be launched, and begin with a scheduler that knows it."""
        where = {"types": [self.kind], "template": TEMPLATE, "template_version": "", "places": {self.zone: "net"}}
        self.declare(elastic=elastic(**where | update))
        self.schedulers = [self.successor("s1")]

    def successor(self, name: str) -> Scheduler:
        """Another process: its adapter remembers no operation."""
        self.cloud = GcpCloud.open(self.manifest, self.project.site.clock)  # type: ignore[assignment]
        return self.scheduler(name)

    def count(self, killer: Killer) -> None:
        """Count the requests of launches and releases, too; each takes more than one request."""
        plain = self.cloud._api._once
        counted = killer.counted(plain, "request")

        def once(method: str, url: str, *more: Any) -> object:
            changes = method == "DELETE" or url.endswith("/instances/bulkInsert")
            return (counted if changes else plain)(method, url, *more)

        self.cloud._api._once = once

    def living(self) -> dict[str, Market]:
        return {i.instance_id: i.market for i in self.cloud.instances() if i.phase is Phase.ALIVE}

    def launched(self) -> set[str]:
        return self.project.launched(self.name)
