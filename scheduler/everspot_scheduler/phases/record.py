"""Record: write the observed events to the store, for later ticks and for users."""

from functools import partial

from everspot_clouds.base import CloudInstance, Message, MessageKind
from everspot_core.cluster.boot import boot_deadline

from everspot_scheduler.missed_instances import note_unseen
from everspot_scheduler.notifier import Notifier
from everspot_scheduler.phases.part import Tick, TickPart, TickPhase
from everspot_scheduler.phases.services import SchedulerServices
from everspot_scheduler.recurring import RecurringJobs
from everspot_scheduler.retire import Retirement


class RecordPhase(TickPhase):
    """The fourth phase of a tick."""

    def __init__(self, services: SchedulerServices) -> None:
        self._services = services
        self._notifier = Notifier(services.store, services.manifest_watch, services.cloud)
        self._recurring = RecurringJobs(services.store, services.scheduler_id)
        self._retirement = Retirement(services.store, services.manifest_watch, self._notifier.is_pending)
        super().__init__(
            "record",
            (
                TickPart("missed instances", self._note_missed),
                TickPart("silent instances", self._look_for_silent),
                TickPart("prices", self._note_prices),
                TickPart("placement scores", self._ask_for_scores),
                TickPart("messages", self._acknowledge),
                TickPart("anomalies", self._look_for_anomalies, best_effort=True),
                TickPart("notifications", self._notify, best_effort=True),
                TickPart("changeovers", self._note_changeovers),
                TickPart("series", self._submit_next_runs),
                TickPart("retirement", self._retire),
            ),
        )

    def _note_missed(self, tick: Tick) -> None:
        services = self._services
        note_unseen(
            services.ledger,
            services.store.clock,
            services.facts,
            tick.observation.instances,
            services.elastic.launched,
        )

    def _look_for_silent(self, tick: Tick) -> None:
        services = self._services
        generation = services.manifest_watch.manifest.generation
        services.faults.look_for_silent(services.facts, tick.observation.instances, self._is_late, generation)

    def _is_late(self, instance: CloudInstance) -> bool:
        """Return whether an instance has lived for longer than it may take to report."""
        clock, kind = self._services.store.clock, self._services.ledger.catalogue.types.get(instance.instance_type)
        lived = (instance.ended_at or clock.now()) - instance.launched_at
        limits = self._services.manifest_watch.limits
        return clock.to_real(lived) >= boot_deadline(limits, instance.instance_type, kind.gpus if kind else 0)

    def _note_prices(self, tick: Tick) -> None:
        self._services.cloud_calls.prices(self._services.ledger, self._services.elastic)

    def _ask_for_scores(self, tick: Tick) -> None:
        services, waiting = self._services, len(tick.waiting_jobs) + len(tick.launches)
        request = services.scores.score_request(
            services.elastic.declared, waiting, tick.observation.owned(), services.ledger.catalogue
        )
        services.cloud_calls.scores(services.scores, request)

    def _acknowledge(self, tick: Tick) -> None:
        """Delete the messages whose meaning is in the store from the queue."""
        services, observation = self._services, tick.observation
        owned = observation.owned()

        def written(message: Message) -> bool:
            name = message.instance_id
            ended = name in services.ledger.ends and name not in owned
            if message.kind is MessageKind.WARNING:
                assignment = observation.assignments.get(name)
                return ended or services.facts.is_gone(name) or (assignment is not None and assignment.value.cordoned)
            return ended if message.kind in (MessageKind.ENDING, MessageKind.ENDED) else True

        done = services.facts.acknowledgeable(partial(services.recognizes, observation=observation), written)
        if done:
            services.cloud_calls.acknowledge(done)

    def _look_for_anomalies(self, tick: Tick) -> None:
        services = self._services
        services.anomalies.look(tick.view, tick.observation, services.ledger, services.facts.described.values())

    def _notify(self, tick: Tick) -> None:
        self._notifier.look(tick.observation, self._services.anomalies.unusual.open)

    def _note_changeovers(self, tick: Tick) -> None:
        self._services.changeovers.look(tick.observation, self._services.ledger, self._services.elastic)

    def _submit_next_runs(self, tick: Tick) -> None:
        self._recurring.go_on(tick.observation)

    def _retire(self, tick: Tick) -> None:
        self._retirement.retire(tick.observation, self._services.facts, self._services.ledger)
