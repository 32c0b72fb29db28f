"""Runs of the Pulumi engine: preview, update, refresh, each with its event log. Nothing else starts the engine.

The program that the engine runs is part of the change. So it gets none of the job's permissions at the forge
(`KEPT_BACK`), and the event log is read afterwards, not the terminal's text.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryFile

from everspot_core.documents import format_duration
from everspot_core.validation.yaml_text import load

from everspot_review.errors import UnavailableError
from everspot_review.identity import IdentityError, renew

ENGINE = "pulumi"
PREVIEW_TIMEOUT = timedelta(minutes=30)
"""Longest wait for a preview or a refresh, unless told otherwise."""

UPDATE_TIMEOUT = timedelta(hours=2)
"""Longest wait for an update: clouds take minutes for fleets, networks and databases."""

PACK_TIMEOUT = timedelta(minutes=2)
"""Longest wait for a pack's own answer."""

OWN_PACK = "everspot-policy"
"""The name of our pack's program."""

OWN_SETTINGS = "EVERSPOT_POLICY_SETTINGS"
"""The variable that names our pack's settings."""

BUDGET = "budgetUsdPerMonth"
"""The setting of our pack that has a month's budget."""

BUDGET_RULE = "cost-within-budget"
"""The rule of our pack that compares a month's cost with the budget."""

ALL = "*"
"""The environment of our pack's settings that stands for all."""

STOP_TIMEOUT = timedelta(minutes=5)
"""Time for the engine to finish its present step, once it was asked to stop. It keeps its state and frees its lock."""

TOKEN_RENEWAL = timedelta(minutes=3)
"""Time after which identity tokens are renewed while the engine runs: GitHub's are good for five minutes."""

QUOTED_CHARACTERS = 16_000
"""Characters of the engine's last words that are kept."""

KEPT_BACK = (
    "GITHUB_TOKEN", "GH_TOKEN", "GITEA_TOKEN", "ACTIONS_RUNTIME_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
    "ACTIONS_ID_TOKEN_REQUEST_URL", "GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STATE",
    "GITHUB_STEP_SUMMARY",
)  # fmt: skip
"""Variables of the job that the program of a change must not have: with them it could write the comment itself, or say
what the steps after it run. The job's scripts keep the same ones from the building of its packages."""

QUIET = {"PULUMI_DEBUG_COMMANDS": "true", "PULUMI_SKIP_UPDATE_CHECK": "true", "PULUMI_SUPPRESS_COPILOT_LINK": "true"}
"""The first is what makes the engine take --event-log (pulumi/pkg, cmd/pulumi/operations)."""


class EngineError(UnavailableError):
    """The engine cannot be run, or not as asked; a sentence for people."""


@dataclass(frozen=True)
class Ended:
    """A run of the engine that has ended.

    Attributes:
        code: Its exit code.
        pid: The engine's process id.
        output: The end of its output.
        late: Whether it was stopped at its time limit.
        killed: Whether it had to be killed, so that it freed no lock.
    """

    code: int
    pid: int
    output: str
    late: bool = False
    killed: bool = False


@dataclass(frozen=True)
class Engine:
    """The engine upon one project. `packs`: folders of the rules, which come from elsewhere than from the change;
    `variables`: the environment that it is run in; `ends_in`: time to stop when asked; `renews_in`: after which
    identity tokens are renewed."""

    project: Path
    program: str
    packs: tuple[Path, ...] = ()
    variables: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)
    ends_in: timedelta = STOP_TIMEOUT
    renews_in: timedelta = TOKEN_RENEWAL

    @classmethod
    def find(cls, project: Path, packs: Sequence[Path] = (), variables: Mapping[str, str] = os.environ) -> "Engine":
        """Return the engine on PATH.

        Raises:
            EngineError: if there is no engine, no project, or no such pack.
        """
        program = shutil.which(ENGINE, path=variables.get("PATH"))
        if program is None:
            raise EngineError(f"{ENGINE} is not on PATH: install it (https://www.pulumi.com/docs/install)")
        if not (project / "Pulumi.yaml").is_file():
            raise EngineError(
                f"{project} has no Pulumi.yaml: run it in the project's folder, or name it with --project"
            )
        programs = {pack: _pack(pack, variables.get("PATH")) for pack in packs}
        lacking = [str(pack) for pack, place in programs.items() if place is None]
        if lacking:
            words = "a program, such as everspot-policy, or a folder with PulumiPolicy.yaml"
            raise EngineError(f"no policy pack: {', '.join(lacking)} ({words})")
        judges = tuple(place.resolve() for place in programs.values() if place is not None)
        environ = dict(variables)
        if rules := environ.get(OWN_SETTINGS):  # a pack is started in another folder than the one that this is said in
            environ[OWN_SETTINGS] = str(Path(rules).absolute())
        return cls(project.resolve(), program, judges, environ)

    def preview(self, environment: str, log: Path, limit: timedelta = PREVIEW_TIMEOUT) -> Ended:
        """Return the result of a preview, with the steps of an update in the event log. Takes no lock."""
        return self._run("preview", environment, log, limit, *self._judges())

    def up(self, environment: str, log: Path, limit: timedelta = UPDATE_TIMEOUT) -> Ended:
        """Update, without a preview: the caller has made one."""
        return self._run("up", environment, log, limit, "--yes", "--skip-preview", *self._judges())

    def refresh(self, environment: str, log: Path, limit: timedelta = PREVIEW_TIMEOUT) -> Ended:
        """Return the result of a refresh, with the drift in the event log. Changes nothing and takes no lock."""
        return self._run("refresh", environment, log, limit, "--preview-only", "--expect-no-changes")

    def over_budget(self, environment: str, high: float) -> list[str]:
        """Return our pack's findings on a month's cost of at most `high` USD, after a preview: lines of an event log.
        Empty without our pack, or if the budget holds.

        Raises:
            EngineError: if the pack does not answer.
        """
        events: list[str] = []
        for pack in (each for each in self.packs if each.name == OWN_PACK):
            ended, out = self._call(["cost", environment, f"{high:.2f}"], PACK_TIMEOUT, str(pack))
            if ended.code:
                raise EngineError(f"{pack} does not judge the cost: {ended.output or f'exit code {ended.code}'}")
            events += [json.dumps(event) for event in json.loads(out)]
        return events

    @property
    def judges_budgets(self) -> bool:
        """Whether our pack is among the packs. It is known by the name of its program."""
        return any(pack.name == OWN_PACK for pack in self.packs)

    def has_budget(self, environment: str) -> bool:
        """Return whether our pack's settings give an environment a budget, even if the pack is missing. The pack itself
        reports mistakes in the settings."""
        try:
            settings = load(Path(self.variables[OWN_SETTINGS]).read_text(encoding="utf-8"), strict=False)
        except (KeyError, OSError, ValueError):
            return False
        by_environment = settings.get("environments") if isinstance(settings, dict) else None
        own = [by_environment.get(name) for name in (environment, ALL)] if isinstance(by_environment, dict) else []
        return any(isinstance(section, dict) and section.get(BUDGET) is not None for section in own)

    def resources(self, environment: str) -> int:
        """Return how many resources a stack has; 0 where there is no such stack.

        Raises:
            EngineError: if the backend cannot be read.
        """
        for stack in json.loads(self.query("stack", "ls", "--json")):
            if str(stack["name"]).rsplit("/", 1)[-1] == environment:
                count = stack.get("resourceCount")
                return int(count) if count is not None else self._counted(environment)
        return 0

    def _counted(self, environment: str) -> int:
        """Return the number of resources in a state, for backends whose list of stacks does not have it."""
        deployment = self.state(environment).get("deployment")
        return len(deployment.get("resources") or ()) if isinstance(deployment, dict) else 0

    def state(self, environment: str) -> dict[str, object]:
        """Return a stack's stored state: secrets are ciphertext.

        Raises:
            EngineError: if there is no state.
        """
        return dict(json.loads(self.query("stack", "export", f"--stack={environment}")))

    def cancel(self, environment: str) -> None:
        """Free a stack's lock. Only for a lock whose holder is known to be gone."""
        self.query("cancel", "--yes", f"--stack={environment}")

    def holders(self, environment: str) -> str:
        """Return the engine's message about the holders of a stack's lock. The engine gets a command that does nothing:
        it looks for a resource that does not exist once it holds the lock."""
        nobody = f"urn:pulumi:{environment}::nothing::nothing:nothing:Nothing::nothing"
        return self._call(["refresh", "--yes", "--skip-preview", f"--stack={environment}", f"--target={nobody}",
                           "--non-interactive", "--color", "never"], timedelta(minutes=2))[0].output  # fmt: skip

    def query(self, *arguments: str) -> str:
        """Return the engine's answer to a command that runs no program.

        Raises:
            EngineError: with its words, if it fails or does not answer in two minutes.
        """
        ended, out = self._call([*arguments, "--non-interactive", "--color", "never"], timedelta(minutes=2))
        if ended.code:
            raise EngineError(f"pulumi {arguments[0]}: {ended.output.strip() or f'exit code {ended.code}'}")
        return out

    def _run(self, verb: str, environment: str, log: Path, limit: timedelta, *options: str) -> Ended:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        where = [f"--stack={environment}", "--event-log", str(log.resolve())]
        how = ["--non-interactive", "--color", "never", "--suppress-outputs", "--suppress-permalink"]
        return self._call([verb, *where, *how, *options], limit)[0]

    def _judges(self) -> list[str]:
        return [argument for pack in self.packs for argument in ("--policy-pack", str(pack))]

    def _call(self, arguments: list[str], limit: timedelta, program: str = "") -> tuple[Ended, str]:
        renew(self.variables)
        environ = {name: value for name, value in self.variables.items() if name not in KEPT_BACK}
        with TemporaryFile() as out, TemporaryFile() as err:
            process = subprocess.Popen(  # noqa: S603 - our own words, no shell
                [program or self.program, *arguments], cwd=Path(program).parent if program else self.project,
                env={**environ, **QUIET}, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
            )  # fmt: skip
            late = killed = False
            try:
                self._waited(process, limit)
            except subprocess.TimeoutExpired:
                late, killed = True, _stopped(process, self.ends_in)
            except BaseException:  # a job that is cancelled: the engine gets to end its step and to free its lock
                _stopped(process, self.ends_in)
                raise
            stdout, more = _text(out), _text(err)
        if late:
            more += f"\nstopped: it had not ended within {format_duration(limit)}"
        output = (more.strip() or stdout.strip()) if arguments[0] == "stack" else f"{stdout}\n{more}".strip()
        return Ended(process.returncode, process.pid, output[-QUOTED_CHARACTERS:], late, killed), stdout

    def _waited(self, process: "subprocess.Popen[bytes]", limit: timedelta) -> None:
        """Wait for a run, and renew identity tokens meanwhile: a cloud's credentials last an hour, and then its client
        reads the token file again.

        Raises:
            TimeoutExpired: if the run takes longer than its limit.
        """
        ends = time.monotonic() + limit.total_seconds()
        while True:
            remaining = ends - time.monotonic()
            try:
                process.wait(max(0.0, min(remaining, self.renews_in.total_seconds())))
                return
            except subprocess.TimeoutExpired:
                if remaining <= self.renews_in.total_seconds():
                    raise
            with suppress(IdentityError):  # the next one may be had, and an update that is cut off is worse
                renew(self.variables)


def _pack(pack: Path, path: str | None) -> Path | None:
    """Return where a pack is: a program on PATH, a program by its path, or a folder; None if it is nowhere."""
    if pack.is_file() or (pack / "PulumiPolicy.yaml").is_file():
        return pack
    program = shutil.which(str(pack), path=path) if pack.name == str(pack) else None
    return Path(program) if program else None


def _stopped(process: "subprocess.Popen[bytes]", ends_in: timedelta) -> bool:
    """Ask a run to stop, as Ctrl-C does, and kill it and all that it started if it does not. Whether it was killed."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(ends_in.total_seconds())
        return False
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True


def _text(file: object) -> str:
    file.seek(0)  # type: ignore[attr-defined]
    return str(file.read().decode(errors="replace"))  # type: ignore[attr-defined]
