"""The standard output of `everspot review`: one JSON document, with `--json` in either position."""

import json
from collections.abc import Sequence

import pytest
from desk import UPDATE, Desk

COMMANDS = {
    "changed": ("changed", "--base", "HEAD~1"),
    "files": ("files", "--base", "HEAD~1"),
    "preview": ("preview", "dev", "--out", "reports"),
    "comment": ("comment", "reports", "--show"),
    "drift": ("drift", "dev"),
}


@pytest.mark.parametrize(("before", "after"), [((), ("--json",)), (("--json",), ())], ids=["after it", "before it"])
@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_an_answer_with_json_is_one_document(
    desk: Desk, words: Sequence[str], before: Sequence[str], after: Sequence[str]
) -> None:
    desk.write("stacks/Pulumi.dev.yaml", "config: {}\n# edited\n")
    desk.commit()
    desk.answers("preview", "dev", [UPDATE])
    desk.answers("refresh", "dev", [])
    (desk.engine / "stacks.json").write_text(json.dumps([{"name": "dev", "resourceCount": 3}]))
    (desk.engine / "state.dev.json").write_text(json.dumps({"deployment": {"resources": []}}))
    assert desk.run("preview", "dev", "--out", "reports").returncode == 0
    done = desk.run(*words, *after, before=before)
    assert isinstance(json.loads(done.stdout), dict), done.stderr
