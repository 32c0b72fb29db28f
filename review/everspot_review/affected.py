"""Finds the environments that a change affects: those whose file it edits, and all of them if it could change the
program."""

import posixpath
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

from everspot_core.validation.yaml_text import BadYaml, load

from everspot_review.errors import ReviewError

IGNORED_FILES = (
    "*.md", "docs/*", "tests/*", ".github/*", ".gitea/*", ".gitignore", ".editorconfig", ".pre-commit-config.yaml",
    "LICENSE",
)  # fmt: skip
"""Patterns of files that no environment depends on. Any other changed file counts as the program: one preview too many
costs a minute, and one too few is a change that nobody has seen."""

NO_REVISION = "0" * 40
"""The "before" revision in the event of a branch's first push."""


STACK_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
"""The names that a stack may have."""


NAMES_ALLOWED = "letters, digits, _, . and - are allowed"


def is_misnamed(environment: str) -> bool:
    """Return whether this is no legal name of a stack."""
    return STACK_NAME.fullmatch(environment) is None


class ChangeError(ReviewError):
    """The affected environments cannot be determined; a sentence for people."""


@dataclass(frozen=True)
class AffectedEnvironments:
    """The environments that a change affects.

    Attributes:
        environments: in the order in which they are applied.
        removed: the environments whose file no longer exists.
        program: the changed files that affect all environments, empty if only their own files were edited.
    """

    environments: tuple[str, ...]
    removed: tuple[str, ...]
    program: tuple[str, ...]


@dataclass(frozen=True)
class Project:
    """A Pulumi project in a git repository. `settings`: the folder of its `Pulumi.<environment>.yaml`, from the
    repository's root; `name`: the namespace of its own settings."""

    root: Path
    settings: str
    name: str

    @classmethod
    def read(cls, root: Path) -> "Project":
        """Return the project in a folder.

        Raises:
            ChangeError: if there is no project, or it cannot be read.
        """
        try:
            text = (root / "Pulumi.yaml").read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ChangeError(f"{root / 'Pulumi.yaml'} cannot be read: {error}") from None
        return cls(root, *_settings(root, text))

    def environment(self, path: str) -> str | None:
        """Return the environment that a file of the repository is the settings of."""
        folder, _, name = path.rpartition("/")
        fits = (
            folder == self.settings and name.startswith("Pulumi.") and name.endswith(".yaml") and name != "Pulumi.yaml"
        )
        return name.removeprefix("Pulumi.").removesuffix(".yaml") if fits else None

    def file(self, environment: str) -> Path:
        """Return the settings file of an environment."""
        return _top(self.root) / self.settings / f"Pulumi.{environment}.yaml"

    def text_at(self, environment: str, base: str) -> str | None:
        """Return the settings of an environment at the revision that HEAD and `base` have in common; None if it had
        none."""
        common = git(self.root, "merge-base", base, "HEAD").strip()
        path = f"{self.settings}/Pulumi.{environment}.yaml".lstrip("/")
        if not git(self.root, "ls-tree", "--full-tree", "--name-only", "-z", common, path):
            return None
        return git(self.root, "show", f"{common}:{path}")

    def environments(self) -> list[str]:
        """Return all environments, in the order in which they are applied: resources that an account has once come
        before clusters, which refer to them, and the account's bootstrap first."""
        settings_files = list((_top(self.root) / self.settings).glob("Pulumi.*.yaml"))
        names = [
            name for path in settings_files if (name := self.environment(f"{self.settings}/{path.name}".lstrip("/")))
        ]
        return sorted(names, key=lambda name: (self._has_cluster(name), not self.is_applied_by_admin(name), name))

    def find_affected(
        self, base: str, ignored_files: Sequence[str] = (), *, misnamed: bool = False
    ) -> AffectedEnvironments:
        """Return what has changed since the revision that HEAD and `base` have in common. `ignored_files`: patterns of
        files that no program reads, beside `IGNORED_FILES`; `misnamed`: whether to include
        environments whose name no stack may have.

        Raises:
            ChangeError: if git cannot say, or an environment is misnamed.
        """
        everything = tuple(self.environments())
        misnamed_environments = [name for name in everything if is_misnamed(name)]
        if misnamed_environments and not misnamed:
            raise ChangeError(f"no names of stacks: {', '.join(map(repr, misnamed_environments))}: {NAMES_ALLOWED}")
        if not base.strip("0 "):  # no revision: zeros, as many as the repository's names have digits
            return AffectedEnvironments(everything, (), ("(no revision to compare with)",))
        files = _files(self.root, base)
        own = {name for path in files if (name := self.environment(path))}
        elsewhere = [path for path in files if fnmatch(posixpath.basename(path), "Pulumi.*.yaml")]
        if elsewhere and not (own or everything):
            raise ChangeError(
                f"the change edits {elsewhere[0]}, and there are no settings in "
                f"{self.settings or 'the root of the repository'}, where {self.root / 'Pulumi.yaml'} has them: correct "
                "its stackConfigDir, or --project"
            )
        program = tuple(
            path
            for path in files
            if self.environment(path) is None and not any(fnmatch(path, p) for p in (*IGNORED_FILES, *ignored_files))
        )
        affected = everything if program else tuple(name for name in everything if name in own)
        return AffectedEnvironments(affected, tuple(sorted(self._before(base) - set(everything))), program)

    def uncommitted(self) -> list[str]:
        """Files among the settings that differ from HEAD, which `find_affected` leaves out: from the repository's root.

        Raises:
            ChangeError: if git cannot say.
        """
        where = f":(top,literal){self.settings}" if self.settings else ":(top,glob)Pulumi.*.yaml"
        status = git(self.root, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", where)
        return sorted(entry[3:] for entry in status.split("\0") if entry)

    def _before(self, base: str) -> set[str]:
        """Return the environments at the revision that HEAD and `base` have in common, wherever their settings lay
        then."""
        common = git(self.root, "merge-base", base, "HEAD").strip()
        inside = git(self.root, "rev-parse", "--show-prefix").strip()
        listed = git(self.root, "ls-tree", "--name-only", "-z", common, f"{inside}Pulumi.yaml")
        if not listed:
            return set()
        earlier = Project(self.root, *_settings(self.root, git(self.root, "show", f"{common}:{inside}Pulumi.yaml")))
        folder = [f"{earlier.settings}/"] if earlier.settings else []
        files = git(self.root, "ls-tree", "--full-tree", "--name-only", "-z", common, *folder).split("\0")
        return {name for path in files if (name := earlier.environment(path))}

    def revision(self, name: str) -> str:
        """Return the full name of a revision.

        Raises:
            ChangeError: if git knows none of this name.
        """
        if name.startswith("-"):
            raise ChangeError(f"{name!r} is no revision")
        return git(self.root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").strip()

    def behind(self, base: str) -> int:
        """Return how many commits of a revision HEAD has not."""
        return int(git(self.root, "rev-list", "--count", f"HEAD..{self.revision(base)}"))

    def is_applied_by_admin(self, name: str) -> bool:
        """Return whether an administrator applies an environment, because it creates the limits of the jobs
        themselves."""
        return "bootstrap" in (self._sections(name) or ())

    def _has_cluster(self, name: str) -> bool:
        sections = self._sections(name)
        return sections is None or "cluster" in sections or not {"account", "bootstrap"} & sections

    def _sections(self, name: str) -> set[str] | None:
        """Return the project's own sections that an environment declares; None if its file cannot be read: the preview
        reports the reason."""
        try:
            declared: Any = load(self.file(name).read_text(encoding="utf-8"), strict=False)
        except (OSError, UnicodeDecodeError, BadYaml):
            return None
        config = declared.get("config") if isinstance(declared, dict) else None
        keys: Iterable[str] = config if isinstance(config, dict) else ()
        own = f"{self.name}:"
        return {str(key).removeprefix(own) for key in keys if str(key).startswith(own)}


def _settings(root: Path, text: str) -> tuple[str, str]:
    """Return the folder of the settings that a Pulumi.yaml names, from the repository's root, and the project's name.

    Raises:
        ChangeError: if it cannot be read, or the folder is outside of the repository.
    """
    try:
        declared: Any = load(text, strict=False)
    except BadYaml as error:
        raise ChangeError(f"Pulumi.yaml {error}") from None
    fields = declared if isinstance(declared, dict) else {}
    inside = root.resolve().relative_to(_top(root).resolve()).as_posix()
    # As the engine joins them: pulumi/sdk, go/common/workspace/paths.go.
    folder = posixpath.normpath(f"{inside}/{fields.get('stackConfigDir') or ''}")
    if folder.startswith(".."):
        raise ChangeError(f"{root / 'Pulumi.yaml'}: stackConfigDir is outside of the repository")
    return "" if folder == "." else folder, str(fields.get("name") or "")


def _files(root: Path, base: str) -> list[str]:
    """Return the files that differ. A renamed one is two: its old name, which is gone, and its new one."""
    if base.startswith("-"):
        raise ChangeError(f"{base!r} is no revision")
    output = git(root, "diff", "--name-only", "--no-renames", "-z", f"{base}...HEAD", "--")
    return sorted(name for name in output.split("\0") if name)


def _top(root: Path) -> Path:
    """Return the root of the repository that a folder is in."""
    return _read_top(root.resolve())


@cache
def _read_top(folder: Path) -> Path:
    """Return the root of a repository. A command needs it a dozen times, and git takes milliseconds to name it."""
    return Path(git(folder, "rev-parse", "--show-toplevel").rstrip("\n"))


def git(root: Path, *arguments: str, errors: str = "surrogateescape") -> str:
    """Return the output of git. `errors`: how to decode bytes that are no UTF-8, such as those of a file's name.

    Raises:
        ChangeError: if it fails or cannot be run.
    """
    return git_output(root, *arguments).decode(errors=errors)  # here: a pipe of text would make each CR a new line


def git_output(root: Path, *arguments: str) -> bytes:
    """Return the output of git, in bytes.

    Raises:
        ChangeError: if it fails or cannot be run.
    """
    try:
        done = subprocess.run(  # noqa: S603 - our own words, no shell
            ["git", *arguments], cwd=root, capture_output=True, check=False, timeout=120,  # noqa: S607
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ChangeError(f"git cannot be run: {error}") from None
    if done.returncode:
        message = f"git {arguments[0]}: {' '.join(done.stderr.decode(errors='replace').split())[:300]}"
        if arguments[0] == "rev-parse":  # there is no repository; more history would not help
            raise ChangeError(f"{message}; run it in a clone of the repository, or name one with --project")
        raise ChangeError(f"{message}; fetch the whole history (checkout's `fetch-depth: 0`)")
    return done.stdout
