"""Rehearses a program that does not use the trainer library: by its folder `checkpoints/`, its files and its log.

It is interrupted when it has written a checkpoint: with a notice (SIGTERM, then the cloud's time) or without one
(SIGKILL, once the agent has published the checkpoint). The files and logs of the resumed run are compared with those of
an undisturbed run.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from everspot_core.jobs.job import JobSpec
from everspot_core.jobs.records import JobRecord, JobState
from everspot_store import CheckpointCorrupt

from everspot_train.agent.logs import OUTPUT
from everspot_train.rehearse.answer import Answer, Difference, Leftover, PlaceResult, RehearsalVerdict
from everspot_train.rehearse.cluster import Instance, RehearsalCluster, RehearsalError
from everspot_train.rehearse.files import Trees, matters
from everspot_train.rehearse.logs import (
    LogLine,
    first_log_difference,
    first_position,
    log_lines,
    unstable_numbers,
    usual_key,
)
from everspot_train.rehearse.saves import LEAST_QUIET, QUIET_SECONDS, SaveWatcher, frozen
from everspot_train.rundir import COMPLETE_MARKER, RunContext, RunDir, StopRequest

FIRST, SECOND = "after its first checkpoint, with notice", "after its second checkpoint, with notice"
SUDDEN, TWICE = "after its first checkpoint, without notice", "twice in a row, with notice"
PLACES = {FIRST: [(1, True)], SECOND: [(2, True)], SUDDEN: [(1, False)], TWICE: [(1, True), (1, True)]}
"""For each place the interrupted attempts: the number of an attempt's saves before the interruption, and whether there
is a notice."""
_NOTICE_SECONDS = 60.0
_SLICES = ((0.0, 28.0), (0.02, 8.0), (0.04, 8.0), (0.08, 8.0), (0.16, 8.0), (0.32, 60.0))
"""Seconds for which a program runs, and is then stopped, until the agent has published a checkpoint. It may have been
stopped within a save. The first stop is longer than `artifacts.assess.REST`, after which loose files count."""
_TRIES = 3
_STOPPED_SECONDS = 0.4  # from stop.json to the signal, which the agent sends in one step

ShowProgress = Callable[[str, int, int], None]
Tear = tuple[int, bool]


@dataclass(frozen=True)
class PlainRun:
    """One run of a program, over all its attempts.

    Attributes:
        folder: its files, in `checkpoints/` and `outputs/`.
        logs: its lines with a step, by attempt.
        watchers: the watchers of its saves, by attempt.
        failure: how it failed; empty if it ended well.
        missed: whether it ended before it could be interrupted.
        published: whether the agent had published a checkpoint before each interruption; if not, `output` has the
            reason.
        seconds: the time from its first save to its end.
    """

    folder: Path
    logs: list[list[LogLine]] = field(default_factory=list)
    watchers: list[SaveWatcher] = field(default_factory=list)
    failure: str = ""
    output: str = ""
    missed: bool = False
    published: bool = True
    seconds: float = 0.0


class PlainPlayer:
    """Runs one plain program repeatedly. `limit`: the longest time of one attempt."""

    def __init__(self, cluster: RehearsalCluster, spec: JobSpec, code: Path | None, limit: timedelta) -> None:
        self._cluster, self._spec, self._code, self._limit = cluster, spec, code, limit
        self._runs = 0
        self.quiet = QUIET_SECONDS

    def play(self, tears: list[Tear], environ: Mapping[str, str] | None = None) -> PlainRun:
        """Run the program with these interruptions, one per attempt. `environ`: additional environment variables."""
        self._runs += 1
        job_id = f"p{self._runs}"
        self._cluster.submit(job_id, self._spec, self._code)
        run = PlainRun(self._cluster.root / "left" / job_id)
        for tear in [*tears, None]:
            began = time.monotonic()
            attempt = _PlainAttempt(self._cluster, job_id, self.quiet, tear)
            seed = str(self._runs * 10 + len(run.watchers))  # fixes the order of sets of texts, in each attempt another
            record = attempt.run(self._limit, {"PYTHONHASHSEED": seed, **(environ or {})})
            run.watchers.append(attempt.watcher)
            seconds = time.monotonic() - (attempt.watcher.began or began)
            logs = self._logs(job_id)
            if not attempt.published:
                return PlainRun(
                    run.folder, logs, run.watchers, published=False, output=self._cluster.why_not_kept(job_id)
                )
            if record is not None and record.state is JobState.FAILED:
                detail = record.detail.strip() or "it failed"
                return PlainRun(run.folder, logs, run.watchers, detail, self._cluster.output(job_id))
            if record is not None and record.state is JobState.SUCCEEDED:
                self._fetch(job_id, run.folder)
                return PlainRun(run.folder, logs, run.watchers, missed=tear is not None, seconds=seconds)
        return PlainRun(run.folder, self._logs(job_id), run.watchers, "it stopped although nobody asked it to")

    def _logs(self, job_id: str) -> list[list[LogLine]]:
        by_epoch: dict[int, bytes] = {}
        for chunk in self._cluster.store.read_logs(job_id):
            by_epoch[chunk.epoch] = by_epoch.get(chunk.epoch, b"") + chunk.data
        return [
            log_lines(by_epoch.get(epoch + 1, b"").decode(errors="replace"))
            for epoch in range(max(by_epoch, default=0))
        ]

    def _fetch(self, job_id: str, folder: Path) -> None:
        """Fetch the job's files, as a user would."""
        (folder / "checkpoints").mkdir(parents=True)
        try:
            self._cluster.fetch_checkpoint(job_id, folder / "checkpoints")
        except CheckpointCorrupt as error:
            raise RehearsalError(f"its last checkpoint cannot be read: {error}") from error
        self._cluster.fetch_outputs(job_id, folder)


class _PlainAttempt:
    """One attempt. `tear`: the number of saves after which it is interrupted, and whether with notice; None lets it run
    to its end."""

    def __init__(self, cluster: RehearsalCluster, job_id: str, quiet: float, tear: Tear | None) -> None:
        self._cluster, self._job_id, self._tear = cluster, job_id, tear
        self.watcher = SaveWatcher(Path("/nonexistent"), quiet)
        self.published = True
        self._run_dir: Path | None = None
        self._done = False
        self._tries = 1
        self._durable = cluster.durable_step(job_id)

    def run(self, limit: timedelta, environ: dict[str, str]) -> JobRecord | None:
        """Run the attempt. Returns the job's record after it, or None if its machine died."""
        with self._cluster.instance(self._job_id, environ) as instance:
            self._home = instance.home
            try:
                record = self._cluster.wait(instance, self._job_id, limit, lambda: self._look(instance))
            except TimeoutError:
                raise RehearsalError(
                    f"one run takes longer than {limit}: rehearse it with smaller settings, as arguments after "
                    "`--` or by --set and --env, or with a longer --timeout"
                ) from None
        if record is None:
            self._cluster.expire(self._job_id)
        return record

    def _look(self, instance: Instance) -> bool:
        if self._run_dir is None:
            run_dir = next(iter((self._home / "runs").glob(f"{self._job_id}-*")), None)
            if run_dir is None:
                return False
            context = RunDir(run_dir).read(RunContext)
            if context is None or context.code_dir is None:
                return False
            self._run_dir, self.watcher.folder = run_dir, Path(context.code_dir, "checkpoints")
        if not (self._run_dir / OUTPUT).exists():  # the program creates it: before that, files are restored
            return False
        self.watcher.look()
        if self._tear is None or self._done or self.watcher.saves < self._tear[0]:
            return False
        self._done = True
        for go_on, wait in _SLICES:
            time.sleep(go_on)
            with frozen(self._run_dir):
                self.published = self._wait_until_kept(wait)
            if self.published:
                break
        with frozen(self._run_dir):
            if (
                not self.published and self._tries < _TRIES
            ):  # stopped within a write: let the program finish it and write once more
                self._tries, self._done = self._tries + 1, False
                self._tear = (self.watcher.saves + 1, self._tear[1])
                return False
            if self._tear[1]:
                self._warn(instance, self._run_dir)
            return not self._tear[1]

    def _warn(self, instance: Instance, run_dir: Path) -> None:
        instance.notify()
        end = time.monotonic() + _NOTICE_SECONDS
        while not (run_dir / StopRequest.file_name).exists():
            instance.check()
            if time.monotonic() > end:
                raise RehearsalError("the agent did not pass the notice on")
            time.sleep(0.02)
        time.sleep(_STOPPED_SECONDS)

    def _wait_until_kept(self, seconds: float) -> bool:
        """Wait until the agent has published a checkpoint of this attempt, as is true before most interruptions."""
        end = time.monotonic() + seconds
        while self._cluster.durable_step(self._job_id) == self._durable:
            if time.monotonic() > end:
                return False
            time.sleep(0.1)
        return True


def rehearse_plain(player: PlainPlayer, first: PlainRun, show_progress: ShowProgress, only: list[str] | None) -> Answer:
    """Rehearse a program that does not use the trainer library, after its first undisturbed run."""
    places = {name: tears for name, tears in PLACES.items() if only is None or name in only}
    if not first.watchers[0].written:
        message = (
            "it does not use the trainer library and wrote nothing into its folder checkpoints/ "
            "(EVERSPOT_CHECKPOINT_DIR): each interruption would begin from zero"
        )
        fix = "write checkpoints into this folder and load the newest when it starts, or use the trainer library"
        difference = Difference("step", "", expected="goes on", actual="begins from zero", fix=fix)
        rows = [PlaceResult(name, RehearsalVerdict.DIFFERS, difference=difference) for name in places]
        return Answer(RehearsalVerdict.DIFFERS, library=False, places=rows, message=message)
    player.quiet = min(QUIET_SECONDS, max(LEAST_QUIET, first.seconds / 40))
    show_progress("undisturbed, again", 2, 2 + len(places))
    judge = _Judge(first, player.play([]))
    results = []
    for number, (name, tears) in enumerate(places.items()):
        show_progress(name, 3 + number, 2 + len(places))
        results.append(judge.result(name, player.play(tears)))
    undisturbed = judge.undisturbed()
    reached = [result for result in results if result.verdict is not RehearsalVerdict.NOT_REACHED]
    exact = undisturbed is None and bool(reached) and all(r.verdict is RehearsalVerdict.EXACT for r in reached)
    message = "" if reached else "it ended before it could be interrupted: give it more work"
    return Answer(
        RehearsalVerdict.EXACT if exact else RehearsalVerdict.DIFFERS,
        library=False,
        undisturbed=undisturbed,
        places=results,
        leftovers=judge.leftovers,
        ignored=judge.ignored,
        message=message,
    )


class _Judge:
    """Compares runs with the first undisturbed run, without the differences between two undisturbed runs."""

    def __init__(self, first: PlainRun, second: PlainRun) -> None:
        self._first, self._twin = first, second
        self._trees = Trees(first.folder, second.folder)
        self._lines = first.logs[0] if first.logs else []
        self._unstable_numbers = unstable_numbers(self._lines, second.logs[0] if second.logs else [])
        self.leftovers: list[Leftover] = []

    @property
    def ignored(self) -> list[str]:
        """The differences between the undisturbed runs, which are not compared."""
        return [f"file {path} {name}".strip() for path, names in self._trees.unstable.items() for name in sorted(names)]

    def undisturbed(self) -> Difference | None:
        """Return the first difference between the undisturbed runs that affects the training."""
        if self._twin.failure:
            return Difference("error", "", actual=self._twin.failure[-400:], fix="it fails when it is run again")
        for path, entry in self._trees.undisturbed:
            if matters(path, entry):
                name = f"{path} {entry.name}".strip()
                return Difference("file", name, expected=entry.expected, actual=entry.actual, fix=_UNSTABLE)
        return None

    def result(self, place: str, run: PlainRun) -> PlaceResult:
        """Judge one interrupted run."""
        if run.missed:
            return PlaceResult(place, RehearsalVerdict.NOT_REACHED, message="the program was over before")
        if self._came_last(run):
            words = "it was interrupted after its last checkpoint only: give it more work"
            return PlaceResult(place, RehearsalVerdict.NOT_REACHED, message=words)
        if not run.published:
            fix = (
                f"write each checkpoint under another name and rename it, or touch `{COMPLETE_MARKER}` in its folder "
                "after its last file: docs/reference/agent.md lists what the agent keeps"
            )
            actual = f"not kept ({run.output})" if run.output else "not kept"
            difference = Difference("file", "checkpoints/", expected="kept by the agent", actual=actual, fix=fix)
            return PlaceResult(place, RehearsalVerdict.DIFFERS, difference=difference)
        if run.failure:
            fix = "the resumed program fails, the undisturbed one did not: can it read each checkpoint that it writes?"
            difference = Difference("error", "", expected="no error", actual=run.failure[-400:], fix=fix)
            return PlaceResult(place, RehearsalVerdict.DIFFERS, difference=difference, message=run.failure)
        first = self._start_over(run) or self._log_difference(run) or self._file_difference(run.folder)
        if first is None and not self._comparable():
            first = Difference("file", "", expected="something to compare", actual="nothing", fix=_NOTHING)
        return PlaceResult(place, RehearsalVerdict.DIFFERS if first else RehearsalVerdict.EXACT, difference=first)

    def _came_last(self, run: PlainRun) -> bool:
        """Return whether an interruption came after the program's last checkpoint."""
        reference, interrupted = self._twin.watchers[0], run.watchers[:-1]
        names = [path.partition("/")[0] for path in reference.written]
        if names and names[-1] != names[0]:  # each checkpoint has its own name
            return any(path.partition("/")[0] == names[-1] for watcher in interrupted for path in watcher.written)
        return sum(watcher.total for watcher in interrupted) >= reference.total > 1

    def _comparable(self) -> bool:
        """Return whether the undisturbed runs agree in any result: numbers of the log, or a file with numbers."""
        steady = {
            (line.form, place)
            for line in self._lines
            for place in range(len(line.numbers))
            if (line.form, place) not in self._unstable_numbers
        }
        numbers = {
            number for line in self._lines for place, number in enumerate(line.numbers) if (line.form, place) in steady
        }
        positions = {f"{value:g}" for line in self._lines for value in line.position}
        return bool(numbers - positions) or self._trees.comparable()

    def _start_over(self, run: PlainRun) -> Difference | None:
        """Return a difference if the last attempt began from zero although a checkpoint existed."""
        fix = (
            "it begins from zero: have it load the newest checkpoint in the folder checkpoints/ "
            "(EVERSPOT_CHECKPOINT_DIR) when it starts"
        )
        key = usual_key(self._lines)
        lines = run.logs[-1] if run.logs else []
        if key is not None and (start := first_position(self._lines, key)) is not None:
            again = first_position(lines, key)
            if again is not None and again <= start:
                return Difference("step", "", expected="goes on", actual=f"begins at {key} {_shown(again)}", fix=fix)
            return None
        reference, last = self._twin.watchers[0], run.watchers[-1]  # both counted saves by the same pause
        if last.total >= reference.total and set(reference.written[:1]) <= set(last.written):
            return Difference("step", "", expected="goes on", actual="writes all its checkpoints again", fix=fix)
        return None

    def _log_difference(self, run: PlainRun) -> Difference | None:
        for lines in run.logs:
            log_difference = first_log_difference(self._lines, lines, self._unstable_numbers)
            if log_difference is not None:
                line, expected, actual = log_difference
                name = f"at {line.key} {_shown(line.position)}"
                return Difference("log", name, expected=expected, actual=actual, fix=_STATE)
        return None

    def _file_difference(self, folder: Path) -> Difference | None:
        for path, entry in self._trees.differences(folder):
            if matters(path, entry):
                name = f"{path} {entry.name}".strip()
                return Difference("file", name, expected=entry.expected, actual=entry.actual, fix=_STATE)
            self.leftovers.append(Leftover(path, entry.expected, entry.actual, LOST_FILE))
        return None


LOST_FILE = "this file differs after an interruption: an attempt begins with what was kept of the one before"
_UNSTABLE = (
    "two undisturbed runs differ: seed every generator before the model is made; use neither the time, hash() nor the "
    "order of a set; on a GPU call torch.use_deterministic_algorithms(True)"
)
_NOTHING = (
    "two undisturbed runs differ in all their files, so nothing shows whether the resumed run is exact: print the "
    "loss of each step (step=7 loss=0.5), or write safetensors, torch or JSON files"
)
_STATE = (
    "the resumed run is not the undisturbed one: its checkpoint lacks something that the next step depends on "
    "(optimizer, schedule, random states, position in the data), or it is loaded too late"
)


def _shown(position: tuple[float, ...]) -> str:
    return ", ".join(f"{value:g}" for value in position)
