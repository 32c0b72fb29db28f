"""Checks an environment's settings file without running anything: whether it is valid, and its cost."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from everspot_clouds.estimating import Environment, estimated
from everspot_clouds.estimating import environment as environment_of
from everspot_core.estimate.model import Estimate
from everspot_core.validation.problems import BadInputs
from everspot_core.validation.yaml_text import BadYaml, load

from everspot_review.affected import NAMES_ALLOWED, is_misnamed
from everspot_review.leaks import RULE, Leak, leaks_of_settings, redacted
from everspot_review.markdown.money import change
from everspot_review.markdown.safe import visible

SECTIONS = ("config", "secretsprovider", "encryptionsalt", "encryptedkey", "environment")
"""The keys of a settings file that the engine reads (pulumi/sdk, workspace/project.go, `ProjectStack`)."""

LARGEST = 1 << 20
MOST_VALUES = 200_000


@dataclass(frozen=True)
class Checked:
    """A settings file that was looked at. `problems`: all that is wrong with it, in sentences; `price`: of a month,
    before and after the change, where Everspot's own settings say it; `estimate`: the same as numbers; `leaks`: the
    credentials in it, which are among the problems."""

    problems: tuple[str, ...]
    price: str = ""
    estimate: Estimate | None = None
    leaks: tuple[Leak, ...] = ()

    @property
    def uncounted(self) -> tuple[str, ...]:
        """Costs that are not in the price, in sentences: they depend on the image, which only the preview reads."""
        return self.estimate.unknown if self.estimate is not None else ()

    def figures(self) -> dict[str, Any] | None:
        """Return the price for programs: USD a month, null for unknown amounts, and the costs that are not in it."""
        if self.estimate is None:
            return None
        sides = {"before": self.estimate.before, "after": self.estimate.after}
        known_sides = {name: side if side is None or not side.nothing_known else None for name, side in sides.items()}
        usd = {name: side and side.total.model_dump(mode="json") for name, side in known_sides.items()}
        return {**usd, "uncounted": list(self.uncounted)}


def checked(environment: str, path: Path, before: str | None, project: str) -> Checked:
    """Look at a settings file. `before`: the text that it had before the change, None if there was none; `project`: the
    project's name."""
    leaks = _leaks(path)
    wrong = problems(path)
    if is_misnamed(environment):
        wrong.insert(0, f"the file's name names no stack: {NAMES_ALLOWED}")
    try:
        after = _declared(environment, path.read_text(encoding="utf-8"), project)
    except BadInputs as bad:
        wrong += [f"{problem.path}: {problem.reason}" for problem in bad.problems]
    except (BadYaml, OSError, UnicodeDecodeError):
        pass  # `problems` reports it
    if wrong or leaks:
        values = [value for leak in leaks for value in leak.values]
        return Checked((*map(str, leaks), *(redacted(each, values) for each in wrong)), leaks=leaks)
    if not after.resources:
        return Checked(())
    try:
        was = _declared(environment, before, project).resources if before is not None else ()
    except (BadInputs, BadYaml):
        was = None  # it was wrong before, and what it cost is not known
    estimate = estimated(was, after.resources, regions=after.regions)
    return Checked((), change(estimate).strip("`"), estimate)


def _leaks(path: Path) -> tuple[Leak, ...]:
    """Return the credentials in a file; none if the file is no settings file, which `problems` reports."""
    try:
        if path.is_symlink() or path.stat().st_size > LARGEST:
            return ()
        return tuple(leaks_of_settings(path.read_text(encoding="utf-8", errors="replace")))
    except OSError:
        return ()


def render_lines(
    checked_files: Mapping[str, Checked],
    removed: Iterable[str],
    leaks: Mapping[str, Sequence[Leak]] = MappingProxyType({}),
    price_changes: Sequence[str] = (),
) -> list[str]:
    """Return the result as lines for people.

    Args:
        checked_files: The checked settings files by environment.
        removed: The environments whose file is deleted.
        leaks: The credentials in other files, by file.
        price_changes: What the change does to the project's price tables, in sentences.
    """
    checked_files = {visible(name): each for name, each in checked_files.items()}
    lines = [f"{visible(file)}: {leak}" for file, each in leaks.items() for leak in each]
    lines += [f"Pulumi.{name}.yaml: {text}" for name, each in checked_files.items() for text in each.problems]
    lines += [f"{name}: a month is expected to cost {each.price}" for name, each in checked_files.items() if each.price]
    lines += [f"{name}: beside this figure: {text}" for name, each in checked_files.items() for text in each.uncounted]
    lines += [
        f"{name}: the file is right" for name, each in checked_files.items() if not each.problems and not each.price
    ]
    lines += [f"Pulumi.{visible(name)}.yaml is deleted: its stack has to be empty" for name in removed]
    return lines + [visible(text) for text in price_changes]


def build_document(
    checked_files: Mapping[str, Checked],
    removed: Iterable[str],
    leaks: Mapping[str, Sequence[Leak]] = MappingProxyType({}),
    price_changes: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the findings, for programs."""
    credentials = [(f"Pulumi.{name}.yaml", leak) for name, each in checked_files.items() for leak in each.leaks]
    credentials += [(file, leak) for file, each in leaks.items() for leak in each]
    return {
        "credentials": [
            {"file": file, "line": leak.line, "kinds": list(leak.kinds), "rule": RULE} for file, leak in credentials
        ],
        "problems": {name: list(each.problems) for name, each in checked_files.items() if each.problems},
        "prices": {name: each.price for name, each in checked_files.items() if each.price},
        "usd_per_month": {name: each.figures() for name, each in checked_files.items() if each.estimate},
        "removed": list(removed),
        "price_changes": list(price_changes),
    }


def _declared(name: str, text: str, project: str) -> Environment:
    """Return the declarations of a settings file that cost money."""
    document: Any = load(text, nodes=MOST_VALUES, strict=False)
    config = document.get("config") if isinstance(document, dict) else None
    return environment_of(name, config if isinstance(config, dict) else {}, project)


def problems(path: Path) -> list[str]:
    """Return the reasons why a file is no valid settings file of a stack, in sentences."""
    try:
        if path.is_symlink():
            return ["is a link: write the settings into the file itself"]
        if path.stat().st_size > LARGEST:
            return [f"has {path.stat().st_size} bytes; {LARGEST} are allowed"]
        document: Any = load(path.read_text(encoding="utf-8"), nodes=MOST_VALUES)
    except BadYaml as error:
        return [str(difference) for difference in error.differences] or [str(error)]
    except (OSError, UnicodeDecodeError) as error:
        return [f"cannot be read: {' '.join(str(error).split())[:300]}"]
    if not isinstance(document, dict):
        return ["has to be a mapping with `config`"]
    if not _finite(document):
        return ["has a number that is infinite or none (NaN), which the engine cannot hand on: give a finite one"]
    unknown_sections = [
        f"{key!r} is nothing that Pulumi reads; there is {', '.join(SECTIONS)}"
        for key in document
        if key not in SECTIONS
    ]
    config = document.get("config")
    if config is None:
        return unknown_sections
    if not isinstance(config, dict):
        return [*unknown_sections, "`config` has to be a mapping"]
    return unknown_sections + [
        f"config.{key}: has to be NAMESPACE:NAME" for key in config if ":" not in str(key).strip(":")
    ]


def _finite(value: Any) -> bool:
    if isinstance(value, dict | list):
        return all(map(_finite, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)
