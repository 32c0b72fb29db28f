"""`everspot init`: its questions, its refusals, and the files that it writes."""

import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from everspot_clouds.price_files import write_table
from everspot_core.capacity.price_table import PriceTable, TypePrice
from everspot_core.validation.problems import Problems

from tests.cli.conftest import everspot

ROOT = Path(__file__).parents[2]
AWS = {"cloud": "aws", "account": "123456789012", "region": "us-east-2", "team": "vision", "repository": "Org/fleets"}
GCP = {**AWS, "cloud": "gcp", "account": "my-project", "region": "us-central1"}
KUBERNETES = {**AWS, "cloud": "kubernetes", "account": "123456789012/research"}
AS_OF = datetime(2026, 11, 1, tzinfo=UTC)
CLOUDS = pytest.mark.parametrize("answers", [AWS, GCP, KUBERNETES], ids=["aws", "gcp", "kubernetes"])


def options(answers: dict[str, str]) -> list[str]:
    return [argument for name, value in answers.items() for argument in (f"--{name}", value)]


def begun(folder: Path, answers: dict[str, str], *more: str) -> Any:
    done = everspot("init", str(folder), *options(answers), "--yes", "--json", *more)
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_what_it_writes_is_what_this_repository_runs():
    done = subprocess.run([sys.executable, ROOT / "tools/packaged.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@CLOUDS
def test_a_project_has_settings_program_workflows_and_the_order_of_commands(tmp_path: Path, answers: dict[str, str]):
    result = begun(tmp_path, answers, "--repository-ids", "11,22")
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert written == set(result["written"])
    for name in ("review.yml", "apply.yml", "drift.yml"):
        assert (tmp_path / ".github/workflows" / name).read_bytes() == (ROOT / ".github/workflows" / name).read_bytes()
    for path in (ROOT / "stacks").glob("*.py"):
        assert (tmp_path / "stacks" / path.name).read_bytes() == path.read_bytes()
    read = {
        path.name.split(".")[1]: yaml.safe_load(path.read_text())["config"]
        for path in (tmp_path / "stacks").glob("Pulumi.*.yaml")
    }
    assert set(read) == {"bootstrap", "account", "dev", "prod"}
    assert read["bootstrap"]["everspot:bootstrap"]["repository"] == {"name": "Org/fleets", "id": "11", "ownerId": "22"}
    assert {
        section["tags"]["Team"] for config in read.values() for section in config.values() if "tags" in section
    } == {"vision"}
    assert yaml.safe_load((tmp_path / "stacks/rules.yaml").read_text())["environments"]["*"]["teams"] == ["vision"]
    assert "everspot[" in (tmp_path / "requirements.txt").read_text()
    page = (tmp_path / "SETUP.md").read_text()
    assert all(command in page for step in result["steps"] for command in step["commands"])
    titles = [step["title"] for step in result["steps"]]
    assert (
        titles.index("Bootstrap") < titles.index("Move the state") < titles.index("Account") < titles.index("Publish")
    )


@CLOUDS
def test_the_review_of_files_finds_nothing_wrong_with_what_was_written(tmp_path: Path, answers: dict[str, str]):
    begun(tmp_path, answers)
    author = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    for words in (["init", "-q"], ["add", "-A"], [*author, "commit", "-qm", "Environments"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    done = everspot("review", "files", "--project", str(tmp_path), "--base", "0" * 40, "--json")
    review = json.loads(done.out)
    assert (done.code, review["problems"]) == (0, {})
    assert {"bootstrap", "dev", "prod"} <= set(review["prices"])


def test_what_steps_cost_is_what_everspot_estimate_says(tmp_path: Path):
    steps = {step["stack"]: step for step in begun(tmp_path, AWS)["steps"] if step["stack"]}
    for stack in ("bootstrap", "dev", "prod"):
        file = tmp_path / f"stacks/Pulumi.{stack}.yaml"
        estimate = json.loads(everspot("estimate", "--settings", str(file), "--json").out)
        total = estimate["environments"][stack]["after"]["total"]
        figures = steps[stack]["usd_per_month"]
        assert (figures["low"], figures["expected"], figures["high"]) == pytest.approx(
            (total["low"], total["expected"], total["high"])
        )
        assert 0 < figures["low"] <= figures["expected"] <= figures["high"]
    assert steps["bootstrap"]["costs"].startswith("Costs $1.00 a month")
    assert steps["account"]["costs"] == "Costs nothing."


def test_in_a_region_without_known_prices_costs_are_unknown_and_never_nothing(tmp_path: Path):
    steps = {step["stack"]: step for step in begun(tmp_path, {**AWS, "region": "eu-north-1"})["steps"]}
    assert "Costs nothing" not in steps["dev"]["costs"] and "nknown" in steps["dev"]["costs"].replace(
        "no known", "unknown"
    )


def test_googles_services_get_their_own_accounts_once_they_are_on_and_before_the_first_cluster(
    tmp_path: Path,
):
    steps = begun(tmp_path, GCP)["steps"]
    commands = [line for step in steps for line in step["commands"]]
    identity_lines = [commands.index(line) for line in commands if "services identity create" in line]
    assert len(identity_lines) == 2 and min(identity_lines) > commands.index("pulumi up --stack account")
    assert max(identity_lines) < next(n for n, line in enumerate(commands) if "gh pr create" in line)


def test_a_project_of_an_eks_cluster_names_it_everywhere_and_lets_the_jobs_in(tmp_path: Path):
    steps = {step["title"]: step["commands"] for step in begun(tmp_path, KUBERNETES)["steps"]}
    config = {
        path.name.split(".")[1]: yaml.safe_load(path.read_text())["config"]
        for path in (tmp_path / "stacks").glob("Pulumi.*.yaml")
    }
    assert config["bootstrap"]["everspot:bootstrap"]["eksClusters"] == ["research"]
    for name in ("dev", "prod"):
        cluster = config[name]["everspot:cluster"]
        assert (cluster["cloud"], cluster["eksCluster"]) == ("kubernetes", "research")
        assert cluster["nodes"]["subnetTags"] == {"karpenter.sh/discovery": "research"}
        assert cluster["image"].startswith("123456789012.dkr.ecr.us-east-2.amazonaws.com/everspot@sha256:")
    access = " ".join(steps["Access to the Kubernetes cluster"])
    for part in ("preview", "drift", "deploy"):
        assert f"--principal-arn arn:aws:iam::123456789012:role/everspot-bootstrap-{part}" in access
    # A pull request's job must not read secrets, with which its author would have the whole Kubernetes cluster.
    (granted,) = (command for command in steps["Access to the Kubernetes cluster"] if "create clusterrole " in command)
    assert {"namespaces", "podtemplates", "nodepools.karpenter.sh"} < set(
        granted.partition("--resource=")[2].split(",")
    )
    assert "--verb=get,list,watch " in granted and "secrets" not in granted and "AdminView" not in access
    titles = list(steps)
    assert titles.index("Bootstrap") < titles.index("Access to the Kubernetes cluster") < titles.index("Publish")
    assert "components-aws,kubernetes" in (tmp_path / "requirements.txt").read_text()
    done = everspot("init", str(tmp_path), *options({**KUBERNETES, "account": "123456789012"}), "--yes")
    assert done.code == 2 and "123456789012/research" in done.err


def test_the_ids_are_asked_of_the_forge_where_they_are_not_known(tmp_path: Path):
    titles = [step["title"] for step in begun(tmp_path, AWS)["steps"]]
    assert "Name the repository for good" in titles
    assert "id" not in yaml.safe_load((tmp_path / "stacks/Pulumi.bootstrap.yaml").read_text())["config"][
        "everspot:bootstrap"
    ]["repository"]  # fmt: skip


def test_all_that_is_wrong_is_told_at_once_and_nothing_is_written(tmp_path: Path):
    bad = {"cloud": "aws", "account": "12", "region": "Ohio", "team": "a/b: {", "repository": "everybody/*"}
    done = everspot("init", str(tmp_path / "new"), *options(bad), "--repository-ids", "1", "--yes", "--json")
    fields = [problem["field"] for problem in json.loads(done.err)["problems"]]
    assert (done.code, sorted(fields)) == (2, ["account", "region", "repository", "repository-ids", "team"])
    assert not (tmp_path / "new").exists()
    done = everspot("init", str(tmp_path / "new"), *options({**bad, "cloud": "azure"}), "--yes")
    assert done.code == 2 and "choose one of aws, gcp, kubernetes" in done.err
    done = everspot("init", str(tmp_path / "new"), *options({**GCP, "team": "Vision", "account": "UP"}), "--yes")
    assert done.code == 2 and "becomes a label" in done.err and "project's id" in done.err


def test_without_anybody_to_ask_every_missing_option_is_named(tmp_path: Path):
    done = everspot("init", str(tmp_path), "--cloud", "aws", "--yes")
    assert done.code == 2
    assert all(f"--{name}" in done.err for name in ("account", "region", "team", "repository"))


def test_people_are_asked_what_the_options_do_not_say(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "everspot_cli.main", "init", str(tmp_path), "--cloud", "gcp", "--account", "my-project"],
        input="\n\nOrg/fleets\n", capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Region [us-central1]" in done.stderr and "Team that pays [ml-platform]" in done.stderr
    assert "1. Install" in done.stdout
    assert "gcp:region: us-central1" in (tmp_path / "stacks/Pulumi.dev.yaml").read_text()


def test_where_answers_end_the_rest_is_named_on_a_line_of_its_own(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "everspot_cli.main", "init", str(tmp_path / "new"), "--cloud", "gcp"],
        input="my-project\n", capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 2
    assert "error: missing: --region, --team, --repository" in done.stderr.splitlines()


def test_an_answer_is_judged_as_it_is_given_and_asked_again(tmp_path: Path):
    answers = ["azure", "gcp", "UP", "my-project", "us-east2", "us-east1", "Vision", "vision", "fleets", "Org/fleets"]
    done = subprocess.run(
        [sys.executable, "-m", "everspot_cli.main", "init", str(tmp_path)],
        input="\n".join(answers) + "\n", capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (
        "'azure' is no cloud for projects; choose one of aws, gcp, kubernetes" in done.stderr
        and "(there is us-east1, us-east4, us-east5)" in done.stderr
    )
    assert done.stderr.count("Which project") == 2 and "becomes a label" in done.stderr
    assert "gcp:region: us-east1" in (tmp_path / "stacks/Pulumi.dev.yaml").read_text()


def test_a_wrong_option_is_refused_before_any_question(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "everspot_cli.main", "init", str(tmp_path / "new"), "--cloud", "azure"],
        input="", capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, "Which" in done.stderr) == (2, False)
    assert "choose one of aws, gcp, kubernetes" in done.stderr


@pytest.mark.parametrize(
    ("answers", "region", "suggestion"),
    [(AWS, "us-east-9", "there is us-east-1, us-east-2"), (GCP, "europe-wst4", "mean europe-west4")],
    ids=["aws", "gcp"],
)
def test_a_region_that_is_not_known_is_refused_with_the_nearest_unless_it_may_be_newer(
    tmp_path: Path, answers: dict[str, str], region: str, suggestion: str
):
    done = everspot("init", str(tmp_path / "new"), *options({**answers, "region": region}), "--yes", "--json")
    (problem,) = json.loads(done.err)["problems"]
    assert (done.code, problem["field"]) == (2, "region")
    assert suggestion in problem["problem"] and "--unlisted-region" in problem["problem"]
    begun(tmp_path / "new", {**answers, "region": region}, "--unlisted-region")


def test_an_input_that_ends_names_the_options_that_are_missing(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "everspot_cli.main", "init", str(tmp_path / "new"), "--cloud", "aws"],
        input="123456789012\n", capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, (tmp_path / "new").exists()) == (2, False)
    assert "missing: --region, --team, --repository" in done.stderr


@CLOUDS
def test_the_commands_can_be_pasted_and_the_environment_is_closed_before_anything_is_pushed(
    tmp_path: Path, answers: dict[str, str]
):
    steps = {step["title"]: step["commands"] for step in begun(tmp_path, answers, "--repository-ids", "11,22")["steps"]}
    text = "\n".join(line for commands in steps.values() for line in commands)
    done = subprocess.run(["sh", "-n"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "NUMBER" not in text
    signed_in = [line for line in steps["Bootstrap"] if "application-default login" in line]
    assert bool(signed_in) == (answers["cloud"] == "gcp")
    (push,) = (index for index, line in enumerate(steps["Publish"]) if "git push" in line)
    closed = " ".join(steps["Publish"][:push])
    assert "deployment_branch_policy[custom_branch_policies]=true" in closed
    assert "deployment-branch-policies -f name=main" in closed
    assert "git init" in closed and "git remote add origin https://github.com/Org/fleets.git" in closed


@pytest.mark.parametrize("answers", [AWS, KUBERNETES], ids=["aws", "kubernetes"])
@pytest.mark.parametrize(("account", "runs"), [("123456789012", True), ("999999999999", False)], ids=["own", "other"])
def test_nothing_is_made_in_another_account_than_the_named_one(
    tmp_path: Path, answers: dict[str, str], account: str, runs: bool
):
    steps = {step["title"]: step["commands"] for step in begun(tmp_path, answers)["steps"]}
    pasted = "\n".join([f"aws() {{ echo {account}; }}; pulumi() {{ echo pulumi; }}", *steps["Bootstrap"]])
    done = subprocess.run(["sh"], input=pasted, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ("pulumi" in done.stdout, "123456789012" in done.stderr) == (runs, not runs), done.stderr
    files = sorted((tmp_path / "stacks").glob("Pulumi.*.yaml"))
    configured = [yaml.safe_load(file.read_text())["config"]["aws:allowedAccountIds"] for file in files]
    assert configured == [["123456789012"]] * 4


def write_prices(folder: Path, cloud: str, region: str, zones: str, prices: dict[str, float]) -> None:
    spot = {f"{region}{'-' * (cloud == 'gcp')}{letter}": 0.1 for letter in zones}
    rows = [
        TypePrice(instance_type=name, on_demand_usd_per_hour=usd, spot_usd_per_hour=spot)
        for name, usd in prices.items()
    ]
    sources = {"on_demand_source": "a list", "spot_source": "a list"}
    write_table(folder / "prices", PriceTable(cloud=cloud, region=region, as_of=AS_OF, prices=rows, **sources))


@pytest.mark.parametrize("answers", [AWS, KUBERNETES], ids=["aws", "kubernetes"])
@pytest.mark.parametrize(
    ("prices", "types"),
    [
        ({"g5.xlarge": 1.2, "g4dn.xlarge": 0.6}, {"dev": ["g4dn.xlarge", "g5.xlarge"], "prod": ["g5.xlarge"]}),
        (
            {"m7i.large": 0.1, "g4dn.xlarge": 0.6, "g4dn.2xlarge": 0.9, "g5g.xlarge": 0.5},
            {"dev": ["g4dn.xlarge"], "prod": ["g4dn.xlarge", "g4dn.2xlarge"]},
        ),
    ],
    ids=["usual", "own"],
)
def test_settings_have_the_types_and_zones_that_the_region_has(
    tmp_path: Path, answers: dict[str, str], prices: dict[str, float], types: dict[str, list[str]]
):
    write_prices(tmp_path, "aws", "us-west-1", "bc", prices)
    begun(tmp_path, {**answers, "region": "us-west-1"})
    zones = {"dev": ["us-west-1b"], "prod": ["us-west-1b", "us-west-1c"]}
    for stack in ("dev", "prod"):
        cluster = yaml.safe_load((tmp_path / f"stacks/Pulumi.{stack}.yaml").read_text())["config"]["everspot:cluster"]
        assert cluster["capacity"]["instanceTypes"] == types[stack]
        if answers is AWS:
            assert cluster["zones"] == zones[stack]
        else:
            assert cluster["capacity"]["elastic"]["zones"] == zones["prod"]


@pytest.mark.parametrize(
    ("answers", "region", "prices"),
    [
        (AWS, "ca-west-1", {"m7i.large": 0.1, "p5.48xlarge": 55.0}),
        (GCP, "europe-north1", {"n2-standard-4": 0.2}),
        (KUBERNETES, "ca-west-1", {"m7i.large": 0.1}),
    ],
    ids=["aws", "gcp", "kubernetes"],
)
def test_a_region_without_affordable_gpus_is_refused_and_nothing_is_written(
    tmp_path: Path, answers: dict[str, str], region: str, prices: dict[str, float]
):
    write_prices(tmp_path, "gcp" if answers is GCP else "aws", region, "ab", prices)
    done = everspot("init", str(tmp_path), *options({**answers, "region": region}), "--yes")
    assert (done.code, [path.name for path in tmp_path.iterdir()]) == (2, ["prices"])
    assert f"{region} offers none of g" in done.err and "choose another region" in done.err


def test_files_that_are_there_are_named_and_overwritten_only_by_force(tmp_path: Path):
    begun(tmp_path, AWS)
    assert begun(tmp_path, AWS)["written"] == []  # the same once more changes nothing
    changed = tmp_path / "stacks/Pulumi.dev.yaml"
    changed.write_text("config: {}\n")
    (tmp_path / "SETUP.md").unlink()
    (tmp_path / "SETUP.md").symlink_to(tmp_path / "elsewhere")
    done = everspot("init", str(tmp_path), *options(AWS), "--yes", "--json")
    assert done.code == 1
    error = json.loads(done.err)
    assert [problem["field"] for problem in error["problems"]] == ["stacks/Pulumi.dev.yaml", "SETUP.md"]
    assert changed.read_text() == "config: {}\n" and not (tmp_path / "elsewhere").exists()
    (tmp_path / "SETUP.md").unlink()
    assert begun(tmp_path, AWS, "--force")["written"] == ["stacks/Pulumi.dev.yaml", "SETUP.md"]


def test_every_cloud_is_checked_by_its_own_rules():
    from everspot_clouds.base.project_setup import ProjectAnswers
    from everspot_clouds.registry import DEPLOYABLE, starter

    for cloud in DEPLOYABLE:
        problems = Problems()
        starter(cloud).check(problems, ProjectAnswers("", "", "", "o/n"))
        assert {problem.path for problem in problems.collected} >= {"account", "region"}


PROJECT = "name: shop\nruntime: {name: python}\nmain: infra/\n"


@pytest.mark.parametrize(
    ("words", "extras", "component"),
    [
        ({"cloud": "aws", "region": "us-east-2"}, "components-aws", "AwsTrainingCluster"),
        ({"cloud": "gcp", "region": "us-central1"}, "components-gcp", "GcpTrainingCluster"),
        (
            {"cloud": "kubernetes", "region": "us-east-2", "account": "123456789012/research"},
            "components-aws,kubernetes",
            "AwsKubernetesPool",
        ),
    ],
    ids=["aws", "gcp", "kubernetes"],
)
def test_a_cluster_is_added_to_a_project_that_is_there(
    tmp_path: Path, words: dict[str, str], extras: str, component: str
):
    (tmp_path / "Pulumi.yaml").write_text(PROJECT)
    (tmp_path / "infra").mkdir()
    (tmp_path / "infra/__main__.py").write_text("import training_cluster\n")
    arguments = options({**words, "team": "vision"})
    done = everspot("init", str(tmp_path), "--add", *arguments, "--yes", "--json")
    assert (done.code, done.json["written"]) == (0, ["training_cluster.py"]), done.err
    assert any(f"everspot[{extras}]" in step for step in done.json["steps"])
    # Every stack of the project runs the module, also those whose data and jobs matter.
    text = (tmp_path / "infra/training_cluster.py").read_text()
    of_the_trial = ("retain_store", "job_role", "interruption_events", "scheduler_type")
    assert not [name for name in of_the_trial if name in text]
    zones = re.search(r'"zones": \[(.*?)\]', text)
    assert zones is not None
    assert zones[1].count(",") == 2, "as in production"
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert names == {"Pulumi.yaml", "infra/__main__.py", "infra/training_cluster.py"}
    declared = subprocess.run(
        [sys.executable, "-c", DECLARED], cwd=tmp_path / "infra", capture_output=True, text=True, timeout=240
    )
    assert declared.returncode == 0, declared.stderr
    assert json.loads(declared.stdout) == [f"everspot:index:{component}", "everspot-dev"]
    (tmp_path / "infra/training_cluster.py").write_text("# the project's own\n")
    again = everspot("init", str(tmp_path), "--add", *arguments, "--yes")
    assert (again.code, "nothing is overwritten" in again.err) == (1, True)


DECLARED = """
import asyncio, json, runpy
asyncio.set_event_loop(asyncio.new_event_loop())
import pulumi
class Mocks(pulumi.runtime.Mocks):
    def new_resource(self, args): return f"{args.name}-id", {**args.inputs, "arn": "arn:aws:iam::1:role/a"}
    def call(self, args): return {}
pulumi.runtime.set_mocks(Mocks(), project="shop", stack="dev", preview=True)
import everspot
class Stop(Exception): pass
declared = []
def stop(self, name, args, opts=None):
    from everspot.aws import checking as aws
    from everspot.gcp import checking as gcp
    from everspot.kubernetes import checking as kubernetes
    {
        "AwsTrainingCluster": aws.check_cluster,
        "GcpTrainingCluster": gcp.check_cluster,
        "AwsKubernetesPool": kubernetes.check_pool,
    }[type(self).__name__](name, args)
    declared.extend((f"everspot:index:{type(self).__name__}", name))
    raise Stop
for kind in (everspot.AwsTrainingCluster, everspot.GcpTrainingCluster, everspot.AwsKubernetesPool):
    kind.__init__ = stop
try:
    runpy.run_path("training_cluster.py")
except Stop:
    print(json.dumps(declared))
"""
"""Runs the module up to the component's own checks of its inputs."""


def test_add_refuses_what_is_no_python_project_and_answers_that_the_project_has(tmp_path: Path):
    words = [*options({"cloud": "aws", "region": "us-east-2", "team": "vision"}), "--yes"]
    nothing = everspot("init", str(tmp_path), "--add", *words)
    assert (nothing.code, "there is no Pulumi.yaml" in nothing.err) == (3, True)
    (tmp_path / "Pulumi.yaml").write_text("name: shop\nruntime: nodejs\n")
    other = everspot("init", str(tmp_path), "--add", *words)
    assert (other.code, "not in Python, but in nodejs" in other.err) == (1, True)
    surplus = everspot("init", str(tmp_path), "--add", *words, "--account", "123456789012")
    assert (surplus.code, "--account" in surplus.err) == (2, True)


@pytest.mark.parametrize(
    ("main", "entry"),
    [("", "__main__.py"), ("main: src\n", "src/__main__.py"), ("main: src/app.py\n", "src/app.py")],
    ids=["folder", "subfolder", "file"],
)
def test_the_import_is_added_to_the_file_that_the_engine_runs(tmp_path: Path, main: str, entry: str):
    (tmp_path / "Pulumi.yaml").write_text(f"name: shop\nruntime: python\n{main}")
    words = [*options({"cloud": "aws", "region": "us-east-2", "team": "vision"}), "--yes", "--json"]
    done = everspot("init", str(tmp_path), "--add", *words)
    assert f"Add to {tmp_path / entry}: import training_cluster" in done.json["steps"]
    assert (tmp_path / entry).with_name("training_cluster.py").is_file()


def test_a_cluster_that_is_added_on_kubernetes_names_its_eks_cluster_and_how_its_image_is_built(tmp_path: Path):
    (tmp_path / "Pulumi.yaml").write_text("name: shop\nruntime: python\n")
    words = ["--cloud", "kubernetes", "--region", "us-east-2", "--team", "vision", "--yes"]
    unnamed = everspot("init", str(tmp_path), "--add", *words)
    assert (unnamed.code, "missing: --account" in unnamed.err) == (2, True)
    wrong = everspot("init", str(tmp_path), "--add", *words, "--account", "123456789012")
    assert (wrong.code, "such as 123456789012/research" in wrong.err) == (2, True)
    surplus = everspot("init", str(tmp_path), "--add", *words, "--account", "1/a", "--repository", "o/n")
    assert (surplus.code, "--repository: --add takes none" in surplus.err) == (2, True)
    done = everspot("init", str(tmp_path), "--add", *words, "--account", "123456789012/research", "--json")
    assert done.code == 0, done.err
    module = tmp_path / "training_cluster.py"
    text = module.read_text()
    assert '"eks_cluster": "research"' in text and 'AwsAccountSetup("everspot"' in text
    assert '"subnet_tags": {"karpenter.sh/discovery": "research"}' in text
    assert f"123456789012.dkr.ecr.us-east-2.amazonaws.com/everspot@sha256:{'0' * 64}" in text
    (built,) = [step for step in done.json["steps"] if "docker build" in step]
    # The commands but for those of Docker and AWS, with a digest in place of their answer.
    script = f"docker() {{ :; }}; git() {{ echo 1; }}; aws() {{ echo sha256:{'a' * 64}; }}; EVERSPOT=/nowhere; "
    ran = subprocess.run(
        ["bash", "-c", script + built[built.index("aws ecr create-repository") :]], capture_output=True, text=True
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert f"everspot@sha256:{'a' * 64}" in module.read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"Pulumi.yaml", "training_cluster.py"}


def test_a_person_who_adds_a_cluster_is_asked_for_the_cloud_and_then_what_this_cloud_needs(tmp_path: Path):
    (tmp_path / "Pulumi.yaml").write_text("name: shop\nruntime: python\n")
    done = subprocess.run(
        [sys.executable, "-m", "everspot_cli.main", "init", str(tmp_path), "--add"],
        input="kubernetes\n123456789012/research\n\n\n",
        capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Which account and EKS cluster" in done.stderr and "Repository" not in done.stderr
    assert '"eks_cluster": "research"' in (tmp_path / "training_cluster.py").read_text()
