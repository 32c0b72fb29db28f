"""The key of a cached stage: what changes it, and what does not."""

from datetime import UTC, datetime

import pytest
from everspot_core.jobs.job import JobSpec, JobSubmission, Wheel
from everspot_core.jobs.stage_cache import KEY_FIELDS, stage_key
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DIGESTED = {"code", "datasets", "requirements", "after"}
"""Fields that count by what they name."""
IRRELEVANT = {
    "name", "priority", "deadline", "expected_duration", "start_after", "window", "every", "skip_if", "clouds",
    "clusters", "checkpoint", "budget", "limits", "cache", "retries", "tags", "run_if",
    "continue_from", "tracking", "stream",
}  # fmt: skip
"""Fields that decide whether, when and where a program runs, and not what it computes."""
SPEC = {"name": "prepare", "code": "src", "entrypoint": ["main.py", "--fast"], "env": {"SEED": "1"}, "cache": True}
INPUTS = {"fetch": "fetch-0001"}


def submission(spec: dict, **fields) -> JobSubmission:
    fields = {"code_digest": "c" * 64, "datasets": ["words@" + "d" * 64], **fields}
    return JobSubmission(job_id="prepare-1", spec=JobSpec.model_validate(SPEC | spec), submitted_at=NOW, **fields)


def key(spec: dict | None = None, inputs: dict | None = None, generation: str = "g1", **fields) -> str:
    return stage_key(submission(spec or {}, **fields), INPUTS if inputs is None else inputs, generation)


def test_each_field_of_a_job_is_known_to_matter_or_not() -> None:
    """A new field fails here until somebody decides whether a stage with another value is the same stage."""
    assert set(JobSpec.model_fields) == KEY_FIELDS | DIGESTED | IRRELEVANT
    assert not (KEY_FIELDS & DIGESTED or KEY_FIELDS & IRRELEVANT)


@pytest.mark.parametrize(
    "other",
    [
        key({"env": {"SEED": "2"}}),
        key({"env": {"SEED": "1", "LEVEL": ""}}),
        key({"entrypoint": ["main.py"]}),
        key({"entrypoint": ["main.py", "--", "fast"]}),
        key({"setup": ["make"]}),
        key({"secrets": {"TOKEN": "ssm:/token"}}),
        key({"resources": {"vcpus": 2}}),
        key({"resources": {"memory_gib": 2}}),
        key({"resources": {"gpus": 1}}),
        key({"resources": {"instance_types": ["g5.xlarge"]}}),
        key({"processes": 2}),
        key({"precision": "fp32"}),
        key({"mixed_on_failover": True}),
        key({"stop": {"metric": "loss"}}),
        key(code_digest="e" * 64),
        key(datasets=["words@" + "e" * 64]),
        key(datasets=[]),
        key(wheels=[Wheel(name="a-1.whl", sha256="a" * 64)]),
        key(inputs={"fetch": "fetch-0002"}),
        key(inputs={"load": "fetch-0001"}),
        key(inputs={}),
        key(generation="g2"),
    ],
)
def test_whatever_decides_the_result_changes_the_key(other: str) -> None:
    assert other != key()


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "name": st.from_regex(r"[a-z][a-z0-9]{0,10}", fullmatch=True),
            "priority": st.sampled_from(["critical", "normal"]),
            "deadline": st.just("8h"),
            "expected_duration": st.just("1h"),
            "window": st.just("22:00-06:00"),
            "checkpoint": st.just({"steps": 5}),
            "budget": st.just({"dollars": 3}),
            "retries": st.just({"errors": 0}),
            "tags": st.dictionaries(st.sampled_from(["Team", "Project"]), st.sampled_from(["a", "b"])),
            "code": st.sampled_from(["src", "elsewhere"]),
        },
    )
)
def test_nothing_else_changes_the_key(spec: dict) -> None:
    assert key(spec) == key()


@given(st.permutations(["a@" + "1" * 64, "b@" + "2" * 64, "c@" + "3" * 64]))
def test_the_order_of_datasets_does_not_matter(datasets: list[str]) -> None:
    assert key(datasets=datasets) == key(datasets=sorted(datasets))


@pytest.mark.parametrize(
    ("fields", "words"), [({"every": "1h"}, "leave out cache, or every"), ({"clouds": ["gcp"]}, "or clouds")]
)
def test_a_series_and_a_travelling_job_have_no_cache(fields: dict, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        JobSpec.model_validate(SPEC | fields)
