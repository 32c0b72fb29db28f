"""The parts of the scheduler that several phases of a tick use."""

from dataclasses import dataclass

from everspot_clouds.base import Cloud, MessageKind
from everspot_core.cluster.manifest import Manifest
from everspot_store import Store

from everspot_scheduler.actor import Actor
from everspot_scheduler.anomalies import AnomalyWatch
from everspot_scheduler.budget_spending import BudgetSpending
from everspot_scheduler.changeovers import ChangeoverLog
from everspot_scheduler.cloud_calls import CloudCalls
from everspot_scheduler.cloud_facts import Facts
from everspot_scheduler.elastic.manager import ElasticManager
from everspot_scheduler.event_writer import History
from everspot_scheduler.faults import Faults
from everspot_scheduler.federation.manager import Federation, PeerAccess
from everspot_scheduler.federation.peer_access import default_peer_access
from everspot_scheduler.ledger import Ledger
from everspot_scheduler.manifest_watch import ManifestWatch
from everspot_scheduler.observer import Observation
from everspot_scheduler.scores import Scores
from everspot_scheduler.waiting import Waits


@dataclass(frozen=True, kw_only=True)
class SchedulerServices:
    """The services that several phases use. A service of one phase belongs to that phase.

    Attributes:
        scheduler_id: The name of this scheduler.
        store: The cluster's store.
        cloud: The cluster's cloud.
        manifest_watch: The declaration of the cluster as it is now.
        cloud_calls: Calls to the cloud, as often as they are due.
        facts: What the cloud says of instances.
        ledger: Launches, ends and prices.
        history: The events of jobs.
        faults: Unusable instances.
        elastic: Launched instances.
        actor: Carries actions out.
        federation: This cluster's jobs on visits, and visiting jobs of other clusters.
        budget_spending: The spending of teams and of the environment.
        changeovers: How long changeovers took.
        anomalies: Finds anomalies.
        scores: The cloud's placement scores.
        waits: Why jobs wait.
    """

    scheduler_id: str
    store: Store
    cloud: Cloud
    manifest_watch: ManifestWatch
    cloud_calls: CloudCalls
    facts: Facts
    ledger: Ledger
    history: History
    faults: Faults
    elastic: ElasticManager
    actor: Actor
    federation: Federation
    budget_spending: BudgetSpending
    changeovers: ChangeoverLog
    anomalies: AnomalyWatch
    scores: Scores
    waits: Waits

    @classmethod
    def build(
        cls, store: Store, manifest: Manifest, cloud: Cloud, scheduler_id: str, peer_access: PeerAccess | None = None
    ) -> "SchedulerServices":
        """Return the services of a scheduler that begins. Nothing is read yet."""
        manifest_watch, history, faults = ManifestWatch(store, manifest), History(store), Faults(store)
        facts, ledger, budget_spending = Facts(), Ledger(store, manifest), BudgetSpending(store)
        actor = Actor(store, history, faults, ledger)
        elastic = ElasticManager(store, cloud, manifest_watch, facts, ledger, scheduler_id)
        federation = Federation(
            store,
            manifest_watch,
            actor,
            history,
            ledger,
            peer_access or default_peer_access(store, manifest),
            lambda: elastic.launched,
        )
        return cls(
            scheduler_id=scheduler_id,
            store=store,
            cloud=cloud,
            manifest_watch=manifest_watch,
            cloud_calls=CloudCalls(cloud, store.clock, manifest.limits.tick_every),
            facts=facts,
            ledger=ledger,
            history=history,
            faults=faults,
            elastic=elastic,
            actor=actor,
            federation=federation,
            budget_spending=budget_spending,
            changeovers=ChangeoverLog(store),
            anomalies=AnomalyWatch(store, scheduler_id, budget_spending, manifest_watch),
            scores=Scores(store.clock),
            waits=Waits(store, scheduler_id),
        )

    def receive_messages(self) -> bool:
        """Receive the cloud's messages, and return whether one of them requires a tick immediately."""
        received = self.cloud.messages()
        self.facts.receive(received, self.store.clock.monotonic())
        return any(m.kind in (MessageKind.WARNING, MessageKind.ENDED) for m in received)

    def recognizes(self, name: str, observation: Observation) -> bool:
        """Return whether an instance is the cluster's, as far as anything says. Messages about others are dropped."""
        launched = name in self.ledger.launches or name in self.elastic.launched
        return launched or name in self.facts.described or name in observation.instances
