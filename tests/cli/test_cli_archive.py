"""Every command shows an archived job like any other."""

import pytest

AS_OF = "2026-03-01T15:00:00Z"


def archive(world, *jobs):
    for job in jobs:
        submission, record = world.store.jobs.get(job).value, world.record(job)
        world.store.archive.move(submission, record, world.to(20_000))
        assert world.record(job) is None


@pytest.mark.parametrize(
    "arguments",
    [
        ("jobs", "--all"),
        ("job", "moved"),
        ("job", "mov"),
        ("report", "--as-of", AS_OF),
        ("report", "moved", "--as-of", AS_OF),
    ],
    ids=" ".join,
)
def test_archived_jobs_answer_as_before(past, arguments):
    past.to(20_000)
    before = past.run("--json", *arguments)
    archive(past, "moved", "steady")
    after = past.run("--json", *arguments)
    assert before.code == after.code == 0, before.err + after.err
    assert after.json == before.json


def test_an_archived_job_is_over_for_those_who_would_change_it_or_wait_for_it(past):
    past.store.logs.append("moved", 3, 0, b"the last word\n")
    archive(past, "moved")
    refused = past.run("cancel", "moved")
    assert (refused.code, "already ended: SUCCEEDED" in refused.err) == (1, True)
    assert past.store.cancels.scan() == {}
    assert past.run("job", "moved", "--wait").code == 0
    assert past.run("logs", "-f", "moved").out == "the last word\n"
    assert [row["job_id"] for row in past.run("--json", "jobs", "--active").json] == []
