"""The policies by the names that users choose them by."""

from collections.abc import Mapping
from types import MappingProxyType

from everspot_simulator.baselines import Greedy, OnDemand, UniformProgress
from everspot_simulator.engine import Policy
from everspot_simulator.everspot_policy import EverspotPolicy

POLICIES: Mapping[str, Policy] = MappingProxyType(
    {"everspot": EverspotPolicy(), "up": UniformProgress(), "greedy": Greedy(), "on-demand": OnDemand()}
)
"""`everspot` is the scheduler's own plan; the others are baselines."""
