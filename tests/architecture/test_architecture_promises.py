"""What the documents promise of the plan and of the trainer is in the code; what is not there yet is called so."""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from everspot_core.jobs.job import JobSpec
from everspot_core.jobs.recipes import LanguageModel
from pydantic import ValidationError

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
NOT_YET = re.compile(r"not (?:\w+ ){0,2}yet|not counted|simulat", re.IGNORECASE)


def trees(*folders: str) -> Iterator[ast.Module]:
    for folder in folders:
        for path in (ROOT / folder).rglob("*.py"):
            yield ast.parse(path.read_text(encoding="utf-8"))


def arguments(keyword: str, *folders: str) -> list[str]:
    """The source of the values that are passed by this keyword."""
    calls = (node for tree in trees(*folders) for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [ast.unparse(item.value) for call in calls for item in call.keywords if item.arg == keyword]


def jobs_span_instances() -> bool:
    return "nodes" in JobSpec.model_fields or set(arguments("nodes", "scheduler")) - {"1", "job.nodes"} != set()


def plan_counts_reserved_capacity() -> bool:
    values = arguments("reserved", "scheduler")
    assert values, "the scheduler's pools no longer say whether they are reserved"
    return set(values) != {"False"}


def trainer_shards() -> bool:
    try:
        LanguageModel.model_validate({"parallel": "fsdp2"})
    except ValidationError:
        return False
    calls = (node for tree in trees("training_image/everspot_train/trainer") for node in ast.walk(tree))
    return any(isinstance(node, ast.Attribute) and node.attr == "fully_shard" for node in calls)


def checkpoints_use_dcp() -> bool:
    imported = (node for tree in trees("training_image/everspot_train/checkpoint") for node in ast.walk(tree))
    return any(
        isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch.distributed.checkpoint")
        for node in imported
    )


@dataclass(frozen=True)
class Feature:
    """A feature that documents mention.

    Attributes:
        mention: matches the words for it.
        exists: returns whether the code has it.
    """

    name: str
    mention: str
    exists: Callable[[], bool]


FEATURES = (
    Feature("several instances", r"\bgangs?\b|over several instances|across\s+instances", jobs_span_instances),
    Feature("reserved capacity", r"reserved capacity|capacity reservations are", plan_counts_reserved_capacity),
    Feature("FSDP2", r"\bFSDP2\b|fully_shard", trainer_shards),
    Feature("DCP", r"\bDCP\b|torch\.distributed\.checkpoint", checkpoints_use_dcp),
)


def sentences() -> Iterator[tuple[str, str]]:
    """Each sentence of the documents, behind the title of its section, with the document's name."""
    for path in DOCUMENTS:
        for section in re.split(r"^(?=#+ )", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
            title, _, text = section.partition("\n")
            for block in re.split(r"\n\n|\n(?=- |\| |\d+\. )", text):
                for sentence in re.split(r"(?<=\.)\s+(?=[A-Z`*])", " ".join(block.split())):
                    yield str(path.relative_to(ROOT)), f"{title}: {sentence}"


@pytest.mark.parametrize("feature", FEATURES, ids=[feature.name for feature in FEATURES])
def test_a_document_promises_a_feature_only_if_the_code_has_it(feature: Feature) -> None:
    mentions = [(name, text) for name, text in sentences() if re.search(feature.mention, text, re.IGNORECASE)]
    assert mentions, "no document speaks of it any more"
    exists = feature.exists()
    wrong = [f"{name}: {text}" for name, text in mentions if (NOT_YET.search(text) is None) is not exists]
    assert wrong == [], "it is there, and called missing" if exists else "it is promised, and not there"
