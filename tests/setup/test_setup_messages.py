"""What set-up says when something is missing: the real script, started with a poor PATH or an old Python."""

import subprocess
import sys

import pytest


def test_an_old_python_is_told_which_one_is_needed(checkout):
    script = (checkout / "tools/setup/__main__.py").read_text()
    old = f"import sys; sys.version_info = (3, 9, 1)\nexec(compile({script!r}, 'setup', 'exec'))"
    done = subprocess.run([sys.executable, "-c", old], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "Python 3.11.4 or newer is needed" in done.stderr and "make setup PYTHON=" in done.stderr


def test_without_go_it_says_where_to_get_it(run_setup, checkout):
    text = run_setup("import problems; problems.go()", PATH=str(checkout))
    assert "Go compiler" in text and "go.dev/dl" in text


def test_an_old_go_is_named(run_setup, checkout):
    go = checkout / "go"
    go.write_text("#!/bin/sh\necho go version go1.17 linux/amd64\n")
    go.chmod(0o755)
    text = run_setup("import problems; problems.go()", PATH=f"{checkout}:/bin")
    assert "too old" in text and "1.21" in text


def test_a_full_disk_is_said_before_the_work_begins(run_setup):
    text = run_setup("import problems, pathlib; problems.disk(pathlib.Path('.').absolute(), 1 << 60, 'the build')")
    assert "the build needs about" in text and "goes on where it stopped" in text


def test_no_network_is_told_from_other_failures(run_setup):
    text = run_setup(
        "import problems; raise problems.explain(['pip', 'install'], 'Temporary failure in name resolution')"
    )
    assert "network cannot be reached" in text


def test_a_wrong_dataset_is_not_taken(run_setup, checkout):
    bad = checkout / "bad"
    bad.mkdir()
    (bad / "train-images-idx3-ubyte").write_bytes(b"not images")
    text = run_setup(
        "import dataset; dataset.OFFICIAL = 'http://127.0.0.1:1'; dataset.make()",
        PATH="",
        EVERSPOT_DATA=str(bad),
    )
    assert "EVERSPOT_DATA" in text and "Fashion-MNIST cannot be had" in text


def test_a_pulumi_on_the_path_is_taken_only_if_it_fits(run_setup, checkout):
    for version, fits in (("v3.100.0", False), ("v3.999.0", True), ("v4.0.0", False)):
        pulumi = checkout / "pulumi"
        pulumi.write_text(f"#!/bin/sh\necho {version}\n")
        (checkout / "pulumi-language-python").write_text("#!/bin/sh\n")
        for path in (pulumi, checkout / "pulumi-language-python"):
            path.chmod(0o755)
        text = run_setup("import engine; print(engine.on_path())", PATH=f"{checkout}:/bin")
        assert (str(pulumi) in text) == fits


def test_a_step_is_done_once_and_again_when_its_source_changes(run_setup):
    code = """
import pathlib
from steps import Step
source, product = pathlib.Path("source"), pathlib.Path("product")
source.write_text("1")
step = Step("x", (source,), lambda: [product], lambda: (product.write_text("made"), "made it")[1])
for change in ("1", "1", "2"):
    source.write_text(change)
    step.run()
product.unlink()
step.run()
"""
    assert run_setup(code).count("x: made it") == 3


def test_a_forge_without_a_c_compiler_is_told_what_to_install(run_setup, checkout):
    go = checkout / "go"
    go.write_text("#!/bin/sh\necho go version go1.26.3 linux/amd64\n")
    go.chmod(0o755)
    text = run_setup("import forge; print(forge.version()); forge.make()", PATH=str(checkout))
    assert text.startswith("1.26.") and "install a C compiler (gcc)" in text


def test_an_error_that_no_step_expects_fails_the_set_up(run_setup):
    code = """
import plan
plan.Step.fresh = lambda step: step.name != "libraries"
plan.libraries.step.__class__.run = lambda step: {}["nothing"] if step.name == "libraries" else None
print("status", plan.main(["aws", "libraries"]))
"""
    text = run_setup(code, PATH="/bin")
    assert "setup: libraries: KeyError: 'nothing'" in text and "status 1" in text and "setup · done" not in text


@pytest.mark.parametrize("name", ["forge", "kubernetes", "libraries", "provider-kubernetes"])
def test_what_few_targets_need_is_had_only_where_it_is_asked_for(run_setup, name):
    code = f"""
import plan
from steps import Step
plan.Step.fresh = lambda step: step.name != "{name}"
plan.forge.step.__class__.run = lambda step: print("ran", step.name)
for wanted in ([], ["aws"], ["aws", "{name}"]):
    print(wanted, plan.main(wanted))
"""
    text = run_setup(code, PATH="/bin")
    assert text.count("everything is in place") == 2 and text.count(f"needed: {name}") == 1
