"""Instances as process trees: their environment, and their shutdown on request, on preemption and by themselves."""

import json
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from everspot_local.address import alive
from everspot_local.options import Options

SCRIPT = Path(__file__).with_name("gcp_machine.py")
ZONE, REGION = "europe-west4-a", "regions/europe-west4"


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Options:
    state = Path(tmp_path_factory.mktemp("machines"))
    command = (sys.executable, str(SCRIPT))
    return Options(state, cloud="gcp", scale=120, boot_command=command, data_dir=state / "data")


@pytest.fixture
def net(kit: Any) -> Any:
    kit.network()
    return kit


def start(kit: Any, name: str = "one", order: Any = None, **more: Any) -> tuple[Any, list[int], Path]:
    """Start an instance and wait for its processes; return its description, the process ids, and its folder."""
    items = [{"key": "order", "value": json.dumps({"do": "run", **(order or {})})}]
    instance = kit.run(name, metadata={"items": items}, **more)
    processes = kit.cloud.machines.processes
    home = processes.folder(instance["id"])
    kit.until((home / "ready").exists)
    pids = kit.until(lambda: [pids for pids in [processes.processes(instance["id"])] if len(pids) == 2])[0]
    return instance, pids, home


def ended(pids: list[int]) -> bool:
    return not any(alive(pid) for pid in pids)


def test_the_environment_is_made_from_scratch(net: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_LAPTOP", "1")
    instance, _, home = start(net)
    environment = json.loads((home / "environment.json").read_text())
    environment.pop("LC_CTYPE", None)  # Python's own doing
    assert set(environment) == {
        "PATH", "HOME", "LANG", "EVERSPOT_CLOUD", "EVERSPOT_HEALTH", "EVERSPOT_GCP_ENDPOINT", "GCE_METADATA_HOST",
        "GOOGLE_BASE_URL", "EVERSPOT_CLOCK", "EVERSPOT_HOME", "EVERSPOT_WORK", "EVERSPOT_INSTANCE_ID",
        "EVERSPOT_DATA", "EVERSPOT_MACHINE_HOST_NAME",
    }  # fmt: skip
    assert environment["EVERSPOT_MACHINE_HOST_NAME"] == "one"
    assert (environment["EVERSPOT_CLOUD"], environment["EVERSPOT_GCP_ENDPOINT"]) == ("gcp", net.cloud.endpoint)
    assert environment["EVERSPOT_INSTANCE_ID"] == instance["id"] == (home / "ready").read_text()
    console = net.get(f"zones/{ZONE}/instances/one/serialPort")
    assert (console["contents"], console["next"]) == ("up\n", "3")


def test_deleting_asks_first_and_leaves_no_process(net: Any) -> None:
    _, pids, home = start(net)
    with net.still():  # or a busy machine kills them before they have done what they were asked
        operation = net.begin("DELETE", f"zones/{ZONE}/instances/one")
        net.until((home / "tidied").exists)
    assert "error" not in net.wait(operation)
    assert ended(pids)


def test_a_preemption_asks_first_and_counts_as_one_when_the_programs_end_by_themselves(net: Any) -> None:
    instance, pids, home = start(net)
    with net.still():
        net.market("interrupt", instance=instance["id"])
        net.until(lambda: (home / "tidied").exists() and ended(pids))
    net.wait_until_deleted("one")
    (operation,) = net.zone_operations("compute.instances.preempted")
    (end,) = net.log("end")
    assert operation["targetId"] == instance["id"] and end["interrupted"]


def test_with_a_notice_the_programs_are_asked_two_minutes_later(net: Any) -> None:
    notice = {"preemptionNoticeDuration": {"seconds": 120}}
    instance, _, home = start(net, scheduling=notice)
    with net.still() as later:
        net.market("interrupt", instance=instance["id"])
        later(119)
        assert not (home / "tidied").exists()
        later(2)
        net.until((home / "tidied").exists)
    net.wait_until_deleted("one")


def test_one_that_ignores_the_request_is_killed_after_thirty_seconds(net: Any) -> None:
    instance, pids, home = start(net, order={"stubborn": True})
    with net.still() as later:
        interrupted_at = net.cloud.market.clock.now()
        net.market("interrupt", instance=instance["id"])
        later(29)
        assert not ended(pids)
    net.wait_until_deleted("one")
    (end,) = net.log("end")
    assert not (home / "tidied").exists() and ended(pids)
    assert (datetime.fromisoformat(end["at"]) - interrupted_at).total_seconds() >= 30


def test_an_instance_that_leaves_before_it_is_taken_was_not_preempted(net: Any) -> None:
    """Like an agent, the instance requests its own deletion within its notice."""
    instance, _, _ = start(net, scheduling={"preemptionNoticeDuration": {"seconds": 120}})
    with net.still():
        net.market("interrupt", instance=instance["id"])
        net.begin("DELETE", f"zones/{ZONE}/instances/one")
    net.wait_until_deleted("one")
    (end,) = net.log("end")
    assert not end["interrupted"] and net.zone_operations("compute.instances.preempted") == []


def test_one_that_powers_itself_off_stays_stopped_with_its_name(net: Any) -> None:
    items = [{"key": "order", "value": json.dumps({"do": "exit", "code": 0})}]
    instance = net.run("one", metadata={"items": items})
    stopped = net.until(lambda: next((i for i in net.instances() if i["status"] == "TERMINATED"), None))
    assert stopped["id"] == instance["id"]
    (operation,) = net.zone_operations("compute.instances.guestTerminate")
    (end,) = net.log("end")
    assert operation["targetId"] == instance["id"] and not end["interrupted"]


def test_a_group_repairs_a_member_that_answers_no_health_check_and_leaves_one_that_does(
    net: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(net.cloud.provider.compute.healing, "patience", timedelta())
    net.do("POST", "global/healthChecks", {
        "name": "h", "type": "HTTP", "httpHealthCheck": {"requestPath": "/healthz"}, "unhealthyThreshold": 1,
        "checkIntervalSec": 60, "timeoutSec": 60,
    })  # fmt: skip
    healing = {"autoHealingPolicies": [{"healthCheck": "global/healthChecks/h", "initialDelaySec": 60}]}
    group, ids = f"{REGION}/instanceGroupManagers", []
    for name, well in (("sick", False), ("well", True)):
        items = [{"key": "order", "value": json.dumps({"do": "run", "well": well})}]
        link = net.template(name, metadata={"items": items})
        body = {
            "name": name, "targetSize": 1, "versions": [{"instanceTemplate": link}], **({} if well else healing),
        }  # fmt: skip
        net.do("POST", group, body)

    def member(name: str) -> Any:
        return net.call("POST", f"{group}/{name}/listManagedInstances").body["managedInstances"][0]

    ids = [net.until(lambda name=name: member(name).get("id")) for name in ("sick", "well")]
    net.until((net.cloud.machines.processes.folder(ids[1]) / "ready").exists)
    net.do("PATCH", f"{group}/well", healing)  # only now: without patience, one that still boots would be repaired
    net.until(lambda: member("well")["instanceHealth"][0]["detailedHealthState"] == "HEALTHY")
    net.until(lambda: member("sick").get("id", ids[0]) != ids[0])
    assert member("well")["id"] == ids[1]
    assert not any(line["interrupted"] for line in net.log("end"))
