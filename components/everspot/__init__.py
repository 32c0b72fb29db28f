"""Everspot's components: training fleets on capacity that comes and goes, for any Pulumi program."""

from everspot_clouds.aws.fleet import AwsOnDemandAllocation, AwsSpotAllocation
from everspot_core.fleet import WeightBy

from everspot.aws.account import AwsAccountSetup, AwsAccountSetupArgs
from everspot.aws.capacity import (
    AwsCapacityArgs,
    AwsCapacityRebalanceArgs,
    AwsElasticArgs,
    AwsInstanceTypeArgs,
    AwsStandingArgs,
)
from everspot.aws.cluster import AwsTrainingCluster, AwsTrainingClusterArgs
from everspot.aws.elastic import AwsElasticCapacity, AwsElasticCapacityArgs
from everspot.aws.events import AwsInterruptionEvents, AwsInterruptionEventsArgs
from everspot.aws.fleet import AwsTrainingFleet, AwsTrainingFleetArgs
from everspot.aws.identity import AwsIdentity, AwsIdentityArgs
from everspot.aws.launch import AwsMachineArgs
from everspot.aws.monitoring import AwsAlarmsArgs, AwsMonitoring, AwsMonitoringArgs
from everspot.aws.network import AwsNetwork, AwsNetworkArgs
from everspot.aws.notifications import AwsNotificationsArgs
from everspot.aws.scheduler import AwsSchedulerService, AwsSchedulerServiceArgs
from everspot.aws.scraping import AwsPrometheusArgs
from everspot.aws.store import AwsStore, AwsStoreArgs
from everspot.limits import LimitsArgs

__all__ = [
    "AwsAccountSetup",
    "AwsAccountSetupArgs",
    "AwsAlarmsArgs",
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
    "AwsMachineArgs",
    "AwsMonitoring",
    "AwsMonitoringArgs",
    "AwsNetwork",
    "AwsNetworkArgs",
    "AwsNotificationsArgs",
    "AwsOnDemandAllocation",
    "AwsPrometheusArgs",
    "AwsSchedulerService",
    "AwsSchedulerServiceArgs",
    "AwsSpotAllocation",
    "AwsStandingArgs",
    "AwsStore",
    "AwsStoreArgs",
    "AwsTrainingCluster",
    "AwsTrainingClusterArgs",
    "AwsTrainingFleet",
    "AwsTrainingFleetArgs",
    "LimitsArgs",
    "WeightBy",
]
