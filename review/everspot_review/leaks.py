"""Finds plain-text credentials in a change's files: the file, the line and the kind, and never the value."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from everspot_clouds.credential_names import is_named_literal, is_named_secret, is_placeholder, is_strong
from everspot_clouds.plain_credentials import (
    PASSWORD,
    RANDOM,
    Credential,
    credentials_in,
    credentials_under,
    list_kinds,
    redact,
    without_unseen,
)
from everspot_core.cluster.declared import SECRET
from everspot_core.validation.yaml_text import BadYaml, Scalar, scalars

from everspot_review.affected import ChangeError, Project, git, git_output
from everspot_review.report import BrokenRule

RULE = "no-plain-credentials"
REMEDY = (
    "replace it, for it counts as known now, and keep the new one in the cloud's secret store or as a secret of the "
    "stack (pulumi config set --secret)"
)
MOST_VALUES = 200_000
MOST_TEXT = 64 << 20
"""Bytes of added lines that are looked at, which takes about a minute."""
_LONGEST_LINE = 20_000
_OVERLAP = 500

_OWN = ("secretsprovider", "encryptionsalt", "encryptedkey")
"""Keys of a settings file with encrypted values that the engine itself writes."""

_ENCRYPTED = re.compile(r"v[0-9]+:[A-Za-z0-9+/]{16}:[A-Za-z0-9+/]{2,}={0,2}|AAAB[A-Za-z0-9+/]{28,}={0,2}")
"""A value of `secure:` that the engine has encrypted, with its own key or with Pulumi Cloud's (`pkg/secrets`)."""

_ALLOWED = re.compile(r"pragma: ?(?:allow|white)list[ -](?:nextline[ -])?secret", re.IGNORECASE)
_SETTINGS_LIKE = (".env", ".ini", ".cfg", ".conf", ".cnf", ".toml", ".tfvars", ".properties")
_SETTINGS_FILES = (".npmrc", ".pypirc", ".yarnrc", ".netrc", "credentials")
_DOCUMENTS = (".yaml", ".yml", ".json", ".tfstate", ".backup", ".ipynb")
_PASSWORD_FILES = {
    ".netrc": re.compile(r"(?:.*\s)?password\s+(\S{3,})(?:\s.*)?"),
    "_netrc": re.compile(r"(?:.*\s)?password\s+(\S{3,})(?:\s.*)?"),
    ".pgpass": re.compile(r"(?!\s*#)(?:(?:[^:\\]|\\.)*:){4}(.{3,})"),
    "pgpass.conf": re.compile(r"(?!\s*#)(?:(?:[^:\\]|\\.)*:){4}(.{3,})"),
}
"""By the names of files that hold passwords and nothing else: the form of a line with one."""

_LITERAL = re.compile(
    r"""(?<![\w.-])\$?([A-Za-z_][\w.-]{2,63})["']?\]?(?:\s*:\s*[\w.\[\] |]{1,40}?)?\s*(?::=|[:=])\s*"""
    r"""(?:(["'])([^"'\s\\]{6,100})\2|(?<==)([^\s"'`$(){}\[\]<>,;#]{6,100})(?=\s|$))"""
)
_ASSIGNED = re.compile(r"([A-Za-z_][\w.-]{0,63})=(\S{3,200})")
_PAIR = re.compile(
    r"""\s*(?:export\s+)?(?://\S{1,200}:)?["']?([\w.-]{1,64})["']?\s*[:=]\s*["']?([^\s"'#]{3,200})["']?,?\s*(?:#.*)?"""
)


@dataclass(frozen=True)
class Leak:
    """A credential in a file.

    Attributes:
        line: The line where it begins, from 1.
        kinds: The kinds of credentials that it resembles; empty where nothing was looked at from this line on.
        path: The setting, in a settings file.
        values: The credentials themselves, so that no other output contains them.
    """

    line: int
    kinds: tuple[str, ...]
    path: str = ""
    values: tuple[str, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        if not self.kinds:
            return (
                f"line {self.line}: was not looked at for credentials, nor what follows: the change adds more than "
                f"{MOST_TEXT >> 20} MiB of text: split it, or keep large files in a bucket"
            )
        where = f", {redacted(self.path, self.values)}" if self.path else ""
        return f"line {self.line}{where}: seems to hold {' and '.join(self.kinds)}: {REMEDY}"


def leaks_of_settings(text: str) -> list[Leak]:
    """Return the credentials in a settings file: by the form of a value, a key or a comment, by the name of a value, or
    because the value is random. Values that the engine has encrypted and lines with detect-secrets' comment `# pragma:
    allowlist secret` are not credentials."""
    return _leaks_of_document(text, settings=True)


def _leaks_of_document(text: str, *, settings: bool = False) -> list[Leak]:
    lines, own = [without_unseen(line) for line in text.splitlines()], _OWN if settings else ()
    by_line: dict[int, list[Credential]] = {}
    paths: dict[int, str] = {}
    values = _values(text, own)
    for number, line in enumerate(lines, 1):
        if not line.startswith(tuple(f"{name}:" for name in own)):
            by_line[number] = _credentials_in_line(_ENCRYPTED.sub("", line) if "secure" in line else line)
            if not settings and '\\"' in line:  # a program in a notebook, or in a template
                by_line[number] += _literals(line.replace('\\"', '"')[:_LONGEST_LINE])
    names = {value.path: value.text for value in values}
    for value in values:
        if value.key == "secure" and _ENCRYPTED.fullmatch(value.text):
            continue
        name, inner = _name(value, names), value.text
        if assigned := _ASSIGNED.fullmatch(inner):  # in a list, as a composition has its environment
            name, inner = assigned[1], assigned[2]
        for credential in credentials_under(name, inner):
            if not settings and (credential.kind == RANDOM or (credential.kind == PASSWORD and not is_strong(name))):
                continue
            number = _line(lines, value.line, credential.value)
            paths.setdefault(number, value.path)
            by_line.setdefault(number, []).append(credential)
    return [
        Leak(number, tuple(list_kinds(each)), paths.get(number, ""), tuple(credential.value for credential in each))
        for number, each in sorted(by_line.items())
        if each and not _is_allowed(lines, number)
    ]


def _credentials_in_line(line: str) -> list[Credential]:
    """Return the credentials in a line, which is looked at in overlapping parts: the patterns are not linear."""
    starts = range(0, max(1, len(line) - _OVERLAP), _LONGEST_LINE - _OVERLAP)
    return list(
        dict.fromkeys(
            credential for start in starts for credential in credentials_in(line[start : start + _LONGEST_LINE])
        )
    )


def _values(text: str, own: Sequence[str]) -> list[Scalar]:
    try:
        return [value for value in scalars(text, nodes=MOST_VALUES) if value.path not in own]
    except BadYaml:
        return []  # which is a fault of its own; the lines are looked at all the same


def _name(value: Scalar, texts: Mapping[str, str]) -> str:
    """Return the name that describes a value: its key, or the name beside it in a list of variables. A value that is
    called `secure`, but is not encrypted, is a secret by its author's word."""
    if value.key == "secure":
        return "password"
    if value.key.lower() != "value":
        return value.key
    parent = value.path[: -len(value.key)]
    sibling_names = (texts.get(f"{parent}{name}") for name in ("name", "key", "Name", "Key"))
    return next((name for name in sibling_names if name), value.key)


def _line(lines: Sequence[str], start: int, value: str) -> int:
    """Return the line of a credential in a value that begins on a line; that line, if the value is written otherwise
    there."""
    first = value.splitlines()[0] if value else ""
    for number in range(start, min(len(lines), start + 500) + 1):
        if first and first in lines[number - 1]:
            return number
    return start


def _is_allowed(lines: Sequence[str], number: int) -> bool:
    if _ALLOWED.search(lines[number - 1]):
        return "nextline" not in lines[number - 1].lower()
    before = lines[number - 2] if number > 1 else ""
    return _ALLOWED.search(before) is not None and "nextline" in before.lower()


def leaks_of_change(project: Project, base: str) -> dict[str, list[Leak]]:
    """Return the credentials in the lines that a change adds to files that are no environment's settings, by file. A
    file that was not looked at to its end has a last entry without a kind.

    Raises:
        ChangeError: if git cannot say.
    """
    leaks_by_file = {}
    lines, unread = _added(project, base)
    for path in dict.fromkeys((*lines, *unread)):
        if project.environment(path) is None:
            leaks = _leaks_of_lines(project, path, lines.get(path, {}))
            leaks += [Leak(unread[path], ())] if path in unread else []
            if leaks:
                leaks_by_file[path] = leaks
    return leaks_by_file


def _leaks_of_lines(project: Project, path: str, added: Mapping[int, str]) -> list[Leak]:
    suffix = PurePosixPath(path).suffix.lower()
    if suffix in _DOCUMENTS:
        try:
            whole = git(project.root, "show", f"HEAD:{path}")
        except (ChangeError, UnicodeDecodeError):
            whole = ""
        inner = [leak for leak in _leaks_of_document(whole) if leak.line in added]
        return [leak for leak in inner if not all(map(_is_example, leak.values))]
    name = PurePosixPath(path).name
    pairs = suffix in _SETTINGS_LIKE or name in _SETTINGS_FILES or name.startswith(".env")
    file_leaks = []
    for number, line in added.items():
        each = [credential for credential in _credentials_in_line(line) if pairs or credential.kind != PASSWORD]
        if name in _PASSWORD_FILES:
            match = _PASSWORD_FILES[name].fullmatch(line)
            each += [Credential(PASSWORD, match[1])] if match and not is_placeholder(match[1]) else []
        each = each or (_pairs(line) if pairs else _literals(line[:_LONGEST_LINE]))
        each = [credential for credential in each if not _is_example(credential.value)]
        if each and not _ALLOWED.search(line) and not _ALLOWED.search(added.get(number - 1, "")):
            file_leaks.append(Leak(number, tuple(list_kinds(each)), "", tuple(credential.value for credential in each)))
    return file_leaks


def _pairs(line: str) -> list[Credential]:
    """Return the values that a line of a settings file calls a secret."""
    matches = [match for part in line.split("\r") if (match := _PAIR.fullmatch(part))]
    return [Credential(PASSWORD, match[2]) for match in matches if is_named_secret(match[1], match[2])]


def _literals(line: str) -> list[Credential]:
    """Return the values that a line of a program or a script calls a secret. Only values with a digit that are no name
    count, because programs also use such words for variables, labels and language tokens."""
    return [
        Credential(PASSWORD, value)
        for match in _LITERAL.finditer(line)
        if (value := match[3] or match[4]) and is_named_literal(match[1], value)
    ]


def _is_example(value: str) -> bool:
    """Return whether a value is an example of the clouds' own documents, which many texts contain."""
    return value.upper().endswith(("EXAMPLE", "EXAMPLEKEY"))


_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def _added(project: Project, base: str) -> tuple[dict[str, dict[int, str]], dict[str, int]]:
    """Return the lines that a change adds, by file and number, and the line after which there were too many of them.
    Attributes of the change that would make git treat a file as binary do not count."""
    options = ("--unified=0", "--no-color", "--no-renames", "--no-ext-diff", "--no-textconv", "--text")
    if base.strip("0 "):
        if base.startswith("-"):
            raise ChangeError(f"{base!r} is no revision")
        between = [f"{base}...HEAD"]
    else:
        between = [git(project.root, "hash-object", "-t", "tree", "/dev/null").strip(), "HEAD"]
    prefixes = ("--src-prefix=a/", "--dst-prefix=b/")
    words = ("-c", "core.quotePath=on", "diff", *options, *prefixes, *between, "--")
    added: dict[str, dict[int, str]] = {}
    unread: dict[str, int] = {}
    size = 0
    for path, number, raw in _added_lines(git_output(project.root, *words)):
        if b"\0" in raw and not _is_utf16(raw):
            continue
        size += len(raw)
        if size > MOST_TEXT:
            unread.setdefault(path, number)
        else:
            line = raw.replace(b"\0", b"").decode(errors="replace")
            added.setdefault(path, {})[number] = line.strip("\ufeff\ufffd\r")
    return added, unread


def _is_utf16(line: bytes) -> bool:
    """Return whether a line is ASCII in two bytes a character, as PowerShell's `>` writes files."""
    return 0.4 * len(line) <= line.count(b"\0") <= 0.6 * len(line) + 2


def _added_lines(diff: bytes) -> Iterator[tuple[str, int, bytes]]:
    """Yield the file, number and text of each line that a diff without context adds. The head of a hunk says how many
    lines it has, so a line of a file that looks like a head is not taken for one."""
    path, number, removed, added = "", 0, 0, 0
    for match in re.finditer(rb"[^\n]*\n|[^\n]+\Z", diff):
        line = match[0].removesuffix(b"\n")
        if removed and line.startswith(b"-"):
            removed -= 1
        elif added and line.startswith(b"+"):
            yield path, number, line[1:]
            number, added = number + 1, added - 1
        elif line.startswith((b"+++ b/", b'+++ "b/')):
            path = _path(line[4:].rstrip(b"\t"))
        elif hunk := _HUNK.match(line):
            removed, number, added = int(hunk[1] or 1), int(hunk[2]), int(hunk[3] or 1)


def _path(written: bytes) -> str:
    """Return a path as a diff's head writes it: in quotes and with escapes as in C, if it has odd characters."""
    if written.startswith(b'"'):
        written = ast.literal_eval(f"b{written.decode('ascii')}")
    return written.removeprefix(b"b/").decode(errors="surrogateescape")


def redacted(text: str, values: Sequence[str]) -> str:
    """Return a text without these credentials."""
    return redact(text, values, SECRET)


def rules_broken_by(project_root: Path, environment: str) -> tuple[BrokenRule, ...]:
    """Return the findings of the credentials rule on an environment's settings file, whichever packs judge."""
    try:
        project = Project.read(project_root)
        text = project.file(environment).read_text(encoding="utf-8")
    except (ChangeError, OSError, UnicodeDecodeError):
        return ()  # which the preview tells
    return tuple(
        BrokenRule(rule=RULE, level="mandatory", severity="critical", message=f"Pulumi.{environment}.yaml, {leak}.")
        for leak in leaks_of_settings(text)
    )
