"""Observe: read the store, the cloud and the peers, and build the plan's input."""

from functools import partial

from everspot_scheduler.checkpoint_heads import Heads
from everspot_scheduler.dependencies import Chains
from everspot_scheduler.job_spending import SpentMeter
from everspot_scheduler.observer import Observation, Observer
from everspot_scheduler.phases.part import Tick, TickPart, TickPhase
from everspot_scheduler.phases.services import SchedulerServices
from everspot_scheduler.pools import Pools, choices
from everspot_scheduler.preemptions import Preemptions
from everspot_scheduler.run_conditions import RunConditions
from everspot_scheduler.team_usage import UsageMeter
from everspot_scheduler.view import PlanInputs, notices


class ObservePhase(TickPhase):
    """The first phase of a tick.

    Attributes:
        observer: Reads the store.
        pools: The pools of the plan's input.
    """

    def __init__(self, services: SchedulerServices) -> None:
        store = services.store
        self._services = services
        self.observer = Observer(store, services.manifest_watch)
        self.pools = Pools(services.scores, services.changeovers)
        self._spent = SpentMeter(store.clock, services.ledger, services.manifest_watch.limits.tick_every)
        self._preemptions, self._usage = Preemptions(store), UsageMeter(store)
        self._heads, self._chains, self._conditions = Heads(store), Chains(store), RunConditions(store)
        self._loaded = False
        super().__init__(
            "observe",
            (
                TickPart("stored state", self._load),
                TickPart("messages", self._receive_messages),
                TickPart("manifest", self._refresh_manifest),
                TickPart("tables", self._read_tables),
                TickPart("instances", self._describe_instances),
                TickPart("launch intents", self._read_intents),
                TickPart("launches and ends", self._note_instances),
                TickPart("events missing after a crash", self._make_up_events),
                TickPart("spending of jobs", self._add_up_spending),
                TickPart("visits", self._look_at_visits),
                TickPart("plan inputs", self._build_inputs),
            ),
        )

    def _load(self, tick: Tick) -> None:
        self._services.ledger.load()
        if self._loaded:
            return
        self._services.faults.load()
        self._usage.load()
        self._services.changeovers.load()
        self._services.waits.load()
        self._services.anomalies.load()
        self._loaded = True

    def _receive_messages(self, tick: Tick) -> None:
        self._services.receive_messages()

    def _refresh_manifest(self, tick: Tick) -> None:
        if self._services.manifest_watch.refresh():
            elastic, watch = self._services.elastic.declared, self._services.manifest_watch
            self._services.ledger.declare(
                watch.types, elastic.types if elastic is not None else (), watch.manifest.list_prices
            )

    def _read_tables(self, tick: Tick) -> None:
        tick.observation = self.observer.look()
        self._services.actor.forget_dropped(tick.observation)
        self._services.ledger.histories.forget(tick.observation.records)

    def _describe_instances(self, tick: Tick) -> None:
        facts, observation = self._services.facts, tick.observation
        is_known = partial(self._services.recognizes, observation=observation)
        urgent = facts.has_unknown_instance(observation.instances) or facts.wants_description(is_known)
        self._services.cloud_calls.instances(facts, urgent=urgent)
        facts.understand(is_known)
        facts.record_notices(notices(observation))

    def _read_intents(self, tick: Tick) -> None:
        self._services.elastic.look(tick.observation)

    def _note_instances(self, tick: Tick) -> None:
        self._services.ledger.note_instances(self._services.facts, tick.observation.reports())

    def _make_up_events(self, tick: Tick) -> None:
        self._services.history.make_up(tick.observation)

    def _add_up_spending(self, tick: Tick) -> None:
        self._spent.look(tick.observation)

    def _look_at_visits(self, tick: Tick) -> None:
        spent = {job: (s.dollars, s.gpu_hours) for job, s in self._spent.jobs.items()}
        self._services.federation.look(tick.observation, spent)

    def _build_inputs(self, tick: Tick) -> None:
        services, observation = self._services, tick.observation
        self._chains.look(observation)
        after = self._chains.predecessor_states(observation)
        self._conditions.look(observation, after)
        pools = self.pools.look(services.facts, services.ledger, services.elastic, services.store.clock.now())
        unfinished = (job.value for name, job in observation.jobs.items() if not _is_final(observation, name))
        tick.inputs = PlanInputs(
            facts=services.facts,
            ledger=services.ledger,
            faults=services.faults.records,
            spent=self._spent.jobs,
            losses=self._preemptions.preemption_times(observation.records),
            usage=self._usage.count(observation, services.ledger, pools),
            pools=pools,
            cap_uses=services.budget_spending.look(observation, services.ledger),
            unions=self.pools.unions(choices(unfinished, pools), pools) if services.elastic.active else {},
            elastic_manager=services.elastic,
            changeovers=services.changeovers,
            head_epochs=self._heads.ahead(observation),
            after=after,
            evaluate_run_if=self._conditions.evaluate_run_if,
            same_stage=self._chains.stage_runs(observation),
            withheld=services.waits.withheld,
        )


def _is_final(observation: Observation, job: str) -> bool:
    return job in observation.records and observation.records[job].value.state.final
