"""One rehearsal: undisturbed runs, then one run for each place of interruption, and the answer."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from everspot_core.jobs.job import JobSpec

from everspot_train.agent.hardware import Hardware
from everspot_train.rehearsal_orders import REHEARSAL_VARIABLE, Orders
from everspot_train.rehearse import advice, compare
from everspot_train.rehearse.answer import Answer, Difference, Leftover, PlaceResult, RehearsalVerdict
from everspot_train.rehearse.cluster import RehearsalCluster, RehearsalError
from everspot_train.rehearse.compare import FirstDifference, UnstableEntries
from everspot_train.rehearse.files import Trees, matters
from everspot_train.rehearse.library import Played, Player, RehearsedAttempt
from everspot_train.rehearse.places import PLACES, InterruptionPlace, list_places
from everspot_train.rehearse.plain import LOST_FILE, PlainPlayer, rehearse_plain
from everspot_train.rehearse.records import read_records

_OTHER_OUTPUT = "the training is exact; the file depends on something that is not restored"
_LOST_OUTPUT = (
    "the training is exact; an attempt that ends without notice loses what it wrote to outputs/: write the file into "
    "the folder EVERSPOT_CHECKPOINT_DIR, which each checkpoint holds, or at the end of the program"
)

ShowProgress = Callable[[str, int, int], None]
"""A function that shows the name of the current run, its number and the number of runs."""


@dataclass(frozen=True)
class Job:
    """The job of a rehearsal.

    Attributes:
        code: the folder of the program; None for a recipe.
        steps: of each run; None: the trainer's default.
        limit: the longest time of one attempt.
        places: the only places, by name; None for all.
    """

    spec: JobSpec
    code: Path | None
    steps: int | None
    limit: timedelta
    places: list[str] | None = None


def rehearse(
    job: Job, root: Path, hardware: Hardware, environ: Mapping[str, str], show_progress: ShowProgress
) -> Answer:
    """Rehearse a job. All its files are written below `root`."""
    processes = job.spec.process_count
    try:
        cluster = RehearsalCluster(root, hardware, environ)
        record = root / "records" / "0.jsonl"
        Orders(job.steps).write(record)
        show_progress("undisturbed", 1, 2 + len(PLACES))
        plain = PlainPlayer(cluster, job.spec, job.code, job.limit)
        run = plain.play([], {REHEARSAL_VARIABLE: str(record)})
        if run.failure:
            return Answer(RehearsalVerdict.FAILED, message=run.failure, output=run.output, processes=processes)
        records = read_records(record)
        if not records:
            return replace(rehearse_plain(plain, run, show_progress, job.places), processes=processes)
        first = Played([RehearsedAttempt(records)], folder=run.folder)
        player = Player(cluster, job.spec, job.code, job.limit)
        return _Rehearsal(player, first, show_progress, job.places).answer(processes)
    except RehearsalError as error:
        return Answer(RehearsalVerdict.FAILED, message=str(error), processes=processes)


class _Rehearsal:
    """The rehearsal of a program that uses the trainer library, after its first undisturbed run."""

    def __init__(self, player: Player, first: Played, show_progress: ShowProgress, only: list[str] | None) -> None:
        self._player, self._first, self._show_progress, self._only = player, first, show_progress, only
        self._record = first.attempts[0].records[0]
        self._steps = self._record.steps
        self._unstable = UnstableEntries()
        self._deterministic = True
        self._trees: Trees | None = None
        self._lost_files: dict[str, Leftover] = {}

    def answer(self, processes: int) -> Answer:
        """Run the remaining runs, and return the result."""
        if self._steps == 0:
            message = "it made no optimizer step: does its loop go over run.batches(…) and call run.step(loss)?"
            return Answer(RehearsalVerdict.FAILED, message=message, processes=processes)
        places = [p for p in list_places(self._record) if self._only is None or p.name in self._only]
        runs = 2 + sum(bool(place.interruptions) for place in places)
        self._show_progress("undisturbed, again", 2, runs)
        second = self._player.play([], self._steps)
        if second.failure:
            message = f"its second undisturbed run fails: {second.failure}"
            return Answer(RehearsalVerdict.FAILED, message=message, output=second.output, processes=processes)
        self._unstable, undisturbed = compare.unstable_between(self._first, second)
        self._deterministic = undisturbed is None
        if self._first.folder is not None and second.folder is not None:
            self._trees = Trees(self._first.folder / "outputs", second.folder / "outputs")
        played: dict[str, Played] = {}
        for place in places:
            if place.interruptions:
                self._show_progress(place.name, 3 + len(played), runs)
                played[place.name] = self._player.play(place.interruptions, self._steps)
        results = [self._result(place, played.get(place.name)) for place in places]
        if undisturbed is None and any(result.verdict is RehearsalVerdict.DIFFERS for result in results):
            self._show_progress("undisturbed, to be sure", runs, runs)
            undisturbed = self._look_again()
            self._deterministic = undisturbed is None
            if undisturbed is not None:
                results = [self._result(place, played.get(place.name)) for place in places]
        leftovers = self._leftovers(played, results)
        exact = undisturbed is None and all(
            r.verdict in (RehearsalVerdict.EXACT, RehearsalVerdict.NOT_REACHED) for r in results
        )
        return Answer(
            RehearsalVerdict.EXACT if exact else RehearsalVerdict.DIFFERS,
            steps=self._steps,
            processes=processes,
            undisturbed=_readable_difference(undisturbed, [], advice.of_undisturbed(undisturbed))
            if undisturbed
            else None,
            places=results,
            leftovers=leftovers,
            ignored=self._unstable.names,
        )

    def _look_again(self) -> FirstDifference | None:
        """Compare with a third undisturbed run, to detect that the script itself is not deterministic."""
        third = self._player.play([], self._steps)
        if third.failure:
            return None
        unstable, difference = compare.unstable_between(self._first, third)
        for (rank, kind, name), step in unstable.since.items():
            self._unstable.note(rank, kind, name, step)
        return difference

    def _result(self, place: InterruptionPlace, played: Played | None) -> PlaceResult:
        if played is None:
            return PlaceResult(place.name, RehearsalVerdict.NOT_REACHED, message=place.missing)
        step = place.interruptions[0].step
        step = self._steps if step is None else step
        first = compare.first_difference(self._first, played, self._unstable)
        if first is None and not played.failure:
            lost = self._lost_weights(played) or self._file_difference(played)
            if lost is None:
                words = "" if self._deterministic else "as far as two undisturbed runs are the same"
                return PlaceResult(place.name, RehearsalVerdict.EXACT, step, message=words)
            return PlaceResult(place.name, RehearsalVerdict.DIFFERS, step, lost)
        if played.failure and (first is None or first.kind == "step"):
            fix = "the resumed program fails, the undisturbed one did not: see the message"
            difference = Difference("error", "", step, expected="no error", actual=played.failure[-400:], fix=fix)
            return PlaceResult(place.name, RehearsalVerdict.DIFFERS, step, difference, played.failure)
        assert first is not None  # noqa: S101  one of the two is there
        variables = compare.unrestored(first, self._unstable)
        moving = compare.changing(self._first, first.rank)
        variables = [variable for variable in variables if variable[0] in moving]
        cause, fix = advice.advise(first, variables, self._record.loader)
        return PlaceResult(place.name, RehearsalVerdict.DIFFERS, step, _readable_difference(first, cause, fix))

    def _lost_weights(self, played: Played) -> Difference | None:
        """Return an untracked model or average of weights, which is lost although no result depends on it yet."""
        shapes = compare.weight_shapes(self._first)
        for rank, name, expected, actual in compare.lost_variables(self._first, played, self._unstable):
            weights = expected.startswith("weights|") and not expected.startswith("weights|float32[]")
            same_shape = expected.startswith("tensor|") and compare.parse_shape(advice.readable(expected)) in shapes
            if weights or same_shape:
                texts = advice.readable(expected), advice.readable(actual)
                fix = advice.of_leftover(name, expected, actual)
                return Difference("variable", name, self._steps, rank, *texts, [name], fix)
        return None

    def _file_difference(self, played: Played) -> Difference | None:
        """Return the first difference between the results in `outputs/`."""
        if self._trees is None or played.folder is None:
            return None
        for path, entry in self._trees.differences(played.folder / "outputs"):
            if matters(path, entry):
                fix = _LOST_OUTPUT if (entry.name, entry.actual) == ("", "missing") else _OTHER_OUTPUT
                return Difference(
                    "file", f"outputs/{path} {entry.name}".strip(), None, 0, entry.expected, entry.actual, [], fix
                )
            self._lost_files[path] = Leftover(f"outputs/{path}", entry.expected, entry.actual, LOST_FILE)
        return None

    def _leftovers(self, played: Mapping[str, Played], results: list[PlaceResult]) -> list[Leftover]:
        exact = {result.place for result in results if result.verdict is RehearsalVerdict.EXACT}
        by_name: dict[str, Leftover] = {}
        for place, run in played.items():
            if place not in exact:
                continue
            for _, name, expected, actual in compare.lost_variables(self._first, run, self._unstable):
                texts = advice.readable(expected), advice.readable(actual)
                by_name.setdefault(name, Leftover(name, *texts, advice.of_leftover(name, expected, actual)))
        by_name |= self._lost_files
        return sorted(by_name.values(), key=lambda leftover: ("generator" not in leftover.fix, leftover.name))


def _readable_difference(first: FirstDifference, cause: list[str], fix: str) -> Difference:
    expected, actual = advice.readable(first.expected), advice.readable(first.actual)
    return Difference(first.kind, first.name, first.step, first.rank, expected, actual, cause, fix)


def short_root() -> Path:
    """Make a folder with a short path, for sockets."""
    return Path(tempfile.mkdtemp(prefix="es-", dir="/tmp"))
