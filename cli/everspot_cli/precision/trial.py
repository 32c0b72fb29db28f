"""Runs the winner of a comparison on a smaller type, and checks that it fits and reaches the same metric."""

import re
from dataclasses import dataclass

from everspot_core.capacity.catalogue import InstanceType, UnknownInstanceType
from everspot_core.experiments.precision_comparison import ComparisonSpec
from everspot_core.jobs.fit import Shape, lacking
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import JobState
from everspot_core.jobs.smaller_types import needed_resources

from everspot_cli.errors import CliError
from everspot_cli.job_results import compute_spending, read_dossiers
from everspot_cli.precision.runner import NOTHING, Arm, ArmRun, ComparisonRun
from everspot_cli.session import Session


@dataclass(frozen=True)
class TypeTrial:
    """The run of the winner on another type.

    Attributes:
        difference: of the metric from the winner's own run with the same seed; None until there is one.
        problems: why the type does not hold the winner; empty if it does, or as long as the run goes on.
    """

    instance_type: str
    run: ArmRun
    difference: float | None
    problems: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether the run has succeeded on this type with the same metric."""
        return self.run.state is JobState.SUCCEEDED and not self.problems


class TypeTrialRun:
    """One trial of a type.

    Args:
        winner: the arm to run.
        name: of the type.

    Raises:
        CliError: if there is no such type in the catalogue or in the cluster, or it does not hold the winner.
    """

    def __init__(
        self, session: Session, spec: ComparisonSpec, comparison: ComparisonRun, winner: Arm, name: str
    ) -> None:
        self._session, self._spec, self._comparison, self._winner = session, spec, comparison, winner
        self._type = find_type(session, name)
        self._job_id = self._choose_job_id(f"{spec.name}-try-{re.sub('[^a-z0-9]+', '-', name.lower())}")

    def _choose_job_id(self, unqualified: str) -> str:
        """Return the id of the job, which contains the winner's format. Earlier releases left the format out: such a
        job counts if it ran in this format."""
        dossier = read_dossiers(self._session, [unqualified]).get(unqualified)
        if dossier is not None and dossier.submission.spec.precision is self._winner.precision:
            return unqualified
        return f"{unqualified}-{self._winner.precision.value}"

    def build(self) -> JobSubmission:
        """Return the job: the winner's with the first seed, on this type alone.

        Raises:
            CliError: if the type does not hold what the winner was measured to need.
        """
        kind, winner = self._type, self._winner
        declared = self._comparison.build(winner.precision, 0).spec.resources
        needed = needed_resources(declared, winner.footprint)
        needed = needed.model_copy(
            update={
                "vcpus": min(needed.vcpus, kind.vcpus),
                "gpu": kind.gpu if needed.gpus else None,
                "instance_types": (kind.name,),
            }
        )
        if lacks := lacking(needed, Shape.from_machine(kind)):
            raise CliError(
                f"{kind.name} does not hold {winner.precision.value}: it has too little of {', '.join(lacks)}",
                hint="`everspot ab … --show` lists the types that hold it",
            )
        more = {f"resources.{name}": value for name, value in needed.model_dump(mode="json").items()}
        return self._comparison.build(winner.precision, 0, job_id=self._job_id, more=more)

    def turn(self) -> TypeTrial:
        """Submit the job unless it exists, and read it."""
        dossier = read_dossiers(self._session, [self._job_id]).get(self._job_id)
        if dossier is None:
            self._comparison.submit(self.build())
        else:
            self._comparison.refuse_mixed({self._job_id: dossier})
            spending = compute_spending(self._session, {self._job_id: dossier})
        cost = spending.get(self._job_id, NOTHING) if dossier is not None else NOTHING
        run = self._comparison.read_run(self._winner.precision, 0, self._job_id, dossier, cost)
        before = self._winner.runs[0].value
        difference = run.value - before if run.value is not None and before is not None else None
        return TypeTrial(self._type.name, run, difference, tuple(self._problems(run, difference)))

    def _problems(self, run: ArmRun, difference: float | None) -> list[str]:
        if not run.state.final:
            return []
        if run.state is not JobState.SUCCEEDED:
            return [f"{run.job_id} ended as {run.state.value}: `everspot job {run.job_id}` says why"]
        problems = []
        if run.instance_type != self._type.name:
            problems.append(f"{run.job_id} ran on {run.instance_type}, which the cluster preferred")
        if difference is None:
            was = "diverged: its last value is not finite, of" if run.diverged else "never reported"
            problems.append(f"{run.job_id} {was} {self._spec.metric}")
        else:
            tolerance = self._spec.tolerance.absolute(self._winner.runs[0].value or 0.0)
            if abs(difference) > tolerance:
                problems.append(
                    f"{self._spec.metric} differs by {difference:+.4g} from the same run on the larger type, "
                    f"and {tolerance:.4g} is tolerated"
                )
        return problems


def find_type(session: Session, name: str) -> InstanceType:
    """Return the type for a trial.

    Raises:
        CliError: if the catalogue or the cluster has no such type.
    """
    try:
        kind = session.catalogue.get(name)
    except UnknownInstanceType as error:
        raise CliError(f"--try: {error}") from None
    fleet = session.manifest.fleet
    if fleet is not None and name not in fleet.types:
        raise CliError(
            f"--try: the cluster has no {name}",
            hint=f"it has {', '.join(fleet.types)}; declare the type in its settings",
        )
    return kind
