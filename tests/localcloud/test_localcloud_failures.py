"""A failure inside the local cloud is contained: the market's thread continues, fleets heal, instances end."""

from typing import Any

from everspot_local.aws.account import ACCOUNT
from moto.ec2.models import ec2_backends


def test_one_failure_in_the_markets_thread_does_not_empty_a_fleet_for_good(kit: Any, monkeypatch: Any) -> None:
    backend = ec2_backends[ACCOUNT]["us-east-1"]
    launch, failures = backend.run_instances, []

    def fail_twice(*args: Any, **more: Any) -> Any:
        if len(failures) < 2:
            failures.append(1)
            raise RuntimeError("the market stumbles")
        return launch(*args, **more)

    monkeypatch.setattr(backend, "run_instances", fail_twice)
    kit.fleet(2)
    kit.living(2)
    assert len(failures) == 2


def test_a_listener_that_fails_keeps_no_instance_alive(kit: Any, monkeypatch: Any) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("nobody listens")

    monkeypatch.setattr(kit.cloud.machines, "listeners", [fail, *kit.cloud.machines.listeners])
    kit.fleet(1)
    first = kit.living(1)[0]["InstanceId"]
    kit.ec2.terminate_instances(InstanceIds=[first])
    kit.reaches(first, "terminated")
    assert kit.living(1)[0]["InstanceId"] != first
