"""Real programs under real agents are struck at random moments, again and again. In the end they have computed what an
undisturbed run computes, and no attempt began before the one that it followed.

The ordinary suite strikes seven times: the agent and the writer of the trainer library among them.
`tests/trainer/test_trainer_accidents.py` strikes ranks, writers and storage.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from agent_helpers import Cluster, Proc, eventually, market_in
from everspot_core.jobs.records import EventKind, JobState, Reason

PROGRAMS = Path(__file__).parent / "programs"
LONG = 900.0
PLAIN = ("safetensors", "heeding")
"""Programs without torch, whose attempts are cheap."""
TORCH = (("transformers", 1), ("transformers", 2), ("lightning", 1), ("accelerate", 1), ("dcp", 1))
KINDS = ("program", "machine", "agent", "drill", "notice", "shutdown")
ENDED = (JobState.PENDING, JobState.SUCCEEDED, JobState.FAILED)


@dataclass
class Attack:
    """A job that is struck at random moments.

    Attributes:
        framework: how the program saves.
        steps: its length. It must last longer than all strikes.
        longest: real seconds of an attempt before it is struck, at most.
        dice: choose moments and kinds.
        processes: of the program. With several, one of them may be killed alone.
        kinds: of strikes. None comes a second time before all others have come.
        strikes: how many there were of each kind.
        began: the step at which each attempt began.
        saved: the step that a stopped program has reported as saved.
    """

    cluster: Cluster
    framework: str
    steps: int
    longest: float
    dice: random.Random
    processes: int = 1
    kinds: tuple[str, ...] = KINDS
    strikes: Counter[str] = field(default_factory=Counter)
    began: list[int] = field(default_factory=list)
    saved: int | None = None
    _deck: list[str] = field(default_factory=list)
    _number: int = 0
    _agent: Proc | None = None

    @property
    def agent(self) -> Proc:
        assert self._agent is not None
        return self._agent

    @property
    def instance(self) -> str:
        return f"i-{self._number}"

    @property
    def env(self) -> dict[str, str]:
        program = {"FRAMEWORK": self.framework, "STEPS": f"{self.steps}", "EVERY": "5", "PAUSE": "0.05"}
        return {**program, "HURRY": str(self._hurry), "OMP_NUM_THREADS": "1"}

    @property
    def _hurry(self) -> Path:
        """The file that makes the program run without pauses, after the last kill."""
        return self.cluster.root / "hurry"

    def run(self, strikes: int) -> None:
        """Run the job to its end, with at least so many strikes."""
        spec = {
            "checkpoint": {"every": "5s"},
            "retries": {"errors": 1000, "backoff": "1s", "from_zero": 1000},
            "resources": {"vcpus": self.processes},
            "processes": self.processes,
        }
        self.cluster.submit("job-1", PROGRAMS, name="endure", entrypoint=["endure.py"], env=self.env, **spec)
        state = JobState.PENDING
        while state is JobState.PENDING:
            self._take_up()
            if self.strikes.total() < strikes:
                self._strike()
            if self.strikes.total() >= strikes:
                self._hurry.touch()
            state = self.cluster.wait_state("job-1", *ENDED, seconds=LONG).state
        assert state is JobState.SUCCEEDED, (self.cluster.record("job-1"), self.printed()[-20:])
        assert self.strikes.total() >= strikes, f"the program is too short for {strikes} strikes: {self.strikes}"

    def printed(self) -> list[str]:
        return b"".join(chunk.data for chunk in self.cluster.store.read_logs("job-1")).decode().splitlines()

    def _take_up(self) -> None:
        if self._agent is None or self._agent.popen.poll() is not None:
            self._number += 1
            self._agent = self.cluster.start_agent(self.instance, EVERSPOT_LAUNCHER="")
        self.cluster.assign("job-1", self.instance)
        self._await_beginning()
        if self.saved is not None and not self._is_over():
            assert self.began[-1] == self.saved, (self.began, self.strikes)
        self.saved = None

    def _await_beginning(self) -> None:
        eventually("the program begins", lambda: self._beginning() is not None or self._is_over(), LONG)
        began = self._beginning()
        if began is not None:  # else it was over before anybody looked
            assert began >= max(self.began, default=0), (
                f"kept work was lost: {began} after {self.began}, {self.strikes}"
            )
            self.began.append(began)

    def _beginning(self) -> int | None:
        """Return the step at which the present attempt began, once it has said so."""
        return next((int(line.split()[2]) for line in self._output() if line.startswith("began at ")), None)

    def _output(self) -> list[str]:
        """Return what the present attempt has printed."""
        runs = sorted(self.agent.home.glob("runs/job-1-*/output.log"))
        return [line for path in runs[-1:] for line in path.read_text().splitlines()]

    def _await_save(self) -> None:
        """Wait until the program begins its next save, or is over."""
        before = self._output().count("saves")
        eventually("it saves", lambda: self._output().count("saves") > before or self._has_ended(), LONG)

    def _has_ended(self) -> bool:
        """Return whether the attempt is over, or about to be."""
        return self._is_over() or any(line.startswith(("weights ", "stopped at ")) for line in self._output())

    def _is_over(self) -> bool:
        record = self.cluster.record("job-1")
        return record is not None and record.state in ENDED

    def _strike(self) -> None:
        """Wait for a random moment, half of the time within a save or right after it, and strike in a random way."""
        time.sleep(self.dice.uniform(0, self.longest))
        if self.dice.random() < 0.5:
            self._await_save()
            time.sleep(self.dice.choice([0, 0.05, 0.5]) * self.dice.random())
        if self._is_over():
            return
        self._deck = self._deck or list((*self.kinds, "rank") if self.processes > 1 else self.kinds)
        kind = self._deck.pop(self.dice.randrange(len(self._deck)))
        self.strikes[kind] += 1
        match kind:
            case "program":
                self._kill(self._processes(b"endure.py"))
            case "rank":
                self._kill(self.dice.sample(self._processes(b"endure.py"), 1))
            case "writer":
                self._kill(self._processes(b"everspot_train.writer"))
                self.cluster.stop(self.instance, Reason.DRILL)
                self._note_saved()
            case "machine":
                self.agent.end()
                if not self._is_over():
                    self.cluster.expire("job-1")
            case "agent":
                self.agent.popen.kill()
                self.agent.wait()
                self._agent = self.cluster.start_agent(self.instance, EVERSPOT_LAUNCHER="")
                self._await_beginning()
                self._strike()  # the same attempt, under the next agent
            case "drill":
                self.cluster.stop(self.instance, Reason.DRILL)
                self._note_saved()
            case "notice":
                deadline = market_in(self.dice.uniform(3, 12))
                self.cluster.stop(self.instance, Reason.NOTICE, cordoned=True, deadline=deadline)
                self.cluster.wait_state("job-1", *ENDED, seconds=LONG)
                self.agent.end()
            case "shutdown":
                self.agent.popen.send_signal(signal.SIGTERM)
                self.agent.wait(LONG)
                self._note_saved()

    def _note_saved(self) -> None:
        self.cluster.wait_state("job-1", *ENDED, seconds=LONG)
        lines = [line for line in self.printed() if line.startswith(("began at ", "stopped at "))]
        self.saved = int(lines[-1].split()[2]) if lines and lines[-1].startswith("stopped at ") else None

    def _processes(self, words: bytes) -> list[int]:
        """Return the processes of the present attempt whose command has these words."""
        pids = []
        for pid in self.agent.tree():
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:  # it has just ended
                continue
            if words in command:
                pids.append(pid)
        return pids

    @staticmethod
    def _kill(pids: list[int]) -> None:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def undisturbed(folder: Path, env: dict[str, str], processes: int) -> list[str]:
    """What a run prints that nobody strikes."""
    folder.mkdir()
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []
    command = [sys.executable, *launcher, str(PROGRAMS / "endure.py")]
    whole = {**os.environ, **env, "PAUSE": "0"}
    return subprocess.run(
        command, cwd=folder, env=whole, capture_output=True, text=True, check=True
    ).stdout.splitlines()


def losses(lines: list[str]) -> dict[int, str]:
    """The losses by step. A step that was computed more than once had the same loss each time."""
    by_step: dict[int, str] = {}
    for line in lines:
        if line.startswith("step ") and " loss " in line:
            _, step, _, loss = line.split()
            assert by_step.setdefault(int(step), loss) == loss, f"step {step}: {loss} and {by_step[int(step)]}"
    return by_step


def digest(lines: list[str]) -> str:
    (line,) = {line for line in lines if line.startswith("weights ")}
    return line


def attack(
    cluster: Cluster,
    framework: str,
    strikes: int,
    steps: int,
    longest: float,
    processes: int = 1,
    seed: int = 1,
    kinds: tuple[str, ...] = KINDS,
) -> None:
    """Strike a program `strikes` times, and compare it with an undisturbed run."""
    struck = Attack(cluster, framework, steps, longest, random.Random(f"{framework} {seed}"), processes, kinds)
    calm = undisturbed(cluster.root / "undisturbed", struck.env, processes)
    struck.run(strikes)
    lines = struck.printed()
    print(framework, dict(struck.strikes), struck.began)

    if processes == 1:  # a rank whose neighbour was killed ends with an exception
        assert not any(line.startswith("Traceback") for line in lines), "\n".join(lines)
    expected, computed = losses(calm), losses(lines)
    # What was printed right before a machine was lost is not in the log.
    assert computed == {step: expected[step] for step in computed}
    assert digest(lines) == digest(calm)
    record = cluster.record("job-1")
    assert record is not None and record.errors <= struck.strikes["program"] + struck.strikes["rank"]
    assert not cluster.events("job-1", EventKind.FELL_BACK)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("framework", ["safetensors", pytest.param("heeding", marks=pytest.mark.nightly)])
def test_after_random_kills_a_program_without_torch_has_computed_what_it_computes_undisturbed(
    cluster: Cluster, framework: str
) -> None:
    attack(cluster, framework, strikes=5, steps=500, longest=2)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("framework", PLAIN)
def test_after_many_random_kills(cluster: Cluster, framework: str) -> None:
    attack(cluster, framework, strikes=60, steps=6000, longest=3, seed=2)


@pytest.mark.torch
@pytest.mark.timeout(3600)
def test_after_kills_of_agent_and_writer_the_trainer_library_has_computed_what_it_computes_undisturbed(
    cluster: Cluster,
) -> None:
    attack(cluster, "everspot", strikes=2, steps=300, longest=1, seed=1, kinds=("agent", "writer"))


@pytest.mark.nightly
@pytest.mark.torch
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("processes", [1, 2])
def test_after_random_kills_the_trainer_library_has_computed_what_it_computes_undisturbed(
    cluster: Cluster, processes: int
) -> None:
    attack(cluster, "everspot", 21, 3000, 3, processes, seed=5, kinds=("writer", *KINDS))


# The library above is struck at random in each run; tests/agent/test_agent_frameworks.py kills dcp inside a save.
@pytest.mark.nightly
@pytest.mark.torch
@pytest.mark.timeout(3600)
def test_after_a_few_random_kills_a_framework_has_computed_what_it_computes_undisturbed(cluster: Cluster) -> None:
    attack(cluster, "dcp", strikes=3, steps=400, longest=2, seed=3)


@pytest.mark.nightly
@pytest.mark.torch
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("framework", "processes"), TORCH)
def test_after_random_kills_a_framework_has_computed_what_it_computes_undisturbed(
    cluster: Cluster, framework: str, processes: int
) -> None:
    attack(cluster, framework, strikes=20, steps=3000, longest=5, processes=processes)
