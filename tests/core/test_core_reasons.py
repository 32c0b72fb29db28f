"""The categories of the reasons for a job's leaving its instance."""

import pytest
from everspot_core.jobs.records import Reason


@pytest.mark.parametrize("reason", [Reason.MACHINE, Reason.DENIED, Reason.DAMAGED])
def test_whom_machine_or_store_failed_has_lost_its_instance_through_no_fault_of_its_own(reason: Reason) -> None:
    assert (reason.troubled, reason.preemption, reason.failure, reason.put_off) == (True, True, False, False)


@pytest.mark.parametrize(
    "reason", [Reason.FINISHED, Reason.ERROR, Reason.CANCEL, Reason.CAP, Reason.WINDOW, Reason.MOVE]
)
def test_what_a_job_did_or_was_asked_for_is_no_interruption(reason: Reason) -> None:
    assert (reason.troubled, reason.preemption) == (False, False)
