"""TerminateInstances: one invalid id must not keep other instances running."""

import pytest
from botocore.exceptions import ClientError
from everspot_clouds.aws import capacity


def service(code: str, status: int) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "TerminateInstances")


class Terminations:
    """EC2's TerminateInstances: one id that is not known, or one that is protected, and none of the call is ended."""

    def __init__(
        self,
        unknown: set[str],
        protected: set[str] = frozenset(),
        denied: bool = False,
        missing: set[str] = frozenset(),
    ) -> None:
        self.unknown, self.protected, self.denied, self.missing = unknown, protected, denied, missing
        self.ended: list[str] = []
        self.calls = 0

    def terminate_instances(self, InstanceIds: list[str]) -> None:
        self.calls += 1
        assert len(InstanceIds) <= 1000
        if self.denied or self.missing & set(InstanceIds):  # an ended instance has no tags to allow
            raise service("UnauthorizedOperation", 403)
        if self.unknown & set(InstanceIds):
            raise service("InvalidInstanceID.NotFound", 400)
        if self.protected & set(InstanceIds):
            raise service("OperationNotPermitted", 400)
        self.ended += InstanceIds


def test_one_unknown_instance_keeps_no_other_one_alive() -> None:
    names = [f"i-{n}" for n in range(250)]
    ec2 = Terminations({"i-7", "i-120"})
    capacity.terminate(ec2, names)
    assert set(ec2.ended) == set(names) - ec2.unknown
    assert ec2.calls < 3 + 2 * 2 * 8


def test_one_that_is_protected_is_told_once_the_others_have_ended() -> None:
    ec2 = Terminations(set(), {"i-2"})
    with pytest.raises(ClientError, match="OperationNotPermitted"):
        capacity.terminate(ec2, ["i-1", "i-2", "i-3"])
    assert ec2.ended == ["i-1", "i-3"]


def test_those_that_are_gone_and_may_not_be_asked_for_keep_no_other_one_alive() -> None:
    names = [f"i-{n}" for n in range(250)]
    ec2 = Terminations(set(), missing={f"i-{n}" for n in (3, 44, 45, 90, 91, 180)})
    with pytest.raises(ClientError, match="Unauthorized"):
        capacity.terminate(ec2, names)
    assert set(ec2.ended) == set(names) - ec2.missing


def test_a_denied_termination_makes_few_calls() -> None:
    ec2 = Terminations(set(), denied=True)
    with pytest.raises(ClientError, match="Unauthorized"):
        capacity.terminate(ec2, [f"i-{n}" for n in range(250)])
    assert ec2.calls < 20
    before = ec2.calls
    capacity.terminate(ec2, [])
    assert ec2.calls == before
