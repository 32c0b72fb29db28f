"""The environments that a change touches, and findings in their files without running a program."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from desk import UPDATE, Desk, step
from everspot_clouds.price_files import write_table
from everspot_core.capacity.catalogue import InstanceType, builtin
from everspot_core.capacity.price_table import PriceTable, TypePrice
from everspot_review.affected import ChangeError, Project
from everspot_review.files import problems
from forge_double import Double

ROOT = Path(__file__).parents[3]


def touched(desk: Desk, base: str = "HEAD~1") -> tuple[list[str], list[str]]:
    change = Project.read(desk.root).find_affected(base)
    return list(change.environments), list(change.removed)


@pytest.mark.parametrize(
    ("path", "environments"),
    [
        ("stacks/Pulumi.dev.yaml", ["dev"]),
        ("stacks/__main__.py", ["zaccount", "dev", "prod"]),
        ("Pulumi.yaml", ["zaccount", "dev", "prod"]),
        ("components/everspot/fleet.py", ["zaccount", "dev", "prod"]),
        ("requirements.txt", ["zaccount", "dev", "prod"]),
        ("uv.lock", ["zaccount", "dev", "prod"]),
        ("other/Pulumi.dev.yaml", ["zaccount", "dev", "prod"]),
        ("docs/guide/review.md", []),
        ("README.md", []),
        ("tests/test_it.py", []),
        (".github/workflows/review.yml", []),
    ],
)
def test_its_own_file_touches_one_environment_and_the_program_all(
    desk: Desk, path: str, environments: list[str]
) -> None:
    file = desk.root / path
    desk.write(path, f"{file.read_text() if file.exists() else ''}# edited\n")
    desk.commit()
    assert touched(desk) == (environments, [])


def test_what_an_account_has_once_comes_before_what_refers_to_it(desk: Desk) -> None:
    assert Project.read(desk.root).environments() == ["zaccount", "dev", "prod"]


def test_a_bootstrap_comes_first_and_no_job_applies_it(desk: Desk, hub: Double) -> None:
    desk.write("stacks/Pulumi.zbootstrap.yaml", "config:\n  everspot:bootstrap: {cloud: aws}\n")
    desk.commit()
    assert Project.read(desk.root).environments() == ["zbootstrap", "zaccount", "dev", "prod"]
    done = desk.run("apply", "--base", "HEAD~1", "--json")
    assert (done.returncode, json.loads(done.stdout)["environments"], desk.verbs()) == (0, [], [])
    assert "zbootstrap: an administrator applies it by hand" in done.stderr


@pytest.mark.parametrize(
    ("project", "config_dir", "settings"),
    [
        (".infra", "", ".infra"),
        (".infra", ".stacks", ".infra/.stacks"),
        ("infra", "../config", "config"),
        ("infra", "./a/../b/", "infra/b"),
        ("", ".stacks", ".stacks"),
    ],
)
def test_settings_are_where_the_engine_reads_them(desk: Desk, project: str, config_dir: str, settings: str) -> None:
    desk.write(f"{project}/Pulumi.yaml".lstrip("/"), f"name: p\nruntime: python\nstackConfigDir: {config_dir}\n")
    desk.commit()
    desk.write(f"{settings}/Pulumi.prod.yaml", "config: {}\n")
    desk.commit()
    read_project = Project.read(desk.root / project)
    assert (read_project.environments(), read_project.find_affected("HEAD~1").environments) == (["prod"], ("prod",))


def test_a_project_that_has_no_settings_where_a_change_edits_some_is_refused(desk: Desk) -> None:
    desk.write("infra/Pulumi.yaml", "name: p\nruntime: python\nstackConfigDir: config\n")
    desk.write("infra/Pulumi.prod.yaml", "config: {}\n")
    desk.commit()
    done = desk.run("files", "--base", "HEAD~1", "--project", "infra")
    assert done.returncode == 1
    assert "the change edits infra/Pulumi.prod.yaml, and there are no settings in infra/config" in done.stderr
    desk.write("infra/Pulumi.yaml", "name: p\nruntime: python\nstackConfigDir: ../../config\n")
    outside = desk.run("files", "--base", "HEAD~1", "--project", "infra")
    assert (outside.returncode, "stackConfigDir is outside of the repository" in outside.stderr) == (1, True)


@pytest.mark.parametrize(("key", "by_admin"), [("kafka:bootstrap", False), ("everspot:bootstrap", True)])
def test_a_setting_of_another_namespace_is_no_section_of_the_project(desk: Desk, key: str, by_admin: bool) -> None:
    desk.write("stacks/Pulumi.prod.yaml", f"config:\n  {key}: {{cloud: aws}}\n")
    desk.commit()
    assert Project.read(desk.root).is_applied_by_admin("prod") is by_admin


def test_a_project_in_a_subfolder_has_its_own_prefix_and_prices(desk: Desk) -> None:
    table = PriceTable(
        cloud="aws", region="eu-central-1", as_of=datetime.now(UTC), on_demand_source="list", spot_source="list",
        prices=[TypePrice(instance_type="g5.xlarge", on_demand_usd_per_hour=10.0)],
    )  # fmt: skip
    write_table(desk.root / "infra" / "prices", table)
    desk.commit("prices")
    desk.write("infra/Pulumi.yaml", "name: fleets\nruntime: python\n")
    capacity = "{instanceTypes: [g5.xlarge], standing: {target: 1, onDemandBase: 1}}"
    cluster = f"{{cloud: aws, tags: {{}}, imageId: ami-1, zones: [eu-central-1a], capacity: {capacity}}}"
    desk.write("infra/Pulumi.prod.yaml", f"config:\n  aws:region: eu-central-1\n  fleets:cluster: {cluster}\n")
    desk.commit()
    usd = json.loads(desk.run("files", "--base", "HEAD~1", "--project", "infra", "--json").stdout)["usd_per_month"]
    assert usd["prod"]["after"]["low"] > 7_000
    desk.write("infra/Pulumi.prod.yaml", f"config:\n  aws:region: eu-central-1\n  fleets:clustr: {cluster}\n")
    desk.commit()
    done = desk.run("files", "--base", "HEAD~1", "--project", "infra")
    assert (done.returncode, "fleets:clustr: is not a setting (did you mean cluster?)" in done.stdout) == (1, True)


def write_prices(desk: Desk, region: str, usd: float, *more: TypePrice, types: Sequence[InstanceType] = ()) -> None:
    table = PriceTable(
        cloud="aws", region=region, as_of=datetime(2026, 1, 1, tzinfo=UTC), on_demand_source="list", spot_source="list",
        prices=[TypePrice(instance_type="g5.xlarge", on_demand_usd_per_hour=usd), *more], types=list(types),
    )  # fmt: skip
    write_table(desk.root / "prices", table)


def on_demand_fleet(region: str, name: str, count: int) -> str:
    """The settings of a stack with on-demand instances of a type."""
    return (
        f"config:\n  aws:region: {region}\n"
        f"  everspot:cluster: {{cloud: aws, tags: {{}}, imageId: ami-1, zones: [{region}a], "
        f"capacity: {{instanceTypes: [{name}], standing: {{target: {count}, onDemandBase: {count}}}}}}}\n"
    )


@pytest.mark.parametrize(
    ("region", "old", "new", "usd_per_hour", "sentence"),
    [
        pytest.param(
            "us-east-1",
            None,
            0.011,
            1.006,
            "The change adds prices/aws-us-east-1.json. The figures are at the prices before the change. "
            "Prices per hour: g5.xlarge on-demand $1.006 → $0.011.",
            id="new-file-of-a-known-region",
        ),
        pytest.param(
            "us-east-1",
            2.0,
            0.011,
            2.0,
            "The change edits prices/aws-us-east-1.json. The figures are at the prices before the change. "
            "Prices per hour: g5.xlarge on-demand $2 → $0.011.",
            id="edited-file",
        ),
        pytest.param(
            "us-east-1",
            2.0,
            None,
            2.0,
            "The change removes prices/aws-us-east-1.json. The figures are at the prices before the change. "
            "Prices per hour: g5.xlarge on-demand $2 → $1.006.",
            id="removed-file",
        ),
        pytest.param(
            "ap-southeast-5",
            None,
            3.0,
            3.0,
            "The change adds prices/aws-ap-southeast-5.json. Its prices are in the figures, because no other prices "
            "of the region are known. Prices per hour: g5.xlarge on-demand unknown → $3.",
            id="region-without-prices",
        ),
        pytest.param("us-east-1", 2.0, 2.0, 2.0, "", id="unchanged"),
    ],
)
def test_a_change_is_priced_by_the_tables_before_it(
    desk: Desk, region: str, old: float | None, new: float | None, usd_per_hour: float, sentence: str
) -> None:
    """A change that edits the prices beside a fleet cannot make its own cost look small."""
    desk.write("stacks/Pulumi.dev.yaml", on_demand_fleet(region, "g5.xlarge", 1))
    if old is not None:
        write_prices(desk, region, old)
    desk.commit()
    desk.write("stacks/Pulumi.dev.yaml", on_demand_fleet(region, "g5.xlarge", 8))
    if new is None:
        (desk.root / f"prices/aws-{region}.json").unlink()
    else:
        write_prices(desk, region, new)
    desk.commit()
    answer = json.loads(desk.run("files", "--base", "HEAD~1", "--json").stdout)
    assert answer["price_changes"] == ([sentence] if sentence else [])
    usd = answer["usd_per_month"]["dev"]
    assert usd["after"]["high"] - usd["before"]["high"] == pytest.approx(7 * 730 * usd_per_hour, rel=0.02)
    desk.answers("preview", "dev", [step("same", "door", {}, {})])
    done = desk.run("preview", "--base", "HEAD~1", "--json", "--out", str(desk.engine / "reports"))
    (report,) = [each for each in json.loads(done.stdout)["reports"] if each["environment"] == "dev"]
    assert [each["text"] for each in report["diagnostics"] if "prices/" in each["text"]] == answer["price_changes"]


R7I = InstanceType(name="r7i.48xlarge", vcpus=192, memory_gib=1536, on_demand_usd_per_hour=0.01)


@pytest.mark.parametrize(
    ("region", "name", "usd_per_hour", "types", "edited", "is_used"),
    [
        pytest.param("eu-west-1", "g6.48xlarge", 14.8, [], False, True, id="not-in-this-region"),
        pytest.param("us-east-1", R7I.name, 12.7, [R7I], True, True, id="not-in-the-catalogue"),
        pytest.param("us-east-2", "p5e.48xlarge", 40.0, [], True, True, id="only-spot"),
        # It would also limit the known price of Spot.
        pytest.param("us-east-2", "p5e.48xlarge", 1.0, [], False, False, id="below-spot"),
    ],
)
def test_a_type_without_a_price_before_the_change_costs_what_the_change_says(
    desk: Desk, region: str, name: str, usd_per_hour: float, types: list[InstanceType], edited: bool, is_used: bool
) -> None:
    """One change may name a new type and bring its prices, and still edits no other price of the region."""
    desk.write("stacks/Pulumi.dev.yaml", on_demand_fleet(region, "g5.xlarge", 1))
    desk.write("stacks/Pulumi.prod.yaml", on_demand_fleet(region, "g5.xlarge", 1))
    if edited:
        write_prices(desk, region, 2.0)
    desk.commit()
    row = TypePrice(instance_type=name, on_demand_usd_per_hour=usd_per_hour)
    write_prices(desk, region, 0.011, row, types=types)
    desk.write("stacks/Pulumi.dev.yaml", on_demand_fleet(region, name, 8))
    desk.write("stacks/Pulumi.prod.yaml", on_demand_fleet(region, "g5.xlarge", 8))
    desk.commit()
    done = desk.run("files", "--base", "HEAD~1", "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["problems"]) == (0, {})
    dev, prod = (answer["usd_per_month"][stack] for stack in ("dev", "prod"))
    listed = builtin().on_demand("g5.xlarge", region)
    assert listed is not None
    before = 2.0 if edited else listed.usd_per_hour
    assert prod["after"]["high"] - prod["before"]["high"] == pytest.approx(7 * 730 * before, rel=0.02)
    month = 8 * 730 * usd_per_hour if is_used else 0
    assert dev["after"]["high"] == pytest.approx(month, rel=0.02, abs=100)
    (sentence,) = answer["price_changes"]
    use = f", except where none was known: they have its prices of {name}." if is_used else ". Prices"
    assert f" The figures are at the prices before the change{use}" in sentence


def test_a_renamed_file_is_one_environment_gone_and_another_come(desk: Desk) -> None:
    desk.git("mv", "stacks/Pulumi.dev.yaml", "stacks/Pulumi.stage.yaml")
    desk.commit()
    assert touched(desk) == (["stage"], ["dev"])


def test_environments_that_a_project_no_longer_looks_for_are_gone_too(desk: Desk) -> None:
    desk.write("Pulumi.yaml", "name: everspot\nruntime: python\nmain: stacks/\n")
    desk.commit()
    assert touched(desk) == ([], ["dev", "prod", "zaccount"])


def test_a_push_that_has_nothing_before_it_touches_all(desk: Desk) -> None:
    for digits in (40, 64):
        assert touched(desk, "0" * digits)[0] == ["zaccount", "dev", "prod"]


def test_only_the_change_counts_and_not_what_came_to_the_base_meanwhile(desk: Desk) -> None:
    desk.git("checkout", "-q", "-b", "more")
    desk.write("stacks/Pulumi.dev.yaml", "config: {}\n")
    desk.commit()
    desk.git("checkout", "-q", "main")
    desk.write("stacks/Pulumi.prod.yaml", "config: {}\n")
    desk.commit()
    desk.git("checkout", "-q", "more")
    assert touched(desk, "main") == (["dev"], [])
    desk.answers("preview", "dev", [UPDATE])
    done = desk.run("preview", "--base", "main", "--out", "reports", "--json")
    (report,) = json.loads(done.stdout)["reports"]
    (diagnostic,) = report["diagnostics"]
    assert diagnostic["severity"] == "warning"
    assert diagnostic["text"].startswith("The branch lacks 1 commit of the one that it goes into.")


@pytest.mark.parametrize("base", ["nowhere", "--output=/tmp/x", "-p"])
def test_a_revision_that_is_none_is_refused(desk: Desk, base: str) -> None:
    with pytest.raises(ChangeError):
        touched(desk, base)


def test_a_folder_outside_of_any_repository_is_told_as_that_and_not_as_a_short_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setenv("LC_ALL", "C")
    (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    with pytest.raises(ChangeError, match=r"not a git repository.*in a clone of the repository") as refusal:
        Project.read(tmp_path)
    assert "history" not in str(refusal.value)


def test_a_name_that_no_stack_can_have_is_refused(desk: Desk) -> None:
    desk.write("stacks/Pulumi.a;b.yaml", "config: {}\n")
    desk.commit()
    with pytest.raises(ChangeError, match="'a;b'"):
        touched(desk)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("config: [1]\n", "`config` has to be a mapping"),
        ("config:\n  everspot:a: 1\n  everspot:a: 2\n", "'everspot:a' is given twice in line 3"),
        ("konfig: {}\n", "'konfig' is nothing that Pulumi reads"),
        ("config: {cluster: 1}\n", "config.cluster: has to be NAMESPACE:NAME"),
        (
            "config: !!python/object/apply:os.system [id]\n",
            "a value of the kind 'os.system' is not allowed",
        ),
        ("- a\n", "has to be a mapping"),
        ("config: {'a:b': [.inf]}\n", "infinite or none (NaN)"),
        ("config: {'a:b': {c: .nan}}\n", "infinite or none (NaN)"),
        ("a: b: c\n", "is neither YAML nor JSON"),
        ("config:\n  ? [a]\n  : b\n", "a key has to be a text"),
        (f"config: {'{a: ' * 99}", "nested more than 32 levels deep"),
    ],
)
def test_a_file_that_is_no_settings_is_told_without_running_anything(desk: Desk, text: str, expected: str) -> None:
    desk.write("stacks/Pulumi.dev.yaml", text)
    (problem,) = problems(desk.root / "stacks/Pulumi.dev.yaml")
    assert expected in problem


def test_what_the_engine_or_another_reader_would_take_differently_is_refused_with_its_quoted_form(desk: Desk) -> None:
    path = desk.root / "stacks/Pulumi.dev.yaml"
    desk.write("stacks/Pulumi.dev.yaml", "config:\n  a:b: {Since: 2026-01-31, on: x}\n  a:c: [2026-99-99, yes]\n")
    assert [problem.partition(": ")[0] for problem in problems(path)] == [
        "line 2, config.a:b.Since", "line 2, config.a:b.on", "line 3, config.a:c[0]", "line 3, config.a:c[1]",
    ]  # fmt: skip
    assert all('write "' in problem for problem in problems(path))
    desk.write("stacks/Pulumi.dev.yaml", "config: {'a:b': \"2026-99-99\", 'a:c': '2026-01-31'}\n")
    assert problems(path) == []


def test_a_file_that_is_wrong_ends_the_command_and_nothing_of_the_change_is_run(desk: Desk) -> None:
    desk.write("stacks/Pulumi.dev.yaml", "konfig: {}\n")
    desk.commit()
    done = desk.run("files", "--base", "HEAD~1")
    assert (done.returncode, desk.calls()) == (1, [])
    assert "Pulumi.dev.yaml: 'konfig' is nothing that Pulumi reads" in done.stdout


def test_the_command_says_what_is_touched_and_what_is_gone(desk: Desk) -> None:
    desk.git("rm", "-q", "stacks/Pulumi.prod.yaml")
    desk.write("stacks/Pulumi.dev.yaml", "config: {}\n")
    desk.commit()
    done = desk.run("changed", "--base", "HEAD~1", "--json")
    assert json.loads(done.stdout) == {"environments": ["dev"], "removed": ["prod"], "program": []}
    assert desk.run("files", "--base", "HEAD~1").returncode == 0


def test_a_mistyped_setting_ends_the_command_with_what_was_meant(desk: Desk) -> None:
    text = (ROOT / "stacks/Pulumi.local.yaml").read_text()
    desk.write("stacks/Pulumi.dev.yaml", text.replace("    capacity:", "    retainStore_: 1\n    capacity:"))
    desk.commit()
    done = desk.run("files", "--base", "HEAD~1")
    assert (done.returncode, desk.calls()) == (1, [])
    assert "everspot:cluster.retainStore_: is not a setting (did you mean retainStore?)" in done.stdout


def test_the_price_of_a_change_is_told_from_the_settings_alone(desk: Desk) -> None:
    text = (ROOT / "stacks/Pulumi.local.yaml").read_text()
    assert "target: 1" in text
    desk.write("stacks/Pulumi.dev.yaml", text)
    desk.commit()
    desk.write("stacks/Pulumi.dev.yaml", text.replace("target: 1", "target: 9"))
    desk.write("stacks/Pulumi.prod.yaml", text.replace("cloud: aws", "cloud: mars"))
    desk.commit()
    done = desk.run("files", "--base", "HEAD~1", "--json")
    answer = json.loads(done.stdout)
    before, after = (float(side.strip(" $").replace(",", "")) for side in answer["prices"]["dev"].split("→"))
    assert (done.returncode, 0 < before < after, desk.calls()) == (1, True, [])
    assert "everspot:cluster.cloud: is not one of aws, gcp, kubernetes" in answer["problems"]["prod"]
    usd = answer["usd_per_month"]["dev"]
    assert (round(usd["before"]["expected"]), round(usd["after"]["expected"])) == (before, after)
    assert [line.partition(":")[0] for line in usd["uncounted"]] == ["eu-west-1"], "the image's volumes are counted"
    printed = desk.run("files", "--base", "HEAD~1").stdout
    line = next(line for line in printed.splitlines() if line.startswith("dev: beside this figure: "))
    assert "endpoints, store requests and volumes are not known here; us-east-1's stand in for them" in line


def test_more_nodes_and_dearer_types_on_kubernetes_raise_the_most_that_a_month_may_cost(desk: Desk) -> None:
    text = (ROOT / "stacks/Pulumi.kubernetes-dev.yaml").read_text()
    types, most = "[g4dn.xlarge, g5.xlarge, g6.xlarge]", "maxInstances: 8"
    assert types in text and most in text
    desk.write("stacks/Pulumi.dev.yaml", text)
    desk.write("stacks/Pulumi.prod.yaml", text)
    desk.commit()
    desk.write("stacks/Pulumi.dev.yaml", text.replace(most, "maxInstances: 20"))
    desk.write("stacks/Pulumi.prod.yaml", text.replace(types, "[g5.xlarge, g5.12xlarge]"))
    desk.commit()
    answer = json.loads(desk.run("files", "--base", "HEAD~1", "--json").stdout)
    price, store, volume = {"g5.xlarge": 1.006, "g5.12xlarge": 5.672}, 1.12, 8.0
    for stack, count, name in (("dev", 20, "g5.xlarge"), ("prod", 8, "g5.12xlarge")):
        usd = answer["usd_per_month"][stack]
        assert [usd[side]["expected"] for side in ("before", "after")] == [store, store], "nodes cost by use"
        assert usd["before"]["high"] == pytest.approx(8 * (730 * price["g5.xlarge"] + volume) + store, abs=0.02)
        assert usd["after"]["high"] == pytest.approx(count * (730 * price[name] + volume) + store, abs=0.02)


def test_that_nothing_changes_is_said_beside_an_output_that_scripts_read(desk: Desk) -> None:
    desk.write("README.md", "more")
    desk.commit()
    done = desk.run("changed", "--base", "HEAD~1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "No environment changes.\n")
    answer = desk.run("changed", "--base", "HEAD~1", "--json")
    assert (json.loads(answer.stdout)["environments"], answer.stderr) == ([], "")
    desk.git("rm", "-q", "stacks/Pulumi.dev.yaml")
    desk.commit()
    assert desk.run("changed", "--base", "HEAD~1").stderr == ""


@pytest.mark.parametrize("edit", ["tracked", "staged", "new", "elsewhere"])
@pytest.mark.parametrize("folder", ["stacks", ""])
def test_edits_that_are_not_committed_are_named_as_not_looked_at(desk: Desk, edit: str, folder: str) -> None:
    if not folder:
        desk.write("Pulumi.yaml", "name: everspot\nruntime: python\nmain: stacks/\n")
        desk.git("mv", "stacks/Pulumi.dev.yaml", "Pulumi.dev.yaml")
        desk.commit()
    desk.commit()
    name = {"new": "Pulumi.stage.yaml", "elsewhere": "README.md"}.get(edit, "Pulumi.dev.yaml")
    desk.write(f"{folder}/{name}" if folder and edit != "elsewhere" else name, "config: {}\n")
    if edit == "staged":
        desk.git("add", "-A")
    done = desk.run("changed", "--base", "HEAD~1")
    message = f"Not looked at, because it is not committed: {folder}/{name}".replace(" /", " ")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"{'' if edit == 'elsewhere' else f'{message}{chr(10)}'}No environment changes.\n"
    assert desk.run("changed", "--base", "HEAD~1", "--json").stderr == ""
    assert desk.run("files", "--base", "HEAD~1").stderr == ("" if edit == "elsewhere" else f"{message}\n")
    assert desk.run("files", "--base", "HEAD~1", "--json").stderr == ""
