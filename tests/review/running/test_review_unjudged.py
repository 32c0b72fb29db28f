"""A preview that fails because of the rules' settings reports that in one sentence, without the engine's output."""

import json

import pytest
from desk import Desk

TOLD = """Previewing update (dev):
@ previewing update....
    pulumi:pulumi:Stack everspot-dev  everspot-policy: /srv/project/stacks/rules.yaml has 2 bad inputs:
    pulumi:pulumi:Stack everspot-dev    - environments.dev.budget: Extra inputs are not permitted
Diagnostics:
  pulumi:pulumi:Stack (everspot-dev):
    everspot-policy: /srv/project/stacks/rules.yaml has 2 bad inputs:
      - environments.dev.budget: Extra inputs are not permitted
      - exceptions[0].rule: gcp-label is no rule (did you mean gcp-labels?)

    warning: using pulumi-resource-aws from $PATH at /srv/plugins/pulumi-resource-aws
"""
UNSTARTED = (
    'error: policy pack "everspot-policy" failed to start: could not read plugin [everspot-policy]: exit status 1\n'
)


def failure(desk: Desk, stderr: str) -> str:
    """The one error of a preview in which the engine says this."""
    desk.answers("preview", "dev", [], code=1, stderr=stderr)
    log = desk.engine / "preview.dev.jsonl"
    log.write_text(json.dumps({"cancelEvent": {}}) + "\n")
    done = desk.run("preview", "dev", "--out", "reports", "--json")
    (report,) = json.loads(done.stdout)["reports"]
    (diagnostic,) = report["diagnostics"]
    assert (report["outcome"], diagnostic["severity"]) == ("failed", "error")
    return str(diagnostic["text"])


@pytest.mark.parametrize("first", [TOLD + UNSTARTED, UNSTARTED + TOLD], ids=["last", "first"])
def test_bad_settings_of_the_rules_are_one_sentence_and_what_is_wrong(desk: Desk, first: str) -> None:
    assert failure(desk, first) == (
        "Nothing was previewed, because the rules' settings are wrong: rules.yaml has 2 bad inputs:\n"
        "  - environments.dev.budget: Extra inputs are not permitted\n"
        "  - exceptions[0].rule: gcp-label is no rule (did you mean gcp-labels?)"
    )


@pytest.mark.parametrize("stderr", [TOLD, UNSTARTED, "error: something else\n"])
def test_any_other_failure_is_told_in_the_engines_words(desk: Desk, stderr: str) -> None:
    assert failure(desk, stderr) == stderr.strip()
