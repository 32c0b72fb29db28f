"""Output never contains text of a change that a CI runner or a terminal would execute."""

import contextlib
import io
import json
import re
import unicodedata
from pathlib import Path

import pytest
from desk import Desk, step
from everspot_review.printing import harmless, write_json
from hypothesis import given
from hypothesis import strategies as st

COMMANDS = (
    "::error file=a::bad", "::add-mask::x", "::set-output name=a::b", "::stop-commands::t", "  ::warning::w",
    "\u00a0::error::a", "##[error]bad", "##[add-mask]x", "x ##[command]y", "##vso[task.setvariable variable=a]b",
    "##teamcity[message]", "###[error]b",
)  # fmt: skip
ENDS = ("\n", "\r", "\r\n", "\x85", "\u2028", "\u2029", "\x0b", "\x0c", "\x1e")
OBEYED = re.compile(r"^\s*::|##[A-Za-z]*\[")


def check(printed: str) -> None:
    """No reader of lines, whatever it takes for their end, finds a command; nothing hides or turns."""
    assert not [line for line in printed.splitlines() if OBEYED.search(line)], printed
    hidden = {char for char in printed if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")}
    assert hidden <= {"\n"}, printed


@given(st.lists(st.sampled_from(COMMANDS + ENDS) | st.text(max_size=4), max_size=6).map("".join))
def test_no_text_is_obeyed(text: str) -> None:
    check(harmless(text))


@given(st.dictionaries(st.text(max_size=5), st.sampled_from(COMMANDS) | st.text(max_size=5), max_size=3))
def test_no_document_is_obeyed_and_all_of_it_is_there(document: dict[str, str]) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        write_json(document)
    check(out.getvalue())
    assert json.loads(out.getvalue()) == document


@pytest.mark.parametrize("json_too", [(), ("--json",)], ids=["lines", "json"])
@pytest.mark.parametrize("end", ["\\n", "\\r", "\\x85", "\\u2028", "\\u2029", "\\u202e"])
@pytest.mark.parametrize("command", ["::error::planted", "##[error]planted", "::add-mask::planted"])
def test_settings_of_a_fork_print_no_annotation(desk: Desk, command: str, end: str, json_too: tuple[str, ...]) -> None:
    desk.write(
        "stacks/Pulumi.dev.yaml",
        f'config:\n  aws:region: eu-west-1\n  everspot:cluster:\n    cloud: aws\n    "odd{end}{command}": 1\n'
        f'    capacity: {{instanceTypes: [{{type: "g5.xlarge{end}{command}", gpu: "{end}{command}"}}], '
        f'elastic: {{maxInstances: "{end}{command}"}}}}\n  "{end}{command}": 1\n"{end}{command}": 2\n',
    )
    desk.commit()
    done = desk.run("files", "--base", "HEAD~1", *json_too)
    assert done.returncode == 1 and "planted" in done.stdout
    check(done.stdout)
    check(done.stderr)


def test_what_the_engine_says_prints_no_annotation(desk: Desk) -> None:
    name = "q\r::error::planted\u2028##[error]planted"
    desk.answers(
        "preview", "dev", [step("create", name, None, {"name": name})], code=255, stderr=f"error: {name}\n::error::x"
    )
    failed = desk.run("preview", "dev", "--out", "reports")
    shown = desk.run("comment", "reports", "--show")
    for done in (failed, shown, desk.run("preview", "a\n::error::b"), desk.run("changed", "--base", "x\n::error::b")):
        check(done.stdout)
        check(done.stderr)


def test_every_command_prints_through_one_door() -> None:
    folder = Path(__file__).parents[3] / "review/everspot_review"
    doors = re.compile(r"std(?:out|err)\.write|\becho\(|\bprint\(|\.secho\(")
    offenders = [
        str(path) for path in folder.rglob("*.py") if doors.search(path.read_text()) and path.name != "printing.py"
    ]
    assert offenders == []
