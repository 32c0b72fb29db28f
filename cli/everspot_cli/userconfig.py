"""The user's own file of clusters: `$XDG_CONFIG_HOME/everspot/config.toml`, by default below `~/.config`."""

import json
import os
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from everspot_cli.errors import CliError
from everspot_cli.governance.file_output import replace_file

_HEAD = (
    "# The clusters of `everspot cluster use`. Every command talks to the current one unless an option names another.\n"
)


@dataclass(frozen=True)
class KnownCluster:
    """A cluster that the user has named. `profile`: of the cloud's own configuration, for its credentials."""

    name: str
    store: str
    profile: str | None = None


@dataclass(frozen=True)
class UserConfig:
    """The file's content: the clusters by name, and the one in use."""

    current: str | None = None
    clusters: dict[str, KnownCluster] = field(default_factory=dict)

    def with_cluster(self, cluster: KnownCluster) -> "UserConfig":
        """Return a copy with one more cluster, which becomes the current one."""
        return UserConfig(cluster.name, {**self.clusters, cluster.name: cluster})

    def without(self, name: str) -> "UserConfig":
        """Return a copy without a cluster."""
        remaining = {key: cluster for key, cluster in self.clusters.items() if key != name}
        return UserConfig(None if self.current == name else self.current, remaining)


def path() -> Path:
    """Return the path of the file, whether it exists or not. It follows the XDG base directory specification: a
    relative `XDG_CONFIG_HOME` is ignored (https://specifications.freedesktop.org/basedir-spec/latest/)."""
    return base("XDG_CONFIG_HOME", ".config") / "everspot" / "config.toml"


def base(variable: str, fallback: str) -> Path:
    """Return one of the XDG base directories. `fallback`: below the home folder."""
    configured = Path(os.environ.get(variable) or "")
    if configured.is_absolute():
        return configured
    try:
        return Path.home() / fallback
    except RuntimeError:  # no HOME, and no such user: then nothing is found there either
        return Path("/nonexistent", fallback)


def load() -> UserConfig:
    """Return the file's content. Empty if the file does not exist.

    Raises:
        CliError: if it cannot be read.
    """
    try:
        data = tomllib.loads(path().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return UserConfig()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CliError(f"{path()} cannot be read: {error}", hint="correct it, or remove it") from None
    listed = data.get("clusters", {})
    clusters = {str(name): _parse_cluster(str(name), value) for name, value in listed.items()} if _table(listed) else {}
    current = data.get("current")
    return UserConfig(current if isinstance(current, str) else None, clusters)


def save(config: UserConfig) -> None:
    """Write the file, for this user alone, in one step.

    Raises:
        CliError: if it cannot be written.
    """
    lines = [_HEAD, *([f"current = {_quote(config.current)}\n"] if config.current else [])]
    for cluster in config.clusters.values():
        lines.append(f"\n[clusters.{_quote(cluster.name)}]\nstore = {_quote(cluster.store)}\n")
        lines.append(f"profile = {_quote(cluster.profile)}\n" if cluster.profile else "")
    try:
        path().parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(path(), "".join(lines).encode(), mode=0o600)
    except OSError as error:
        raise CliError(f"{path()} cannot be written: {error.strerror or error}") from None


def _quote(text: str) -> str:
    """Return a basic string of TOML, which is escaped like JSON."""
    return json.dumps(text, ensure_ascii=False)


def _table(value: Any) -> bool:
    return isinstance(value, dict)


def _parse_cluster(name: str, value: Any) -> KnownCluster:
    if not _table(value) or not isinstance(value.get("store"), str):
        raise CliError(f"{path()}: clusters.{name} has no text `store`", hint="correct it, or remove it")
    profile = value.get("profile")
    return KnownCluster(name, value["store"], profile if isinstance(profile, str) else None)
