"""Static types force a driver to fill every field of the view and to handle every action."""

from dataclasses import MISSING, fields
from typing import get_args, get_type_hints

import pytest
from everspot_core.schedule import (
    Action,
    ClusterView,
    Drill,
    InstanceView,
    JobView,
    Launch,
    MeasuredUse,
    Outlook,
    PoolView,
    Refuse,
    Release,
    Spent,
    StandingAction,
    Stay,
    plan,
    plan_standing,
)
from provision_helpers import NOW, dry, job, pool
from view_helpers import cluster_view


@pytest.mark.parametrize("part", [ClusterView, JobView, InstanceView, PoolView, Outlook, MeasuredUse, Spent, Drill])
def test_no_field_of_a_view_has_a_default_that_a_driver_could_hide_behind(part):
    init_fields = [f for f in fields(part) if f.init]
    assert [f.name for f in init_fields if f.default is not MISSING or f.default_factory is not MISSING] == []


def test_a_driver_of_standing_fleets_is_never_asked_to_launch_or_release():
    standing, all_actions = set(get_args(StandingAction)), set(get_args(Action))
    assert all_actions - standing == {Launch, Release, Stay, Refuse}
    assert standing < all_actions
    assert get_type_hints(plan_standing)["return"] == list[StandingAction]
    assert get_type_hints(plan)["return"] == list[Action]


@pytest.mark.parametrize("pools", [(), (pool(),), (dry(), pool())])
def test_pools_of_standing_fleets_are_looked_at_and_never_launched_in(pools):
    view = cluster_view(jobs=(job(),), pools=pools)
    (waits,) = plan_standing(view, NOW)
    assert (waits.job_id, type(waits).__name__) == ("j", "Hold")
    launched = [a for a in plan(view, NOW) if isinstance(a, Launch)]
    assert bool(launched) == bool(pools)
