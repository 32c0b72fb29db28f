"""Everspot's components: training fleets on capacity that comes and goes, for any Pulumi program; and `Client`, the
Python API for jobs, which needs no Pulumi.

A name is imported when it is first asked for: the SDK of a cloud takes seconds to load, and a program of one cloud does
not load another's.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everspot_cli.client import Client, CliError, JobStatus
    from everspot_cli.functions.decorator import JobHandle, job
    from everspot_clouds.aws.fleet import AwsOnDemandAllocation, AwsSpotAllocation
    from everspot_clouds.gcp.fleet import GcpPrefer, GcpShape
    from everspot_core.capacity.fleet import WeightBy

    from everspot.anomalies import AnomalyArgs
    from everspot.aws.account import AwsAccountSetup, AwsAccountSetupArgs
    from everspot.aws.args import AwsTrainingClusterArgs
    from everspot.aws.bootstrap import AwsBootstrap, AwsBootstrapArgs
    from everspot.aws.capacity import (
        AwsCapacityArgs,
        AwsCapacityRebalanceArgs,
        AwsElasticArgs,
        AwsInstanceTypeArgs,
        AwsStandingArgs,
    )
    from everspot.aws.cluster import AwsTrainingCluster
    from everspot.aws.elastic import AwsElasticCapacity, AwsElasticCapacityArgs
    from everspot.aws.events import AwsInterruptionEvents, AwsInterruptionEventsArgs
    from everspot.aws.fleet import AwsTrainingFleet, AwsTrainingFleetArgs
    from everspot.aws.identity import AwsIdentity, AwsIdentityArgs, AwsPodIdentityArgs
    from everspot.aws.launch import AwsMachineArgs
    from everspot.aws.monitoring import AwsAlarmsArgs, AwsMonitoring, AwsMonitoringArgs
    from everspot.aws.network import AwsNetwork, AwsNetworkArgs
    from everspot.aws.notifications import AwsNotificationsArgs
    from everspot.aws.scheduler import AwsSchedulerService, AwsSchedulerServiceArgs
    from everspot.aws.scraping import AwsPrometheusArgs
    from everspot.aws.spending import AwsAnomaliesArgs, AwsSpendingArgs
    from everspot.aws.store import AwsStore, AwsStoreArgs
    from everspot.federation import PeerArgs
    from everspot.gcp.account import GcpAccountSetup, GcpAccountSetupArgs
    from everspot.gcp.args import GcpTrainingClusterArgs
    from everspot.gcp.bootstrap import GcpBootstrap, GcpBootstrapArgs, GcpSpendingArgs
    from everspot.gcp.capacity import GcpCapacityArgs, GcpElasticArgs, GcpInstanceTypeArgs, GcpStandingArgs
    from everspot.gcp.cluster import GcpTrainingCluster
    from everspot.gcp.elastic import GcpElasticCapacity, GcpElasticCapacityArgs
    from everspot.gcp.events import GcpInterruptionEvents, GcpInterruptionEventsArgs
    from everspot.gcp.fleet import GcpTrainingFleet, GcpTrainingFleetArgs
    from everspot.gcp.identity import GcpIdentity, GcpIdentityArgs
    from everspot.gcp.launch import GcpMachineArgs
    from everspot.gcp.monitoring import GcpAlarmsArgs, GcpMonitoring, GcpMonitoringArgs
    from everspot.gcp.network import GcpNetwork, GcpNetworkArgs
    from everspot.gcp.notifications import GcpNotificationsArgs
    from everspot.gcp.scheduler import GcpSchedulerService, GcpSchedulerServiceArgs
    from everspot.gcp.scraping import GcpPrometheusArgs
    from everspot.gcp.store import GcpStore, GcpStoreArgs
    from everspot.kubernetes.args import (
        AwsKubernetesCapacityArgs,
        AwsKubernetesElasticArgs,
        AwsKubernetesNodesArgs,
        AwsKubernetesPoolArgs,
        AwsKubernetesPrometheusArgs,
        AwsKubernetesTypeArgs,
    )
    from everspot.kubernetes.pool import AwsKubernetesPool
    from everspot.limits import LimitsArgs
    from everspot.repository import RepositoryArgs
    from everspot.spending import TeamBudgetArgs

__all__ = [
    "AnomalyArgs",
    "AwsAccountSetup",
    "AwsAccountSetupArgs",
    "AwsAlarmsArgs",
    "AwsAnomaliesArgs",
    "AwsBootstrap",
    "AwsBootstrapArgs",
    "AwsCapacityArgs",
    "AwsCapacityRebalanceArgs",
    "AwsElasticArgs",
    "AwsElasticCapacity",
    "AwsElasticCapacityArgs",
    "AwsIdentity",
    "AwsIdentityArgs",
    "AwsInstanceTypeArgs",
    "AwsInterruptionEvents",
    "AwsInterruptionEventsArgs",
    "AwsKubernetesCapacityArgs",
    "AwsKubernetesElasticArgs",
    "AwsKubernetesNodesArgs",
    "AwsKubernetesPool",
    "AwsKubernetesPoolArgs",
    "AwsKubernetesPrometheusArgs",
    "AwsKubernetesTypeArgs",
    "AwsMachineArgs",
    "AwsMonitoring",
    "AwsMonitoringArgs",
    "AwsNetwork",
    "AwsNetworkArgs",
    "AwsNotificationsArgs",
    "AwsOnDemandAllocation",
    "AwsPodIdentityArgs",
    "AwsPrometheusArgs",
    "AwsSchedulerService",
    "AwsSchedulerServiceArgs",
    "AwsSpendingArgs",
    "AwsSpotAllocation",
    "AwsStandingArgs",
    "AwsStore",
    "AwsStoreArgs",
    "AwsTrainingCluster",
    "AwsTrainingClusterArgs",
    "AwsTrainingFleet",
    "AwsTrainingFleetArgs",
    "CliError",
    "Client",
    "GcpAccountSetup",
    "GcpAccountSetupArgs",
    "GcpAlarmsArgs",
    "GcpBootstrap",
    "GcpBootstrapArgs",
    "GcpCapacityArgs",
    "GcpElasticArgs",
    "GcpElasticCapacity",
    "GcpElasticCapacityArgs",
    "GcpIdentity",
    "GcpIdentityArgs",
    "GcpInstanceTypeArgs",
    "GcpInterruptionEvents",
    "GcpInterruptionEventsArgs",
    "GcpMachineArgs",
    "GcpMonitoring",
    "GcpMonitoringArgs",
    "GcpNetwork",
    "GcpNetworkArgs",
    "GcpNotificationsArgs",
    "GcpPrefer",
    "GcpPrometheusArgs",
    "GcpSchedulerService",
    "GcpSchedulerServiceArgs",
    "GcpShape",
    "GcpSpendingArgs",
    "GcpStandingArgs",
    "GcpStore",
    "GcpStoreArgs",
    "GcpTrainingCluster",
    "GcpTrainingClusterArgs",
    "GcpTrainingFleet",
    "GcpTrainingFleetArgs",
    "JobHandle",
    "JobStatus",
    "LimitsArgs",
    "PeerArgs",
    "RepositoryArgs",
    "TeamBudgetArgs",
    "WeightBy",
    "job",
]

_HOMES = {
    "everspot.anomalies": ("AnomalyArgs",),
    "everspot.aws.account": ("AwsAccountSetup", "AwsAccountSetupArgs"),
    "everspot.aws.bootstrap": ("AwsBootstrap", "AwsBootstrapArgs"),
    "everspot.aws.capacity": (
        "AwsCapacityArgs",
        "AwsCapacityRebalanceArgs",
        "AwsElasticArgs",
        "AwsInstanceTypeArgs",
        "AwsStandingArgs",
    ),
    "everspot.aws.args": ("AwsTrainingClusterArgs",),
    "everspot.aws.cluster": ("AwsTrainingCluster",),
    "everspot.aws.elastic": ("AwsElasticCapacity", "AwsElasticCapacityArgs"),
    "everspot.aws.events": ("AwsInterruptionEvents", "AwsInterruptionEventsArgs"),
    "everspot.aws.fleet": ("AwsTrainingFleet", "AwsTrainingFleetArgs"),
    "everspot.aws.identity": ("AwsIdentity", "AwsIdentityArgs", "AwsPodIdentityArgs"),
    "everspot.aws.launch": ("AwsMachineArgs",),
    "everspot.aws.monitoring": ("AwsAlarmsArgs", "AwsMonitoring", "AwsMonitoringArgs"),
    "everspot.aws.network": ("AwsNetwork", "AwsNetworkArgs"),
    "everspot.aws.notifications": ("AwsNotificationsArgs",),
    "everspot.aws.scheduler": ("AwsSchedulerService", "AwsSchedulerServiceArgs"),
    "everspot.aws.scraping": ("AwsPrometheusArgs",),
    "everspot.aws.store": ("AwsStore", "AwsStoreArgs"),
    "everspot.aws.spending": ("AwsAnomaliesArgs", "AwsSpendingArgs"),
    "everspot.gcp.bootstrap": ("GcpBootstrap", "GcpBootstrapArgs", "GcpSpendingArgs"),
    "everspot.gcp.capacity": ("GcpCapacityArgs", "GcpElasticArgs", "GcpInstanceTypeArgs", "GcpStandingArgs"),
    "everspot.gcp.args": ("GcpTrainingClusterArgs",),
    "everspot.gcp.cluster": ("GcpTrainingCluster",),
    "everspot.gcp.elastic": ("GcpElasticCapacity", "GcpElasticCapacityArgs"),
    "everspot.gcp.events": ("GcpInterruptionEvents", "GcpInterruptionEventsArgs"),
    "everspot.gcp.fleet": ("GcpTrainingFleet", "GcpTrainingFleetArgs"),
    "everspot.gcp.identity": ("GcpIdentity", "GcpIdentityArgs"),
    "everspot.gcp.launch": ("GcpMachineArgs",),
    "everspot.gcp.monitoring": ("GcpAlarmsArgs", "GcpMonitoring", "GcpMonitoringArgs"),
    "everspot.gcp.network": ("GcpNetwork", "GcpNetworkArgs"),
    "everspot.gcp.notifications": ("GcpNotificationsArgs",),
    "everspot.gcp.account": ("GcpAccountSetup", "GcpAccountSetupArgs"),
    "everspot.gcp.scheduler": ("GcpSchedulerService", "GcpSchedulerServiceArgs"),
    "everspot.gcp.scraping": ("GcpPrometheusArgs",),
    "everspot.gcp.store": ("GcpStore", "GcpStoreArgs"),
    "everspot.federation": ("PeerArgs",),
    "everspot.kubernetes.args": (
        "AwsKubernetesCapacityArgs",
        "AwsKubernetesElasticArgs",
        "AwsKubernetesNodesArgs",
        "AwsKubernetesPoolArgs",
        "AwsKubernetesPrometheusArgs",
        "AwsKubernetesTypeArgs",
    ),
    "everspot.kubernetes.pool": ("AwsKubernetesPool",),
    "everspot.limits": ("LimitsArgs",),
    "everspot.repository": ("RepositoryArgs",),
    "everspot.spending": ("TeamBudgetArgs",),
    "everspot_clouds.aws.fleet": ("AwsOnDemandAllocation", "AwsSpotAllocation"),
    "everspot_clouds.gcp.fleet": ("GcpPrefer", "GcpShape"),
    "everspot_core.capacity.fleet": ("WeightBy",),
    "everspot_cli.client": ("CliError", "Client", "JobStatus"),
    "everspot_cli.functions.decorator": ("JobHandle", "job"),
}
"""The modules that names come from."""

_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
