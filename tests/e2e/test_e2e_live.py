"""A workload file in the simulator and on the local cloud: both agree on the cost and on the met deadlines."""

from pathlib import Path

import pytest
from e2e_live import live_through, of_cloud
from e2e_paced import read
from everspot_simulator.account import differences, simulated

pytestmark = pytest.mark.timeout(3600)  # as slow as the machine: its market waits for it

FASTEST = 24
"""The highest speed of the market. Handovers, ends and reads take seconds of this machine, which the market multiplies:
at 40 they are a tenth of such a short workload's bill, at 20 a twentieth."""
SHORT = Path(__file__).parent / "workloads/short.yaml"


# Each takes as long as a tenth of the other tests together.
@pytest.mark.nightly
@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_what_the_simulator_promises_of_a_workload_is_what_a_cluster_lives_through(cloud: str, tmp_path: Path) -> None:
    path = of_cloud(SHORT, cloud, tmp_path)
    workload, traces = read(path)
    promised = simulated(workload, traces)
    assert (len(promised.met), promised.failovers, promised.refused) == (3, {"hurried": 1}, {"impossible"})
    lived = live_through(path, tmp_path, cloud=cloud, fastest=FASTEST)
    assert differences(promised, lived.account) == [], lived
