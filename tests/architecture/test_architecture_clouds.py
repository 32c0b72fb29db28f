"""Who names a cloud: outside of the rooms that are about clouds nobody does."""

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("core", "simulator", "scheduler", "training_image", "cli", "review")
"""All but `clouds/`, `components/`, `policy/`, of which each rule is about one cloud's resources, and `localcloud/`,
which are about clouds, and `store/`: its clients are one for each kind of bucket, chosen by the scheme of a store's
URL, whichever cloud asks."""
NAMES = re.compile(
    r"(?<![a-z])(aws|boto|amazon|s3|sqs|sns|imds|gcs|gcp|google|azure|kubernetes|karpenter)|(?<![0-9a-f])ec2"
    r"|secrets ?manager|eventbridge|cloudwatch|\bssm\b",
    re.IGNORECASE,
)


def count_cloud_names() -> Counter[str]:
    """The number of lines that name a cloud, by file."""
    return Counter(
        str(path.relative_to(ROOT))
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        for line in path.read_text().splitlines()
        if NAMES.search(line)
    )


def test_no_line_names_a_cloud() -> None:
    assert count_cloud_names() == {}, "put what is a cloud's own into clouds/, behind a value or a protocol"


@pytest.mark.parametrize(
    "line",
    [
        'if cloud == "aws":', "import boto3", "ec2.describe_fleets()", 'RESERVED = ("AWS_",)', "def aws_region():",
        'r"secretsmanager:.+"', "from google.cloud import storage", "class GcpThing:", "self._sqs_url",
    ],
)  # fmt: skip
def test_a_planted_name_is_found(line: str) -> None:
    assert NAMES.search(line)


@pytest.mark.parametrize("line", ["draws = draw()", 'digest = "4ec2f0"', "answers3 = 3", "generators", "thousands 3"])
def test_what_only_looks_like_one_is_not(line: str) -> None:
    assert NAMES.search(line) is None
