"""The clouds' rules for job files are passed in; core contains none of them."""

from typing import Any

import pytest
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.job_rules import NO_CLOUD, CloudRules
from everspot_core.validation.model_errors import translate_errors
from pydantic import ValidationError

VENUS = CloudRules(variables=("VENUS_",), secrets={"vault:NAME": "vault:[a-z]+", "safe:NAME": "safe:[a-z]+"})
GOOD: dict[str, Any] = {"name": "a", "recipe": "image-classification"}


def find_problems(values: dict[str, Any], clouds: CloudRules) -> dict[str, str]:
    """Return the problems of a job file, by field."""
    try:
        JobSpec.from_values({**GOOD, **values}, clouds)
    except ValidationError as error:
        return {problem.path: problem.reason for problem in translate_errors(error, JobSpec)}
    return {}


@pytest.mark.parametrize("clouds", [NO_CLOUD, VENUS], ids=["none", "venus"])
def test_no_cloud_frees_our_own_variables(clouds: CloudRules) -> None:
    assert "EVERSPOT_X" in find_problems({"env": {"EVERSPOT_X": "y"}}, clouds)["env"]
    assert "EVERSPOT_X" in find_problems({"secrets": {"EVERSPOT_X": "vault:a"}}, clouds)["secrets"]


def test_a_job_file_obeys_the_clouds_that_may_run_it() -> None:
    assert find_problems({"env": {"VENUS_KEY": "y"}}, NO_CLOUD) == {}
    assert find_problems({"env": {"VENUS_KEY": "y"}}, VENUS) == {
        "env": "'VENUS_KEY': EVERSPOT_* and VENUS_* belong to the instance and cannot be set by a job"
    }
    assert find_problems({"secrets": {"VENUS_KEY": "vault:a"}}, VENUS)["secrets"] == (
        "'VENUS_KEY' is no name of a variable that a job may set"
    )


def test_a_secret_is_named_in_a_form_of_its_cloud_and_never_shown() -> None:
    assert find_problems({"secrets": {"TOKEN": "vault:a", "KEY": "mars:/a#b"}}, NO_CLOUD) == {}
    assert find_problems({"secrets": {"TOKEN": "vault:a", "KEY": "safe:b"}}, VENUS) == {}
    for reference in ("hunter2", "mars:a", "vault:9", "a secret: with spaces"):
        assert find_problems({"secrets": {"TOKEN": reference}}, VENUS)["secrets"] == (
            "TOKEN: has to be `vault:NAME` or `safe:NAME`: the name of a secret, never the secret itself"
        )
    assert find_problems({"secrets": {"TOKEN": "hunter2"}}, NO_CLOUD)["secrets"] == (
        "TOKEN: has to be `SERVICE:NAME`: the name of a secret, never the secret itself"
    )


def test_what_is_stored_was_checked_by_whoever_wrote_it() -> None:
    spec = {**GOOD, "env": {"VENUS_KEY": "y"}, "secrets": {"TOKEN": "mars:a"}}
    stored = JobSubmission.model_validate({"job_id": "a-1", "submitted_at": "2026-01-01T00:00:00Z", "spec": spec})
    assert JobSubmission.read(stored.to_json()) == stored
