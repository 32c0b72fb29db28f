"""Rules for the fields of a job that types alone cannot express. Each rule reports every fault, not only the first.

The rules take values as written, also malformed ones, so that no fault hides another one.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from everspot_core.counting import counted
from everspot_core.jobs.image_reference import parse_registry_image
from everspot_core.validation.field_types import is_printable
from everspot_core.validation.problems import Problem, cut, shown

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DATASET = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}(@[0-9a-f]{6,64})?")
_REFERENCE = r"[a-z][a-z0-9.+-]{0,63}:[!-~]{1,2048}"
_MOST_DATASETS = 20
_MOST_COMMANDS = 50
_LONGEST_ENV = 32 * 1024  # Linux takes 128 KiB for one string and 2 MiB for all
_LONGEST_TAG = (128, 256)  # a tag's key and value; a job's tags are for reports and filters, and never sent to a cloud

OWN_VARIABLES = ("EVERSPOT_",)
"""Prefixes of Everspot's own environment variables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudRules:
    """The rules of clouds for job files. `everspot_clouds` has the rules of each cloud; core knows no cloud by name.

    - `variables`: prefixes of the environment variables in which their clients look for credentials and settings.
    - `secrets`: the forms in which a job refers to a secret, each with its regular expression. If it is empty, any
      `SERVICE:NAME` is accepted.
    - `images`: the forms in which a job refers to an image of a registry. If it is empty, any registry is accepted.
    """

    variables: tuple[str, ...]
    secrets: Mapping[str, str]
    images: Mapping[str, str] = field(default_factory=dict)

    @property
    def reserved(self) -> tuple[str, ...]:
        """Prefixes of all variables that belong to the instance. No job may set them."""
        return (*OWN_VARIABLES, *self.variables)

    def accepts(self, reference: str) -> bool:
        """Return whether a text has the form of a reference to a secret."""
        return any(re.fullmatch(form, reference) for form in self.secrets.values() or (_REFERENCE,))

    def accepts_image(self, reference: str) -> bool:
        """Return whether an image is of a registry from which instances of some cloud can fetch it."""
        return not self.images or any(re.fullmatch(form, reference) for form in self.images.values())


NO_CLOUD = CloudRules(variables=(), secrets={})
"""The rules for readers that know no cloud. They read stored jobs, which were checked at submission."""


def program_faults(values: Mapping[str, Any]) -> list[Problem]:
    """Return the faults between fields: neither or both of recipe and entrypoint, or a variable set twice. `values`:
    the job's fields as written."""
    recipe, entrypoint, code = (values.get(name) for name in ("recipe", "entrypoint", "code"))
    problems: list[Problem] = []
    if recipe is None and entrypoint is None:
        problems.append(Problem("recipe", "either recipe or entrypoint has to say what runs, and neither is given"))
    elif recipe is not None and entrypoint is not None:
        problems.append(Problem("recipe", "either recipe or entrypoint says what runs, and both are given"))
    elif recipe is not None and code is not None:
        problems.append(Problem("code", "belongs to entrypoint, not to recipe"))
    elif entrypoint is not None and code is None:
        problems.append(Problem("code", "is missing: entrypoint needs the folder that holds the script"))
    if values.get("mixed_on_failover") is True and values.get("precision", "auto") != "auto":
        problems.append(Problem("mixed_on_failover", "needs `precision: auto`: every other precision stays as it is"))
    env, secrets = values.get("env"), values.get("secrets")
    if isinstance(env, Mapping) and isinstance(secrets, Mapping):
        problems += [Problem(f"secrets.{name}", "is given by env too") for name in sorted(set(env) & set(secrets))]
    return problems


def process_faults(processes: int | None, gpus: int) -> list[Problem]:
    """Return the fault of a job with more processes than GPUs. NCCL refuses two ranks on one GPU ("Duplicate GPU
    detected"), and a program that uses the GPU of its `LOCAL_RANK` would not find one."""
    if processes is None or gpus == 0 or processes <= gpus:
        return []
    words = f"{processes} are more than the {counted(gpus, 'GPU')} of resources.gpus: no GPU can have two ranks"
    return [Problem("processes", words)]


def container_faults(values: Mapping[str, Any]) -> list[Problem]:
    """Return the faults of a job with an image: fields for the machine's own Python. `values`: the
    job's fields."""
    if values.get("image") is None:
        return []
    problems = []
    if values.get("recipe") is not None:
        problems.append(Problem("image", "belongs to entrypoint, not to recipe"))
    for field_name in ("requirements", "setup"):
        if values.get(field_name):
            problems.append(Problem(field_name, "is for the machine's own Python: install it in the image"))
    return problems


def limit_faults(*, has_limits: bool, gpus: int) -> list[Problem]:
    """Return the fault of a job without GPUs that limits the use of GPUs."""
    if not has_limits or gpus:
        return []
    return [Problem("limits.gpu_utilization_below", "needs a job with GPUs, and resources.gpus is 0")]


def stop_faults(values: Mapping[str, Any]) -> list[Problem]:
    """Return the fault of a recipe with `stop`: recipes evaluate only once, at the end. `values`: the job's fields."""
    if values.get("stop") is None or values.get("recipe") is None:
        return []
    words = f"the recipe {values['recipe']} evaluates once, after its last step: leave out stop, or run a script"
    return [Problem("stop", words)]


def cache_faults(values: Mapping[str, Any]) -> list[Problem]:
    """Return the faults of a cached stage in a series or with other clusters. `values`: the job's fields."""
    if values.get("cache") is not True:
        return []
    problems = []
    if values.get("every") is not None:
        words = "every run of a series has the first one's code and data, so that none but the first would run"
        problems.append(Problem("cache", f"{words}: leave out cache, or every"))
    field_name = next((name for name in ("clouds", "clusters") if values.get(name)), None)
    if field_name is not None:
        words = f"the outputs of earlier runs are in one cluster: leave out cache, or {field_name}"
        problems.append(Problem("cache", words))
    return problems


def move_faults(values: Mapping[str, Any]) -> list[Problem]:
    """Return the faults of a job that may move to other clusters: its fields that need its own cluster. `values`: the
    job's fields."""
    if not values.get("clouds") and not values.get("clusters"):
        return []
    field_name = "clouds" if values.get("clouds") else "clusters"
    problems = []
    if values.get("after"):
        problems.append(
            Problem("after", f"the outputs of earlier jobs are in one cluster: leave out after, or {field_name}")
        )
    problems += [
        Problem(name, f"the earlier jobs are in one cluster: leave out {name}, or {field_name}")
        for name in ("run_if", "continue_from")
        if values.get(name) is not None
    ]
    if values.get("secrets"):
        problems.append(
            Problem("secrets", f"a secret belongs to one cloud's account: leave out secrets, or {field_name}")
        )
    image = values.get("image")
    if isinstance(image, str) and parse_registry_image(image) is not None:
        words = "an image of a registry is fetched by one cluster's instances: upload it as a dataset, or leave out "
        problems.append(Problem("image", words + field_name))
    return problems


def env_faults(value: Any, clouds: CloudRules) -> list[Problem]:
    """Return the faults of the field `env`."""
    problems: list[Problem] = []
    reserved = " and ".join(f"{prefix}*" for prefix in clouds.reserved)
    reserved_names: list[str] = []
    for name, text in _texts(value, problems):
        quoted = repr(name[:40])
        if not _ENV_NAME.fullmatch(name):
            problems.append(
                Problem("", f"{quoted} is no name of a variable: letters, digits and _, and no digit first")
            )
        elif name.startswith(clouds.reserved):
            reserved_names.append(quoted)
        if text is not None and ("\0" in text or len(text.encode(errors="replace")) > _LONGEST_ENV):
            problems.append(Problem("", f"{quoted}: a value holds no NUL and at most {_LONGEST_ENV // 1024} KiB"))
    if reserved_names:  # one problem for all names
        words = f"{', '.join(reserved_names)}: {reserved} belong to the instance and cannot be set by a job"
        problems.append(Problem("", words))
    return problems


def secret_faults(value: Any, clouds: CloudRules) -> list[Problem]:
    """Return the faults of the field `secrets`."""
    problems: list[Problem] = []
    *forms, last = [f"`{form}`" for form in clouds.secrets] or ["`SERVICE:NAME`"]
    allowed = f"{', '.join(forms)} or {last}" if forms else last
    for name, reference in _texts(value, problems):
        if not _ENV_NAME.fullmatch(name) or name.startswith(clouds.reserved):
            problems.append(Problem("", f"{name[:40]!r} is no name of a variable that a job may set"))
        if reference is not None and not clouds.accepts(reference):
            words = f"has to be {allowed}: the name of a secret, never the secret itself"
            problems.append(Problem("", f"{name[:40]}: {words}"))
    return problems


def tag_faults(value: Any) -> list[Problem]:
    """Return the faults of the field `tags`."""
    problems: list[Problem] = []
    for key, text in _texts(value, problems):
        for part, content, most in zip(("key", "value"), (key, text), _LONGEST_TAG, strict=True):
            if content is None:
                continue
            if len(content) > most or (part == "key" and not content.strip()):
                least = 1 if part == "key" else 0
                problems.append(Problem("", f"a tag's {part} has {least} to {most} characters"))
            elif not is_printable(content):
                problems.append(Problem("", f"a tag's {part} has characters that cannot be printed"))
    return problems


def dataset_faults(value: Any) -> list[Problem]:
    """Return the faults of the field `datasets`."""
    problems: list[Problem] = []
    words = _listed(value, problems)
    problems += [
        Problem("", f"{reference[:80]!r} is no dataset: write `name` or `name@digest`")
        for reference in words
        if not _DATASET.fullmatch(reference)
    ]
    names = [reference.partition("@")[0] for reference in words]
    if len(set(names)) < len(names) or len(names) > _MOST_DATASETS:
        problems.append(Problem("", f"at most {_MOST_DATASETS} datasets, each name once"))
    return problems


def stream_faults(values: Mapping[str, Any]) -> list[Problem]:
    """Return the faults of the field `stream`, which names some of `datasets`."""
    names = {reference.partition("@")[0] for reference in values["datasets"]}
    return [
        Problem("stream", f"{cut(repr(name), 80)} is none of the job's `datasets`")
        for name in values["stream"]
        if name not in names
    ]


def image_faults(value: Any, clouds: CloudRules) -> list[Problem]:
    """Return the faults of the field `image`."""
    if not isinstance(value, str) or _DATASET.fullmatch(value):
        return []  # the type is refused
    if parse_registry_image(value) is not None and clouds.accepts_image(value):
        return []
    words = f"{cut(repr(value), 80)} is neither a dataset, `name` or `name@digest`, nor an image of a registry, "
    return [Problem("", words + " or ".join(clouds.images or ("HOST/REPOSITORY@sha256:DIGEST",)))]


def setup_faults(value: Any) -> list[Problem]:
    """Return the faults of the field `setup`."""
    problems: list[Problem] = []
    commands = _listed(value, problems)
    if len(commands) > _MOST_COMMANDS or any(not c.strip() or "\0" in c or len(c) > _LONGEST_ENV for c in commands):
        words = f"at most {_MOST_COMMANDS} commands, none of them empty, longer than 32 KiB or with a NUL"
        problems.append(Problem("", words))
    return problems


def entrypoint_faults(value: Any) -> list[Problem]:
    """Return the faults of the field `entrypoint`."""
    problems: list[Problem] = []
    words = _listed(value, problems)
    if not isinstance(value, list) or problems:
        return problems
    if not words or not words[0]:
        problems.append(Problem("", "must name a script"))
    if any("\0" in argument for argument in words):
        problems.append(Problem("", "a word with a NUL cannot be handed to a program"))
    elif words and not is_printable(words[0]):
        problems.append(Problem("", "the script's name has characters that cannot be printed"))
    elif words and (PurePosixPath(words[0]).is_absolute() or ".." in PurePosixPath(words[0]).parts):
        problems.append(
            Problem("", f"{cut(repr(words[0]), 80)} does not lie in `code`: name the script relative to it")
        )
    return problems


_MOST = {"entrypoint": 1000, "env": 1000, "secrets": 100, "tags": 100}
"""Most entries of a field that has no other limit."""
LONGEST_WORD = 128 * 1024 - 1
"""Bytes of one argument that Linux hands to a program (execve(2), MAX_ARG_STRLEN)."""
_CONTROL_CHARACTERS = re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Control characters of terminals, and characters that change the direction of text. Line ends and joiners are
allowed."""


def written_faults(name: str, value: Any) -> list[Problem]:
    """Return the faults of a field in a job file that are tolerated in stored jobs: too many entries, arguments that
    are too long, and characters that are invisible in a log or in the web UI."""
    problems: list[Problem] = []
    if isinstance(value, list | Mapping) and len(value) > _MOST.get(name, len(value)):
        problems.append(Problem("", f"has {len(value):,} entries; {_MOST[name]:,} are allowed"))
    entries = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, text in entries if name in ("entrypoint", "env", "setup") else ():
        if not isinstance(text, str):
            continue  # the type is refused
        where = f"[{key}]" if isinstance(key, int) else cut(str(key), 40)
        if _CONTROL_CHARACTERS.search(text):
            problems.append(Problem(where, f"has control or invisible characters: {shown(text)}"))
        if name == "entrypoint" and len(text.encode(errors="replace")) > LONGEST_WORD:
            problems.append(Problem(where, "is longer than the 128 KiB that a program can be given as one argument"))
    return problems


def repeated(values: Iterable[str]) -> list[str]:
    """Return the duplicated texts of a list, each once."""
    counts: dict[str, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return [value for value, count in counts.items() if count > 1]


def _texts(value: Any, problems: list[Problem]) -> Iterable[tuple[str, str | None]]:
    """Yield the names and texts of a mapping. A value that is not a text adds a problem, and None is yielded for it."""
    if not isinstance(value, Mapping):
        return
    for name, text in value.items():
        if not isinstance(name, str):
            continue  # the type is refused
        if not isinstance(text, str):
            problems.append(Problem(cut(name, 40), f"must be a text, not {shown(text)}; write it in quotes"))
        yield name, text if isinstance(text, str) else None


def _listed(value: Any, problems: list[Problem]) -> list[str]:
    """Return the texts of a list. Adds a problem for each value that is not a text."""
    if not isinstance(value, list):
        return []
    problems += [
        Problem(f"[{n}]", f"must be a text, not {shown(item)}")
        for n, item in enumerate(value)
        if not isinstance(item, str)
    ]
    return [item for item in value if isinstance(item, str)]
