"""Everspot's components: training fleets on capacity that comes and goes, for any Pulumi program."""

from everspot_clouds.aws.fleet import OnDemandAllocation, SpotAllocation
from everspot_core.fleet import WeightBy

from everspot.account import AccountSetup, AccountSetupArgs
from everspot.capacity import CapacityArgs, CapacityRebalanceArgs, InstanceTypeArgs
from everspot.cluster import TrainingCluster, TrainingClusterArgs
from everspot.events import InterruptionEvents, InterruptionEventsArgs
from everspot.fleet import TrainingFleet, TrainingFleetArgs
from everspot.identity import Identity, IdentityArgs
from everspot.launch import MachineArgs
from everspot.limits import LimitsArgs
from everspot.network import Network, NetworkArgs
from everspot.notifications import NotificationsArgs
from everspot.scheduler import SchedulerService, SchedulerServiceArgs
from everspot.store import Store, StoreArgs

__all__ = [
    "AccountSetup",
    "AccountSetupArgs",
    "CapacityArgs",
    "CapacityRebalanceArgs",
    "Identity",
    "IdentityArgs",
    "InstanceTypeArgs",
    "InterruptionEvents",
    "InterruptionEventsArgs",
    "LimitsArgs",
    "MachineArgs",
    "Network",
    "NetworkArgs",
    "NotificationsArgs",
    "OnDemandAllocation",
    "SchedulerService",
    "SchedulerServiceArgs",
    "SpotAllocation",
    "Store",
    "StoreArgs",
    "TrainingCluster",
    "TrainingClusterArgs",
    "TrainingFleet",
    "TrainingFleetArgs",
    "WeightBy",
]
