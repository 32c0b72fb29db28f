"""Stored documents are compatible across releases: documents of older and of newer releases can be read."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from document_kinds import accepts, kinds, least
from document_parts import MISSING
from documents_helpers import GOLDEN, examples
from everspot_core.cluster.manifest import Limits, Manifest
from everspot_core.documents import Document
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_store import Store
from pydantic import ValidationError

ROOMS = ("core", "store", "clouds", "scheduler", "training_image", "cli", "components", "review")
ROOT = Path(__file__).parents[2]
FREE = {
    "counted",
    "dollars",
    "days",
    "figures",
    "shares",
    "parameters",
    "env",
    "secrets",
    "tags",
    "before",
    "logs",
    "metrics",
    "data",
    "info",
    "weights",
    "spot_usd_per_hour",
    "unpriced",
    "places",
    "zones",
    "max_prices",
    "other_usd",
    "steps",
}
"""Fields whose keys are data: nothing is unknown there."""
BY_NAME = {"jobs", "teams", "fields"}
"""Fields whose keys are data and whose values are not."""


def with_unknown(value: Any) -> Any:
    """The document with one more field in each object at every depth."""
    if isinstance(value, list):
        return [with_unknown(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    by_name = {key for key in BY_NAME & set(value) if isinstance(value[key], dict)}
    inside = {key: inner if key in FREE else with_unknown(inner) for key, inner in value.items() if key not in by_name}
    extended = {key: {name: with_unknown(inner) for name, inner in value[key].items()} for key in by_name}
    return inside | extended | {"of_tomorrow": {"a": [1]}}


def goldens(pattern: str) -> list[Any]:
    return [pytest.param(path, id=f"{path.parent.name}-{path.stem}") for path in sorted(GOLDEN.glob(f"*/{pattern}"))]


def parse_kind(path: Path) -> type[Document]:
    return {kind.__name__: kind for kind in kinds()}[re.split(r"[-.]", path.stem)[0]]


def test_every_kind_of_document_has_a_golden_one() -> None:
    here = {parse_kind(path) for path in GOLDEN.glob("*/*.json") if path.stem != "words"}
    assert here == kinds()
    assert {type(document) for document in examples().values()} == kinds()
    assert set() == MISSING, "say in document_parts.py or documents_helpers.py what these new fields may look like"


@pytest.mark.parametrize("name", examples())
def test_a_newer_writers_document_is_read(name: str) -> None:
    document = examples()[name]
    newer = json.dumps(with_unknown(json.loads(document.to_json())))
    assert type(document).read(newer) == document


@pytest.mark.parametrize("path", goldens("[A-Z]*.json"))
def test_what_a_release_wrote_is_read_whole(path: Path) -> None:
    """The golden documents were written by that release, with every field that it knew. The test finds fields that were
    removed, became mandatory, or accept fewer values."""
    written = json.loads(path.read_text())
    kind = parse_kind(path)
    kind.model_validate_json(path.read_text(), extra="forbid")
    document = kind.read(path.read_text())
    assert pruned(json.loads(document.to_json()), written) == written


@pytest.mark.parametrize("path", goldens("words.json"))
def test_no_word_that_a_release_wrote_is_forgotten(path: Path) -> None:
    by_name = {kind.__name__: kind for kind in kinds()}
    for place, members in json.loads(path.read_text()).items():
        name, _, inside = place.partition(".")
        assert [member for member in members if not accepts(by_name[name], inside, member)] == [], place
    assert not accepts(by_name["JobRecord"], "state", "RESTING")


def test_the_check_finds_a_field_that_is_gone_or_required(tmp_path: Path) -> None:
    class Shorter(Document):
        job_id: str

    class Stricter(Document):
        job_id: str
        added: str

    written = json.dumps({"version": 1, "job_id": "a", "epoch": 2})
    assert Shorter.read(written) == Shorter(job_id="a")
    with pytest.raises(ValidationError, match="epoch"):
        Shorter.model_validate_json(written, extra="forbid")
    with pytest.raises(ValidationError, match="added"):
        Stricter.read(written)


def test_a_store_reads_what_a_newer_program_wrote(folder_store: Store) -> None:
    written = examples()["JobSubmission"]
    assert isinstance(written, JobSubmission)
    newer = with_unknown(json.loads(written.to_json()))
    folder_store.control.put("jobs/resnet-1.json", json.dumps(newer).encode())
    document = folder_store.jobs.get("resnet-1")
    assert document is not None and document.value == written
    assert set(folder_store.jobs.scan()) == {"resnet-1"} and not folder_store.jobs.unreadable


def test_a_recipe_that_takes_more_tomorrow_keeps_no_job_from_being_read() -> None:
    document = json.loads(examples()["JobSubmission-recipe"].to_json())
    document["spec"]["parameters"]["of_tomorrow"] = 1
    assert JobSubmission.read(json.dumps(document)).spec.parameters["of_tomorrow"] == 1
    with pytest.raises(ValidationError, match="of_tomorrow"):
        JobSpec.model_validate(document["spec"])


def test_people_are_told_of_what_they_misspell() -> None:
    spec = json.loads(examples()["JobSubmission"].to_json())["spec"]
    for where in ((), ("resources",), ("checkpoint",), ("budget",), ("retries",)):
        wrong = json.loads(json.dumps(spec))
        inner = wrong
        for name in where:
            inner = inner[name]
        inner["mispelt"] = 1
        with pytest.raises(ValidationError, match="mispelt"):
            JobSpec.model_validate(wrong)
    with pytest.raises(ValidationError, match="mispelt"):
        Limits.model_validate({"mispelt": 1})
    with pytest.raises(ValidationError, match="mispelt"):
        Manifest.model_validate(
            {"cluster": "c", "cloud": "aws", "control_url": "a", "data_url": "b", "limits": {"mispelt": 1}}
        )


def test_documents_are_read_by_one_door() -> None:
    """`Document.read` knows what a newer writer may do; pydantic's own way would refuse it in the parts."""
    others = [
        f"{path.relative_to(ROOT)}:{number}"
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if "model_validate_json(" in line and path.name != "documents.py"
    ]
    assert others == []


def pruned(value: Any, like: Any) -> Any:
    """`value` without the fields that `like` lacks: what has been added since."""
    if isinstance(like, dict) and isinstance(value, dict):
        return {key: pruned(inner, like[key]) for key, inner in value.items() if key in like}
    if isinstance(like, list) and isinstance(value, list) and len(like) == len(value):
        return [pruned(inner, other) for inner, other in zip(value, like, strict=True)]
    return value


def test_the_least_of_a_document_is_what_has_to_be_given() -> None:
    full = json.loads(examples()["EndRecord"].to_json())
    assert set(least(parse_kind(Path("EndRecord.json")), full)) == {"instance_id", "ended_at", "interrupted"}
