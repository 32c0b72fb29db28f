"""Jobs that are smaller than an instance, with shared instances."""

from unittest.mock import patch

import pytest
from everspot_core.jobs.job import Priority
from everspot_core.jobs.records import Assignment, JobRecord, JobState, Market, Order, Reason
from everspot_core.schedule import Why
from sharing_helpers import HOUR, NOW, decide, host, job, resident


def test_several_jobs_share_an_instance_in_one_plan_as_far_as_there_is_room():
    jobs = [job(f"j{n}", age=20 - n, gpus=3, vcpus=8) for n in range(3)]
    assert decide(jobs, [host("i", "gpu8")]) == {"j0": "i", "j1": "i", "j2": Why.NO_FREE_INSTANCE}
    alone = decide(jobs, [host("i", "gpu8")], shared=False)
    assert alone == {"j0": "i", "j1": Why.NO_FREE_INSTANCE, "j2": Why.NO_FREE_INSTANCE}


@pytest.mark.parametrize(
    ("resident_need", "need", "fits"),
    [
        ({"gpus": 6}, {"gpus": 2}, True),
        ({"gpus": 6}, {"gpus": 3}, False),
        ({"vcpus": 90}, {"vcpus": 6}, True),
        ({"vcpus": 90}, {"vcpus": 7}, False),
        ({"memory_gib": 767.5}, {"memory_gib": 0.5}, True),
        ({"memory_gib": 767.5}, {"memory_gib": 0.6}, False),
        ({}, {"gpus": 1, "gpu_memory_gib": 40}, True),
        ({}, {"gpus": 1, "gpu_memory_gib": 41}, False),
        ({"gpus": 4, "gpu_memory_gib": 40}, {"gpus": 4, "gpu_memory_gib": 40}, True),
    ],
)
def test_room_is_what_the_residents_have_not_asked_for(resident_need, need, fits):
    resident_job = resident("r", "i", **resident_need)
    decided = decide([resident_job, job("j", **need)], [host("i", "gpu8", resident_job)])
    assert (decided["j"] == "i") is fits


def test_an_instance_whose_residents_are_unknown_has_no_room():
    stranger = resident("stranger", "i")
    assert decide([job("j")], [host("i", "gpu8", stranger)]) == {"j": Why.NO_FREE_INSTANCE}


@pytest.mark.parametrize(
    ("need", "expected"),
    [
        ({"gpus": 1}, "begun4"),  # the one GPU that is left
        ({"gpus": 2}, "begun8"),
        ({"gpus": 4}, "empty4"),
        ({"gpus": 5}, "empty8"),
        ({"vcpus": 4}, "full4"),  # where it keeps no GPU idle
        ({"vcpus": 16}, "cpu"),  # exactly what it has
        ({"vcpus": 16, "memory_gib": 60}, "cpu"),
        ({"gpus": 1, "gpu_memory_gib": 40}, "begun8"),
    ],
)
def test_what_is_begun_is_filled_up_and_what_is_whole_stays_so(need, expected):
    on = {
        "begun4": resident("r1", "begun4", gpus=3, vcpus=4),
        "begun8": resident("r2", "begun8", gpus=6, vcpus=4),
        "full4": resident("r3", "full4", gpus=4, vcpus=24, memory_gib=150),
    }
    hosts = [
        host("begun4", "gpu4", on["begun4"]),
        host("begun8", "gpu8", on["begun8"]),
        host("full4", "gpu4", on["full4"]),
        *(host(n, k) for n, k in (("empty4", "gpu4"), ("empty8", "gpu8"), ("cpu", "cpu"))),
    ]
    assert decide([*on.values(), job("j", **need)], hosts)["j"] == expected


def test_the_dominant_resource_decides_where_the_fit_is_best():
    """The first host is fuller in vCPUs, the second in memory. A job with memory as its dominant resource goes to the
    second."""
    cpu_heavy, memory_heavy = resident("r1", "i1", vcpus=12, memory_gib=8), resident("r2", "i2", vcpus=4, memory_gib=40)
    hosts = [host("i1", "cpu", cpu_heavy), host("i2", "cpu", memory_heavy)]
    assert decide([cpu_heavy, memory_heavy, job("j", vcpus=1, memory_gib=20)], hosts)["j"] == "i2"
    assert decide([cpu_heavy, memory_heavy, job("j", vcpus=4, memory_gib=1)], hosts)["j"] == "i1"


def test_the_market_that_is_preferred_and_another_instance_than_the_last_one_come_before_the_fit():
    resident_job = resident("r", "od", gpus=7)
    hosts = [host("od", "gpu8", resident_job, market=Market.ON_DEMAND), host("spot", "gpu8")]
    assert decide([resident_job, job("j", gpus=1)], hosts)["j"] == "spot"
    assert decide([resident_job, job("j", gpus=1, priority=Priority.CRITICAL)], hosts)["j"] == "od"
    lost = JobRecord(
        job_id="j", state=JobState.PENDING, epoch=1, last_owner="spot", last_reason=Reason.NOTICE, changed_at=NOW
    )
    assert decide([resident_job, job("j", gpus=1, record=lost)], hosts)["j"] == "od"
    assert decide([job("j", gpus=1, record=lost)], hosts[1:])["j"] == "spot"


@pytest.mark.parametrize(
    "flaw",
    [
        {"ending": True},
        {"stale": True},
        {"assignment": Assignment(instance_id="i", job_id="r", epoch=1, order=Order.STOP, changed_at=NOW)},
    ],
)
def test_nothing_is_put_beside_a_job_on_an_instance_that_is_not_fit_for_it(flaw):
    resident_job = resident("r", "i", gpus=1)
    assert (
        decide([resident_job, job("j", gpus=1)], [host("i", "gpu8", resident_job, **flaw)])["j"] is Why.NO_FREE_INSTANCE
    )


@pytest.mark.parametrize(
    ("hours", "gpus", "expected"),
    [
        (5, 2, "i"),  # done when the large one can start
        (6, 2, Why.KEPT_FOR_GANG),
        (6, 1, Why.KEPT_FOR_GANG),
        (None, 2, Why.KEPT_FOR_GANG),
        (None, 0, "i"),  # there is room beside both
    ],
)
def test_room_is_lent_until_the_job_ahead_can_start(hours, gpus, expected):
    resident_job = resident("r", "i", hours=5, gpus=6, vcpus=8)
    jobs = [resident_job, job("large", age=20, gpus=8, vcpus=48), job("late", hours=hours, gpus=gpus, vcpus=4)]
    decided = decide(jobs, [host("i", "gpu8", resident_job)])
    assert decided == {"large": Why.NO_FREE_INSTANCE, "late": expected}


def test_other_instances_than_the_one_that_is_kept_are_given_away():
    soon, later = resident("r1", "i1", hours=2, gpus=6), resident("r2", "i2", hours=9, gpus=6)
    hosts = [host("i1", "gpu8", soon), host("i2", "gpu8", later)]
    jobs = [soon, later, job("large", age=20, gpus=8), job("late", gpus=2)]
    assert decide(jobs, hosts) == {"large": Why.NO_FREE_INSTANCE, "late": "i2"}


def test_while_no_end_is_known_the_instance_that_lacks_least_is_kept():
    most, least = resident("r1", "i1", gpus=7), resident("r2", "i2", gpus=3)
    hosts = [host("i1", "gpu8", most), host("i2", "gpu8", least)]
    jobs = [most, least, job("large", age=30, gpus=8), job("a", age=20, gpus=1), job("b", gpus=1)]
    assert decide(jobs, hosts) == {"large": Why.NO_FREE_INSTANCE, "a": "i1", "b": Why.KEPT_FOR_GANG}


def test_behind_as_many_promises_as_are_made_nothing_is_lent_that_the_next_one_could_use():
    resident_job = resident("r", "i", gpus=6, hours=3)
    jobs = [resident_job, job("large", age=20, gpus=8), job("small", gpus=1, hours=1), job("lean", gpus=0, hours=1)]
    hosts = [host("i", "gpu8", resident_job), host("c", "cpu")]
    with patch("everspot_core.schedule.placement.packing.DEPTH", 0):
        decided = decide(jobs, hosts)
    assert decided == {"large": Why.NO_FREE_INSTANCE, "small": Why.KEPT_FOR_GANG, "lean": "c"}
    assert decide(jobs, hosts)["small"] == "i"


def test_a_gang_takes_room_on_different_instances_of_one_type():
    resident_job = resident("r", "i1", gpus=5)
    hosts = [host("i1", "gpu8", resident_job), host("i2", "gpu8"), host("i3", "gpu4"), host("i4", "gpu4")]
    assert decide([resident_job, job("gang", nodes=2, gpus=3)], hosts)["gang"] == {"i3", "i4"}
    assert decide([resident_job, job("gang", nodes=2, gpus=3, gpu_memory_gib=40)], hosts)["gang"] == {"i1", "i2"}
    assert decide([resident_job, job("gang", nodes=3, gpus=3)], hosts)["gang"] is Why.TOO_FEW_FREE


def test_room_is_kept_for_a_critical_job_in_back_off():
    waiting = JobRecord(job_id="crit", state=JobState.PENDING, not_before=NOW + HOUR, changed_at=NOW)
    jobs = [job("crit", gpus=6, priority=Priority.CRITICAL, record=waiting), job("a", age=20, gpus=2), job("b", gpus=2)]
    decided = decide(jobs, [host("i", "gpu8", market=Market.ON_DEMAND)])
    assert decided == {"crit": Why.BACK_OFF, "a": "i", "b": Why.KEPT_FOR_CRITICAL}
