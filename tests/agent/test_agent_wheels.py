"""Which wheel of a package is installed on this machine."""

import platform

import pytest
from everspot_core.jobs.job import Wheel
from everspot_train.prepare.packages import fitting
from pydantic import ValidationError


def make_wheels(*names: str) -> list[Wheel]:
    return [Wheel(name=name, sha256="0" * 64) for name in names]


def test_of_each_package_the_wheel_for_this_machine_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    per_machine = [f"Numpy-2.0-cp312-cp312-manylinux_2_27_{a}.manylinux_2_28_{a}.whl" for a in ("x86_64", "aarch64")]
    mixed = ["fast-1-py3-none-any.whl", "fast-1-cp312-abi3-manylinux_2_28_aarch64.whl"]
    offered = make_wheels(*per_machine, *mixed, "pure-1-py3-none-any.whl")
    assert fitting(offered) == [offered[1], offered[3], offered[4]]
    foreign = make_wheels("odd-1-cp312-cp312-linux_x86_64.whl", "odd-1-cp312-cp312-linux_i686.whl", "strange.whl")
    assert fitting([*foreign, *offered]) == [
        *foreign,
        offered[1],
        offered[3],
        offered[4],
    ]  # pip says what is wrong
    assert fitting(foreign[:1]) == foreign[:1]


@pytest.mark.parametrize("name", ["../x.whl", "a/b.whl", "/x.whl", ".whl", "x.tar.gz", "", "x.whl\n"])
def test_a_wheel_s_name_is_no_path(name: str) -> None:
    with pytest.raises(ValidationError):
        Wheel(name=name, sha256="0" * 64)
