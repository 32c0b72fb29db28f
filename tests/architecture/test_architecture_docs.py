"""The documents agree with the code: links, commands, job files, settings and programs."""

import ast
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from everspot.aws.checking import check_cluster
from everspot_cli.main import app
from everspot_cli.registry import GROUPS
from everspot_core.jobs.job import JobSpec
from everspot_core.jobs.recipes import RECIPES
from everspot_core.validation.problems import Problems

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("localcloud/*.md"), *ROOT.glob("*/bake/README.md")]
)
# The folders of the product's code.
SOURCES = (
    "core", "cli", "clouds", "components", "scheduler", "store", "review", "policy", "simulator", "training_image",
    "localcloud", "stacks", "tools",
)  # fmt: skip
# A global option with its value, before the command.
GLOBAL = re.compile(r"^(?:(?:--store|--cluster|--stack|-c|-s) \S+ )+")
# Words that stand between the options and the command, or in their place.
NO_COMMANDS = {"…", "COMMAND", "--help", "--version", "--install-completion"}


def texts() -> list[tuple[str, str]]:
    return [(str(path.relative_to(ROOT)), path.read_text()) for path in DOCUMENTS]


def blocks(language: str) -> list[tuple[str, str]]:
    fenced = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
    return [(name, block) for name, text in texts() for kind, block in fenced.findall(text) if kind == language]


def anchors(path: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize(("name", "text"), texts(), ids=[n for n, _ in texts()])
def test_every_link_leads_somewhere(name, text):
    here = (ROOT / name).parent
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", text):
        path = here / target if target else ROOT / name
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), f"{target}#{anchor}"


@pytest.mark.parametrize(("name", "text"), texts(), ids=[n for n, _ in texts()])
def test_every_table_has_a_header_and_no_blank_line(name, text):
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for table in re.findall(r"^\|.*\n(?:\|.*\n?)*", prose, re.MULTILINE):
        assert re.match(r".*\n\|[ :|-]+\|\n", table), table


@pytest.mark.parametrize(("name", "text"), texts(), ids=[n for n, _ in texts()])
def test_every_folder_and_file_that_is_named_exists(name, text):
    rooms = "|".join(p.name for p in ROOT.iterdir() if p.is_dir() and not p.name.startswith("."))
    for path in re.findall(rf"`((?:{rooms})/[\w./-]*)`", text):
        # `jobs/` and similar names are prefixes of buckets.
        assert (ROOT / path).exists() or (ROOT / name).parent.joinpath(path).exists(), path


def test_what_a_page_says_is_in_a_file_is_defined_there():
    """For example `COMMANDS` (`cli/everspot_cli/registry.py`). The document must name the file with the definition, not
    one that only imports the name."""
    checked = 0
    for name, text in texts():
        for symbol, path in re.findall(r"`(\w+)` \(`([\w/]+/\w+\.py)`", text):
            file = ROOT / path if (ROOT / path).exists() else (ROOT / name).parent / path
            assert symbol in defined(ast.parse(file.read_text())), f"{name}: {symbol} is not defined in {path}"
            checked += 1
    assert checked > 5


def defined(module):
    symbols = {n.name for n in module.body if isinstance(n, ast.ClassDef | ast.FunctionDef)}
    for node in module.body:
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        symbols |= {target.id for target in targets if isinstance(target, ast.Name)}
    return symbols


def test_every_command_in_a_code_block_exists():
    group: Any = typer.main.get_command(app)
    commands = group.all()
    checked = 0
    for name, block in [*blocks(""), *blocks("sh")]:
        for line in block.splitlines():
            for words in re.findall(r"(?:^|[|&(]\s*)everspot ([^|&)#]*)", line):
                arguments = [w for w in GLOBAL.sub("", words).split() if not w.startswith("--json")]
                if not arguments or arguments[0] in NO_COMMANDS:
                    continue
                if arguments[0] in GROUPS:
                    arguments[:2] = [" ".join(arguments[:2])]
                assert arguments[0] in commands, f"{name}: everspot {arguments[0]}"
                command = commands[arguments[0]]
                if below := getattr(command, "commands", None):  # `everspot review` has commands of its own
                    assert arguments[1] in below, f"{name}: everspot {arguments[0]} {arguments[1]}"
                    command = below[arguments[1]]
                options = {option for p in command.params for option in p.opts}
                assert {w for w in arguments if w.startswith("-")} <= options, f"{name}: {line}"
                checked += 1
    assert checked > 10


def test_every_command_that_a_message_names_exists():
    group: Any = typer.main.get_command(app)
    commands = group.all()
    sources = {path: path.read_text() for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py"))}
    messages = [
        (path, node.value)
        for path, source in sources.items()
        if "`everspot " in source
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    checked = 0
    for path, message in messages:
        for words in re.findall(r"`everspot ([a-z][a-z -]*)", message):
            first, *others = words.split()
            command = f"{first} {others.pop(0)}" if first in GROUPS and others else first
            assert command in commands or command in GROUPS, f"{path}: everspot {words}"
            below = getattr(commands.get(command), "commands", None)
            if below and others and not others[0].startswith("-"):
                assert others[0] in below, f"{path}: everspot {words}"
            checked += 1
    assert checked > 100


def test_every_job_file_is_one_that_can_be_submitted():
    documents = [(name, yaml.safe_load(block)) for name, block in blocks("yaml") if re.search(r"^name:", block, re.M)]
    jobs = [(name, job) for name, job in documents if "trials" not in job]  # which is a sweep
    assert len(jobs) >= 4
    for name, job in jobs:
        spec = JobSpec.model_validate(job)
        assert spec.recipe is None or spec.recipe in RECIPES, name


def test_the_settings_of_clusters_are_valid(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "stacks"))
    for module in ("settings", "choices", "choice_aws", "choice_kubernetes"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    from choices import CHOICES
    from settings import parse

    example = "stacks/Pulumi.kubernetes-dev.yaml"  # the guide names the file, and does not repeat it
    assert example in (ROOT / "docs/guide/kubernetes.md").read_text()
    written = [b for _, b in blocks("yaml") if "everspot:cluster" in b] + [(ROOT / example).read_text()]
    documents = [yaml.safe_load(text) for text in written]
    sections = {d["config"]["everspot:cluster"].pop("cloud"): d["config"]["everspot:cluster"] for d in documents}
    assert sections.keys() == {"aws", "kubernetes"}
    assert len(documents) == len(sections)
    for cloud, section in sections.items():
        problems, choice = Problems(), CHOICES[cloud]
        args = parse(problems, "", section, choice.cluster_args, cloud=choice)
        args["tags"]["Environment"] = "dev"  # from the stack's name
        choice.cluster_problems(problems, "everspot-dev", args)
        assert not problems.collected


def test_the_programs_with_components_are_taken():
    programs = [(name, ast.parse(b)) for name, b in blocks("python") if "AwsTrainingCluster(" in b]
    assert len(programs) >= 2
    for _, tree in programs:
        call = next(n for n in ast.walk(tree) if isinstance(n, ast.Call)
                    and getattr(n.func, "id", "") == "AwsTrainingCluster")  # fmt: skip
        check_cluster(*(ast.literal_eval(arg) for arg in call.args))


def test_readme_has_at_most_600_words():
    assert len((ROOT / "README.md").read_text().split()) <= 600


def test_the_documents_have_at_most_55000_words():
    words = sum(len(re.findall(r"\S*\w\S*", path.read_text())) for path in (ROOT / "docs").rglob("*.md"))
    assert words <= 55_000


def test_no_document_tells_of_the_machine_it_was_written_on():
    for name, text in texts():
        assert not re.search(r"/wor[k]/|/roo[t]/|/home/\w|\bissue #?\d|127\.0\.0\.1", text), name
