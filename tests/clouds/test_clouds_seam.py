"""The parts that a cloud has to provide. A second cloud needs only its folder and one entry of the registry."""

import io
import re
from contextlib import redirect_stderr, redirect_stdout
from datetime import timedelta
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest
from everspot_clouds import base
from everspot_clouds.registry import CLOUDS, DEFAULT_CLOUD, UnknownCloud, find_cloud, job_rules, provider
from everspot_core.jobs.records import NoticeKind
from everspot_store import ManualClock, Store
from everspot_train.agent import main as agent
from everspot_train.agent.metadata import read_interruption
from everspot_train.prepare.secrets import read_secrets
from pretend_cloud.cloud import BEGAN, PretendCloud

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs/internals/adding-a-cloud.md").read_text()
BRINGS = {
    "Provider": {
        "billing", "by_hand", "checks", "credentials", "errors", "invoicing", "job_credentials", "jobs", "metadata",
        "notice", "peer_credentials", "price_table", "proof", "reading", "registry_login", "remote_access",
        "scheduling", "secrets", "select_profile", "site", "stop_within",
    },
    "Metadata": {"end", "identity", "interruption", "manifest", "rebalance", "where"},
    "Cloud": {
        "acknowledge", "close", "ends", "instances", "launch", "messages", "notify", "placement_scores",
        "publish_gauges", "quota_name", "spot_prices", "terminate", "trouble",
    },
    "RemoteAccess": {"enter", "forward"},
    "JobCredentials": {"answer", "hidden", "renew", "variables"},
    "Site": {"end", "list_other_services", "list_unbilled", "remaining", "removal", "remove"},
}  # fmt: skip


def members(protocol: type) -> set[str]:
    return {name for name in vars(protocol) if not name.startswith("_")}


@pytest.mark.parametrize("protocol", list(BRINGS))
def test_what_a_cloud_has_to_bring_is_this_and_the_guide_names_all_of_it(protocol: str) -> None:
    assert members(getattr(base, protocol)) == BRINGS[protocol]
    assert {name for name in BRINGS[protocol] if f"`{name}`" not in GUIDE} == set()


def test_no_protocol_is_forgotten() -> None:
    protocols = {
        name for name, kind in vars(base).items() if getattr(kind, "_is_protocol", False) and name != "Protocol"
    }
    assert protocols == set(BRINGS)


@pytest.mark.parametrize("cloud", list(CLOUDS))
def test_each_cloud_brings_all_of_it(cloud: str) -> None:
    cloud_provider = provider(cloud)
    assert {name for name in BRINGS["Provider"] if not hasattr(cloud_provider, name)} == set()


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_the_modules_of_a_cloud_have_what_every_provider_takes_from_them(cloud: str) -> None:
    package = f"everspot_clouds.{cloud}"
    parts = {
        "checks": import_module(f"{package}.checks").cloud_checks,
        "credentials": import_module(f"{package}.credentials").for_store,
    }
    for name, part in parts.items():
        expected = [
            parameter for parameter in signature(getattr(base.Provider, name)).parameters if parameter != "self"
        ]
        assert list(signature(part).parameters) == expected
    assert {"manifest", "clock", "reads"} <= signature(import_module(f"{package}.cloud").CLOUD.open).parameters.keys()
    rules, invoicing = import_module(f"{package}.rules"), import_module(f"{package}.invoicing")
    cloud_provider = provider(cloud)
    assert (cloud_provider.billing, cloud_provider.jobs) == (rules.BILLING, rules.JOBS)
    assert cloud_provider.invoicing is invoicing.INVOICING


def test_a_folder_has_the_rules_of_the_usual_cloud() -> None:
    folder, usual = provider("folder"), provider(DEFAULT_CLOUD)
    assert (folder.billing, folder.invoicing, folder.jobs) == (usual.billing, usual.invoicing, usual.jobs)


def test_the_guide_names_every_module_that_is_looked_for_in_a_clouds_folder() -> None:
    looked_for = set(
        re.findall(r"everspot_clouds\.\{\w+\}\.(\w+)", (ROOT / "clouds/everspot_clouds/registry.py").read_text())
    )
    assert len(looked_for) >= 4
    assert {name for name in looked_for if f"`{name}.py`" not in GUIDE} == set()


def test_a_cloud_that_nobody_has_taught_is_named_with_those_that_are_known() -> None:
    with pytest.raises(UnknownCloud, match="no adapter for mars; it knows aws, folder, gcp, kubernetes"):
        provider("mars")
    assert [find_cloud(url) for url in ("s3://b?region=x", "gs://b", "file:///x", "mars://b")] == [
        "aws", "gcp", "folder", None,
    ]  # fmt: skip


def test_an_agent_boots_on_a_second_cloud(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERSPOT_CLOUD", "pretend")
    monkeypatch.setenv("PRETEND_MANIFEST", store.manifest().to_json().decode())
    clock = ManualClock(BEGAN)
    metadata = agent._metadata(agent._parser().parse_args([]), clock)
    manifest, identity = agent._introduce(metadata, clock)
    assert (manifest, identity.instance_id) == (store.manifest(), "p-1")
    assert read_interruption(metadata, clock) is None
    end = BEGAN + timedelta(seconds=30)
    monkeypatch.setenv("PRETEND_END", end.isoformat())
    notice = read_interruption(metadata, clock)
    assert notice is not None
    assert (notice.kind, notice.action_at) == (NoticeKind.INTERRUPTION, end)


@pytest.mark.usefixtures("pretend")
def test_a_job_reads_its_secrets_of_a_second_cloud() -> None:
    assert read_secrets({"TOKEN": "vault:petals"}, "pretend", "mars-1") == {"TOKEN": "tulips of mars-1"}


@pytest.mark.usefixtures("pretend")
def test_a_job_file_obeys_every_known_cloud_so_that_it_may_move() -> None:
    assert job_rules().reserved == (
        "EVERSPOT_", "AWS_", "GOOGLE_", "CLOUDSDK_", "GCE_METADATA_", "GCLOUD_", "PRETEND_",
    )  # fmt: skip
    assert job_rules().accepts("vault:petals") and job_rules().accepts("ssm:/petals")
    assert not job_rules().accepts("safe:petals")


def test_a_cloud_reads_no_secret_that_is_named_in_another_ones_form() -> None:
    with pytest.raises(base.CloudError, match="has to be one of secretsmanager:NAME, secretsmanager:NAME#KEY, ssm:/"):
        provider("aws").secrets("us-east-1")("vault:petals")


def test_a_scheduler_keeps_the_books_of_a_second_cloud(store: Store, pretend: type[PretendCloud]) -> None:
    from everspot_scheduler.loop import Scheduler

    cloud = provider("pretend").scheduling(store.manifest(), store)
    scheduler = Scheduler(store, store.manifest(), cloud, "s-1")
    scheduler.tick()
    pretend.preempted_at = BEGAN + timedelta(minutes=30)
    assert isinstance(store.clock, ManualClock)
    store.clock.advance(timedelta(minutes=31))
    scheduler.tick()
    assert {name: doc.value.zone for name, doc in store.launches.scan().items()} == {"p-1": "us-central1-a"}
    assert {name: doc.value.interrupted for name, doc in store.ends.scan().items()} == {"p-1": True}


def everspot(store: Store, *arguments: str) -> tuple[int, str]:
    """The command on this store: exit code, and all that it said."""
    from everspot_cli.main import main

    output, code = io.StringIO(), 0
    with redirect_stdout(output), redirect_stderr(output):
        try:
            main(["--store", store.control.url, *arguments])
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, output.getvalue()


def test_the_command_speaks_of_a_second_cloud_by_its_own_rules(store: Store, pretend: type[PretendCloud]) -> None:
    pretend.preempted_at = BEGAN + timedelta(minutes=30)
    code, output = everspot(store, "report", "--settle")
    assert code == 0
    assert "the weather" in output
    # Half an hour of Spot at $3.60: this cloud waives nothing of what it takes.
    assert re.search(r"\$1\.80", output)
    assert everspot(store, "prices", "refresh")[0] == 0
    table = store.price_table()
    assert table is not None
    assert [row.on_demand_usd_per_hour for row in table.prices] == [7.2]


def test_a_second_cloud_touches_its_own_folder_and_the_registry_alone() -> None:
    own = sorted(path.name for path in (Path(__file__).parent / "pretend_cloud").glob("*.py"))
    assert own == ["__init__.py", "cloud.py", "metadata.py", "provider.py", "rules.py"]
    rooms = ("core", "simulator", "store", "clouds", "scheduler", "training_image", "cli", "review")
    product = [path for room in rooms for path in (ROOT / room).rglob("*.py")]
    assert product
    assert [path for path in product if "pretend_cloud" in path.read_text()] == []
