"""What Kubernetes with the real Karpenter costs: the bill counts the machines, and equals the market's own log."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_kubernetes import LACKS_PROGRAMS, MISSING, KubernetesLive
from everspot_clouds.kubernetes.rules import BILLING
from everspot_core.capacity.catalogue import builtin
from everspot_core.costs.cost import Bill, bill
from everspot_core.governance.usage import UsageKind, usage_rows
from everspot_core.jobs.records import JobState, Role

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(LACKS_PROGRAMS, reason=MISSING),
]
AUDIT = Path(__file__).parents[2] / "tools/audit_bill.py"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesLive]:
    with KubernetesLive(tmp_path_factory.mktemp("kubernetes")) as cluster:
        yield cluster


def billed(live: KubernetesLive) -> Bill:
    store = live.store
    records = [[doc.value for doc in table.scan().values()] for table in (store.launches, store.ends)]
    events = store.events_by_job(list(store.jobs.scan()))
    return bill(*records, store.prices(), events, builtin(), store.clock.now(), rules=BILLING)


def test_after_a_notice_the_bill_of_the_nodes_equals_the_markets_own_log(live: KubernetesLive, tmp_path: Path) -> None:
    job = live.submit_toy("billed", 60, 0.5)
    first = live.until(lambda: live.trains(job, steps=5))
    live.cloud.do("interrupt", instance=live.node_of(first))
    assert live.until(lambda: live.ended(job)) is JobState.SUCCEEDED
    assert live.until(lambda: not live.pods() and not live.claims())
    nodes = live.until(lambda: [d.value for d in live.store.launches.scan().values() if d.value.role is Role.NODE])
    assert live.until(lambda: {node.instance_id for node in nodes} <= set(live.store.ends.scan()))
    bill_now, log = billed(live), tmp_path / "market.jsonl"
    log.write_text("".join(f"{json.dumps(line)}\n" for line in live.cloud.market.log.read()))
    audited = subprocess.run(
        [sys.executable, AUDIT, log, "--json"], capture_output=True, text=True, check=True, timeout=60
    )
    assert len(nodes) >= 2 and {i.launch.instance_id for i in bill_now.instances} == {n.instance_id for n in nodes}
    assert float(bill_now.cost) == pytest.approx(json.loads(audited.stdout)["total_usd"], rel=0.02)
    assert not any(instance.free for instance in bill_now.instances), "Karpenter ended the node after the notice"
    kinds = {row.kind for row in usage_rows(bill_now)}
    assert {UsageKind.BOOT, UsageKind.WORK, UsageKind.DRAIN} <= kinds
    assert not any("no node is recorded" in note for note in bill_now.notes)
