"""Who names a cloud: outside of the rooms that are about one, each line has a reason, and there are fewer and fewer."""

import re
from pathlib import Path

import pytest
from everspot_clouds.aws import rules
from everspot_core.job_rules import RESERVED_VARIABLES, env_faults

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("core", "store", "scheduler", "training_image", "cli")
NAMES = re.compile(r"\baws\b|(?<![0-9a-f])ec2|boto|imds|amazon|\bs3", re.IGNORECASE)

# Where, what is on the line, and why it may be.
ALLOWED = (
    ("store/", r"", "a store's client is the store's own: one for each kind of bucket, chosen by the URL's scheme"),
    ("", r"s3://", "the scheme of a store's URL"),
    ("core/everspot_core/gpus.py", r"", "what a table of data is a table of, and where it was read"),
    ("", r"\bimds\b", "the word of documents and settings for the metadata service, whichever cloud's it is"),
    ("core/", r"AWS_|bucket of S3", "the prefix of variables that jobs may not set, and buckets in descriptions"),
    ("core/everspot_core/notify.py", r"SNS", "a bound that holds for every way to tell people"),
    ("cli/", r"AWS (configuration|profile|CLI)", "what a person has on his machine, in help texts"),
)
MOST = 15
"""Lines that there are, the store's own client apart. It may be lowered, and never raised."""


def lines() -> list[tuple[str, str]]:
    """Each line that names a cloud, with its file."""
    return [
        (str(path.relative_to(ROOT)), line.strip())
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        for line in path.read_text().splitlines()
        if NAMES.search(line)
    ]


def excused(path: str, line: str) -> bool:
    return any(path.startswith(where) and re.search(what, line) for where, what, _ in ALLOWED)


def test_a_cloud_is_named_only_where_there_is_a_reason() -> None:
    assert [(path, line) for path, line in lines() if not excused(path, line)] == []


def test_the_names_of_clouds_grow_fewer() -> None:
    found = [path for path, _ in lines() if not path.startswith("store/")]
    assert len(found) <= MOST, f"{len(found)} lines name a cloud: put what is its own into clouds/"


def test_every_reason_is_still_needed() -> None:
    found = lines()
    needed = [
        any(path.startswith(where) and re.search(what, line) for path, line in found) for where, what, _ in ALLOWED
    ]
    assert [ALLOWED[n] for n, used in enumerate(needed) if not used and ALLOWED[n][0] != "stacks/"] == []


@pytest.mark.parametrize(
    ("path", "line"),
    [("core/everspot_core/cost.py", 'if cloud == "aws":'), ("scheduler/everspot_scheduler/act.py", "import boto3"),
     ("cli/everspot_cli/commands/doctor.py", "ec2.describe_fleets()")],
)  # fmt: skip
def test_a_planted_name_is_found(path: str, line: str) -> None:
    assert NAMES.search(line) and not excused(path, line)


def test_no_job_sets_what_a_clouds_clients_read() -> None:
    assert set(rules.VARIABLES) <= set(RESERVED_VARIABLES)
    assert [problem.reason for problem in env_faults({"AWS_PROFILE": "mine"})] == [
        "'AWS_PROFILE': EVERSPOT_* and AWS_* belong to the instance and cannot be set by a job"
    ]
