"""A forge on this machine: Gitea with SQLite and one runner, which runs a workflow's steps as processes of this user.

Both listen on the loopback address alone. `make review-demo` builds the two programs from their Go modules.
"""

import os
import re
import secrets
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import requests

from everspot_local.demo.world import DemoError

OWNER = "boss"
LABELS = "ubuntu-latest:host"
STARTS_IN = timedelta(minutes=5)
ENDS_IN = timedelta(seconds=30)
_TOKEN = re.compile(r"[A-Za-z0-9]{40}")

_INI = """\
RUN_MODE = prod
WORK_PATH = {folder}
{root}
[server]
HTTP_ADDR = 127.0.0.1
HTTP_PORT = {port}
ROOT_URL = {url}/
STATIC_ROOT_PATH = {static}
DISABLE_SSH = true
OFFLINE_MODE = true
[database]
DB_TYPE = sqlite3
PATH = {folder}/gitea.db
SQLITE_JOURNAL_MODE = WAL
[security]
INSTALL_LOCK = true
SECRET_KEY = {secret}
INTERNAL_TOKEN = {internal}
PASSWORD_HASH_ALGO = pbkdf2_v2
[oauth2]
ENABLED = false
JWT_SECRET = {jwt}
[service]
DISABLE_REGISTRATION = true
[repository]
DEFAULT_BRANCH = main
[actions]
ENABLED = true
DEFAULT_ACTIONS_URL = self
[picture]
DISABLE_GRAVATAR = true
[mailer]
ENABLED = false
[cron.update_checker]
ENABLED = false
[indexer]
ISSUE_INDEXER_TYPE = db
[log]
MODE = file
LEVEL = warn
ROOT_PATH = {folder}/log
"""

_RUNNER = """\
log: {{level: info}}
runner:
  file: {folder}/.runner
  capacity: 1
  env_file: {folder}/runner.env
  timeout: 30m
  fetch_interval: 250ms
  fetch_interval_max: 500ms
  log_report_interval: 500ms
  log_report_max_latency: 200ms
  state_report_interval: 500ms
cache: {{enabled: false}}
host: {{workdir_parent: {folder}/work}}
"""


@dataclass
class Gitea:
    """The forge and its runner.

    Attributes:
        programs: the folder with `gitea`, `gitea-runner` and `static/`.
        folder: the forge's own files and logs.
        runner_variables: environment of the runner's jobs.
        url: of the forge.
        token: of the forge's owner.
        passwords: of its users, by name.
    """

    programs: Path
    folder: Path
    runner_variables: Mapping[str, str] = field(repr=False)
    url: str = ""
    token: str = field(default="", repr=False)
    passwords: dict[str, str] = field(default_factory=dict, repr=False)
    _children: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    def __enter__(self) -> "Gitea":
        self.folder.mkdir(parents=True)
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._write_settings(port)
        self._gitea("migrate")
        self.token = self.user(OWNER, "--admin")
        self._start("gitea", self.programs / "gitea", "web", "--config", self._ini)
        self._wait()
        self._run_jobs()
        return self

    def __exit__(self, *_: object) -> None:
        for child in reversed(self._children):
            child.terminate()
        for child in reversed(self._children):
            try:
                child.wait(ENDS_IN.total_seconds())
            except subprocess.TimeoutExpired:
                child.kill()

    def user(self, name: str, *options: str) -> str:
        """Create a user; returns a token of that user."""
        self.passwords[name] = secrets.token_urlsafe(16)
        user_options = ("--username", name, "--password", self.passwords[name], "--email", f"{name}@forge.test")
        self._gitea("admin", "user", "create", "--must-change-password=false", *options, *user_options)
        token_options = ("generate-access-token", "--username", name, "--scopes", "all", "--raw")
        return _token(self._gitea("admin", "user", *token_options))

    @property
    def _ini(self) -> Path:
        return self.folder / "app.ini"

    def _write_settings(self, port: int) -> None:
        keys = {
            "internal": self._called(self.programs / "gitea", "generate", "secret", "INTERNAL_TOKEN"),
            "jwt": self._called(self.programs / "gitea", "generate", "secret", "JWT_SECRET"),
        }
        text = _INI.format(
            folder=self.folder, port=port, url=self.url, static=self.programs / "static", secret=secrets.token_hex(32),
            root="I_AM_BEING_UNSAFE_RUNNING_AS_ROOT = true" if os.geteuid() == 0 else "", **keys,
        )  # fmt: skip
        self._ini.touch(mode=0o600)
        self._ini.write_text(text)

    def _run_jobs(self) -> None:
        """Register the runner and start it."""
        (self.folder / "runner.env").write_text(
            "".join(f"{name}={value}\n" for name, value in self.runner_variables.items())
        )
        config = self.folder / "runner.yaml"
        config.write_text(_RUNNER.format(folder=self.folder))
        key = _token(self._gitea("actions", "generate-runner-token"))
        program, about = self.programs / "gitea-runner", ("--name", "here", "--labels", LABELS)
        register_command = (
            "register",
            "--no-interactive",
            "--config",
            config,
            "--instance",
            self.url,
            "--token",
            key,
            *about,
        )
        self._called(program, *register_command)
        self._start("runner", program, "daemon", "--config", config)

    def _gitea(self, *words: str) -> str:
        return self._called(self.programs / "gitea", *words, "--config", self._ini)

    def _called(self, *command: str | Path) -> str:
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder, check=False)  # noqa: S603
        if done.returncode:
            raise DemoError(f"`{Path(command[0]).name} {command[1]}`: {done.stdout[-1500:]}{done.stderr[-1500:]}")
        return done.stdout.strip()

    def _start(self, name: str, *command: str | Path) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            environment = {**os.environ, **self.runner_variables}
            started = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, env=environment)  # noqa: S603
        self._children.append(started)

    def _wait(self) -> None:
        until, headers = time.monotonic() + STARTS_IN.total_seconds(), {"Authorization": f"token {self.token}"}
        while time.monotonic() < until:
            if self._children[0].poll() is not None:
                break
            try:
                if requests.get(f"{self.url}/api/v1/user", headers=headers, timeout=5).ok:
                    return
            except requests.RequestException:
                pass
            time.sleep(0.2)
        raise DemoError(f"the forge did not start: {(self.folder / 'gitea.log').read_text()[-2000:]}")


def programs(folder: Path) -> Sequence[Path]:
    """Return the programs that must exist before the forge can start."""
    return [folder / "gitea", folder / "gitea-runner", folder / "static" / "options"]


def _token(output: str) -> str:
    """Find the token in a command's output: on a busy machine it prints warnings of slow queries around it.

    Raises:
        DemoError: if it does not exist.
    """
    tokens = [line.strip() for line in output.splitlines() if _TOKEN.fullmatch(line.strip())]
    if len(tokens) != 1:
        raise DemoError(f"no token in {output[-500:]!r}")
    return tokens[0]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
