"""What `submit` prints about a deadline, compared with figures computed by hand from a catalogue price."""

import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from everspot_core.capacity.catalogue import InstanceType, builtin
from everspot_core.cluster.manifest import Manifest
from everspot_core.jobs.changeover import Changeovers, PartTimes

JOB = """
name: late
recipe: image-classification
resources: {vcpus: 2, memory_gib: 4}
"""
LATE = JOB + "deadline: 4h\nexpected_duration: 4h\n"
READ_AT_SUBMISSION = ["get cluster.json", "list clocks/", "get ledger/changeovers.json", "get prices.json"]
EARLIEST = re.compile(r"The earliest is (\d{4}-\d\d-\d\d \d\d:\d\d) UTC")


@pytest.mark.parametrize(
    ("options", "folder", "field"),
    [(("--env", "A=caf\udce9"), "job", "env.A"), ((), "caf\udce9", "code"), ((), "job", None)],
)
def test_bytes_that_are_no_utf8_are_refused_by_field_before_anything_is_written(
    world, tmp_path, options, folder, field
):
    """Given a variable or a folder that is not UTF-8, when a job is submitted, then the error names it. The name of a
    user is only readable."""
    place = tmp_path / folder
    (place / "src").mkdir(parents=True)
    (place / "src/train.py").write_text("checkpoints")
    (place / "job.yaml").write_text("name: x\nentrypoint: [train.py]\ncode: src\n")
    answer = world.run("submit", str(place / "job.yaml"), *options, env={"LOGNAME": "b\udce9"})
    if field is None:
        assert [doc.value.submitted_by for doc in world.store.jobs.scan().values()] == ["b\N{REPLACEMENT CHARACTER}"]
    else:
        assert (answer.code, list(world.store.jobs.names())) == (1, [])
        assert f"{field}: has bytes that are not UTF-8" in " ".join(answer.err.split())


def declare(world, **kind) -> None:
    """A type of the cluster's own."""
    own = InstanceType(name="own.type", **kind)
    world.store.write_manifest(
        Manifest.model_validate({**world.store.manifest().model_dump(), "instance_types": [own]})
    )


def written(world) -> set[Path]:
    """All files but the locks of the folder store, which the measurement of the clock takes."""
    return {path for path in world.root.rglob("*") if path.is_file() and ".everspot-store" not in path.parts}


@pytest.mark.parametrize("where", [(), ("--dry-run",)])
def test_a_deadline_that_cannot_be_kept_is_refused_before_anything_is_written(world, spec_file, tmp_path, where):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print('hello')\n")
    path = spec_file(LATE.replace("recipe: image-classification", "entrypoint: [train.py]\ncode: src"))
    before, began = written(world), datetime.now(UTC)
    answer = world.run("submit", str(path), *where)
    assert answer.code == 1
    assert "job.yaml: the deadline cannot be kept" in answer.err
    assert "  deadline: " in answer.err
    assert "up to 4h and the changeover before it up to 15m10s, 15m10s more than there is" in answer.err
    earliest = datetime.strptime(EARLIEST.search(answer.err)[1], "%Y-%m-%d %H:%M").replace(tzinfo=UTC)
    assert timedelta(hours=4.25) <= earliest - began < timedelta(hours=4.25, minutes=3)
    # c6i.large, the cheapest that holds it in us-east-1: 0.085 x 4.25 h
    assert builtin().on_demand("c6i.large", "us-east-1").usd_per_hour == 0.085
    assert "for about $0.36 on-demand (c6i.large in us-east-1)" in answer.err
    assert "hint: `deadline: 4h16m` or more can be kept" in answer.err
    assert written(world) == before | {path, tmp_path / "src" / "train.py"}


def test_force_takes_a_deadline_that_cannot_be_kept_and_says_what_that_means(world, spec_file):
    path = str(spec_file(LATE))
    assert "--force submits it all the same" in world.run("submit", path).err
    answer = world.run("submit", path, "--force")
    assert answer.code == 0
    assert "warning: the deadline, " in answer.err
    assert "15m10s more than there is; it runs on-demand immediately" in answer.err
    (doc,) = world.store.jobs.scan().values()
    assert doc.value.forced is True
    assert len(world.run("--json", "submit", path, "--force").json["warnings"]) == 1
    assert world.run("submit", path, "--force", "--dry-run").code == 0


def test_a_deadline_that_has_passed_is_refused_whatever_its_author_says(world, spec_file):
    path = str(spec_file(LATE.replace("deadline: 4h", "deadline: 2020-01-01T00:00:00Z")))
    answer = world.run("submit", path, "--force")
    assert answer.code == 1
    assert "has passed already" in answer.err
    assert "--force" not in answer.err


def measured(world, **parts) -> None:
    """Forty times so many seconds for each part."""
    pool = {"instance_type": "c6i.large", "zone": "us-east-1a", "market": "spot"}
    times = [PartTimes(part=part, seconds=[seconds] * 40, **pool) for part, seconds in parts.items()]
    world.store.notes.changeovers.write(Changeovers(updated_at=datetime.now(UTC), times=times))


@pytest.mark.parametrize("where", [(), ("--dry-run",)])
def test_what_changeovers_took_here_counts_and_not_a_quarter_of_an_hour(world, spec_file, where):
    parts = ("launch", "boot", "agent", "data", "restore", "save")
    measured(world, **dict.fromkeys(parts, 20.0))
    early = str(spec_file(LATE.replace("deadline: 4h", "deadline: 4h8m")))
    assert world.run("submit", early, *where).code == 0  # six parts of 25 s, and a little of what was believed before
    measured(world, **dict.fromkeys(parts, 200.0))
    late = str(spec_file(LATE.replace("deadline: 4h", "deadline: 4h16m")))
    answer = world.run("submit", late, *where)
    assert answer.code == 1
    assert "the changeover before it up to 24m43s" in answer.err  # six of 250 s at most, and a first step


def test_a_few_slow_starts_refuse_no_file_that_was_accepted_before_them(world, spec_file):
    parts = ("launch", "boot", "agent", "data", "restore", "first-step", "save")
    measured(world, **dict.fromkeys(parts, 20.0))
    path = str(spec_file(LATE.replace("deadline: 4h", "deadline: 4h6m")))
    first = world.run("--json", "submit", path)
    assert first.code == 0
    pool = {"instance_type": "c6i.large", "zone": "us-east-1a", "market": "spot"}
    times = [PartTimes(part=part, seconds=[20.0] * 30 + [3600.0] * 10, **pool) for part in parts]
    world.store.notes.changeovers.write(Changeovers(updated_at=datetime.now(UTC), times=times))
    again = world.run("--json", "submit", path)
    assert again.code == 0
    bounds = {name: doc.value.changeover_bound for name, doc in world.store.jobs.scan().items()}
    assert bounds[first.json["job_id"]] == bounds[again.json["job_id"]] < timedelta(minutes=6)


def test_the_figures_of_a_refusal_are_whole_minutes_and_in_a_dry_run_it_comes_last(world, spec_file):
    path = spec_file(LATE.replace("expected_duration: 4h", "expected_duration: 3h57m57.7969s"))
    answer = world.run("submit", str(path.rename(path.with_name("odd.yaml"))), "--set", "deadline=4h")
    assert "hint: `deadline: 4h14m` or more can be kept" in answer.err
    assert "the work takes up to 3h57m58s and" in answer.err
    command = [sys.executable, "-m", "everspot_cli.main", "--store", world.url, "submit", str(spec_file(LATE))]
    done = subprocess.run(
        [*command, "--dry-run"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=60
    )
    *_, blank, error, problem, hint = done.stdout.splitlines()
    assert (done.returncode, blank) == (1, "")
    assert error.endswith("job.yaml: the deadline cannot be kept: it would not be submitted")
    assert problem.startswith("  deadline: ") and hint.startswith("hint: `deadline: 4h16m` or more")


def test_what_the_hint_says_is_taken(world, spec_file):
    answer = world.run("submit", str(spec_file(LATE.replace("deadline: 4h", "deadline: 4h16m"))))
    assert (answer.code, answer.err) == (0, "")
    assert len(world.store.jobs.scan()) == 1


def test_the_refusal_is_json_of_the_same_shape_as_every_error(world, spec_file):
    answer = world.run("--json", "submit", str(spec_file(LATE)))
    assert (answer.code, answer.out) == (1, "")
    error = json.loads(answer.err)
    assert set(error) == {"error", "hint", "problems", "exit_code"}
    assert error["exit_code"] == 1
    (problem,) = error["problems"]
    assert problem["field"] == "deadline"
    assert EARLIEST.search(problem["problem"])
    assert "$0.36" in problem["problem"]
    assert world.store.jobs.scan() == {}


def test_a_type_that_the_cluster_declares_gives_the_price(world, spec_file):
    declare(world, vcpus=500, memory_gib=64, on_demand_usd_per_hour=8)
    answer = world.run("submit", str(spec_file(LATE.replace("vcpus: 2", "vcpus: 400"))))
    assert "for about $34.02 on-demand (own.type in us-east-1)" in answer.err  # 8 x 4.25 h and a tick


def test_without_a_price_the_cost_is_left_out(world, spec_file):
    answer = world.run("submit", str(spec_file(LATE.replace("vcpus: 2", "vcpus: 5000"))))
    assert answer.code == 1
    assert EARLIEST.search(answer.err)
    assert "$" not in answer.err


def test_a_deadline_without_an_expected_duration_is_taken_with_a_warning(world, spec_file):
    path = str(spec_file(JOB + "deadline: 4h\n"))
    for arguments in (("submit", path), ("submit", path, "--dry-run")):
        answer = world.run(*arguments)
        assert answer.code == 0
        assert "warning: without expected_duration" in answer.err
        assert "does not wait for spot" in answer.err
        json_answer = world.run("--json", *arguments)
        assert json_answer.err == ""
        (warning,) = json_answer.json["warnings"]
        assert "does not wait for spot" in warning
    assert json_answer.json["deadline"]["feasible"] is None


def test_a_job_that_arrives_in_time_or_has_no_deadline_is_taken_without_a_word(world, spec_file):
    for text in (JOB, JOB + "expected_duration: 4h\n", LATE.replace("deadline: 4h", "deadline: 1d")):
        answer = world.run("--json", "submit", str(spec_file(text)))
        assert (answer.code, answer.err) == (0, "")
        assert answer.json["warnings"] == []


def test_more_threads_than_vcpus_cause_a_warning(world, spec_file):
    for vcpus, threads, warned in ((1, "2", True), (2, "2", False), (2, "many", False), (4, "64", True)):
        path = str(spec_file(f"name: a\nrecipe: image-classification\nresources: {{vcpus: {vcpus}}}\n"))
        for more in ((), ("--dry-run",)):
            answer = world.run("submit", path, "--env", f"OMP_NUM_THREADS={threads}", *more)
            assert answer.code == 0
            warning = f"warning: OMP_NUM_THREADS={threads} is more than the {vcpus} vCPU"
            assert (warning in answer.err) is warned


@pytest.mark.parametrize(
    ("vcpus", "processes", "threads", "warning"),
    [
        (2, 2, None, None),
        (2, 3, None, "processes: 3 are more than the 2 vCPUs that the job asks for"),
        (4, 2, "2", None),
        (4, 2, "4", "OMP_NUM_THREADS=4 in each of 2 processes is more than the 4 vCPUs that the job asks for"),
    ],
)
def test_more_processes_than_vcpus_cause_a_warning(world, spec_file, vcpus, processes, threads, warning):
    text = f"name: a\nrecipe: image-classification\nprocesses: {processes}\nresources: {{vcpus: {vcpus}}}\n"
    options = ("--env", f"OMP_NUM_THREADS={threads}") if threads else ()
    answer = world.run("--json", "submit", str(spec_file(text)), *options)
    assert answer.code == 0, answer.err
    assert [text[: len(warning or "")] for text in answer.json["warnings"]] == ([warning] if warning else [])


def test_sharing_where_nothing_is_shared_causes_a_warning(world, spec_file):
    path = str(spec_file("name: a\nrecipe: image-classification\nresources: {shared: true}\n"))
    for allowed in (False, True):
        world.store.write_manifest(world.store.manifest().model_copy(update={"shared_instances": allowed}))
        for more in ((), ("--dry-run",)):
            answer = world.run("submit", path, *more)
            assert answer.code == 0
            assert ("warning: resources.shared does nothing here" in answer.err) is not allowed


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_job_with_an_image_is_refused_where_instances_make_no_containers(world, spec_file, tmp_path, more):
    (tmp_path / "layout").mkdir()
    (tmp_path / "layout/index.json").write_text("{}")
    world.run("data", "put", str(tmp_path / "layout"), "mine")
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text("print('checkpoints')\n")
    path = str(spec_file("name: a\nimage: mine\ncode: src\nentrypoint: [train.py]\n"))
    for allowed, code in ((None, 0), (True, 0), (False, 1)):
        world.store.write_manifest(world.store.manifest().model_copy(update={"job_images": allowed}))
        answer = world.run("submit", path, *more)
        assert answer.code == code, answer.err
        assert ("image: jobs of" in answer.err) is (allowed is False)
    assert "which may not make containers" in answer.err and "leave out image" in answer.err
    assert "set jobImages: true in the stack's settings" in answer.err
    for allowed in (None, True):
        world.store.write_manifest(world.store.manifest().model_copy(update={"job_images": allowed}))
        answer = world.run("submit", path, *more, "--set", "resources.gpus=1", "--dry-run")
        assert ("which have no CDI specification" in answer.err) is (allowed is True)


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_an_image_of_a_repository_that_the_settings_do_not_name_is_refused(world, spec_file, tmp_path, more):
    repository = "123456789012.dkr.ecr.us-east-1.amazonaws.com/team/train"
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text("print('checkpoints')\n")
    path = str(spec_file(f"name: a\nimage: {repository}@sha256:{'a' * 64}\ncode: src\nentrypoint: [train.py]\n"))
    for allowed, code in (([repository], 0), (None, 1), ([f"{repository}-2"], 1)):
        world.store.write_manifest(world.store.manifest().model_copy(update={"image_repositories": allowed}))
        answer = world.run("submit", path, *more)
        assert answer.code == code, answer.err
        assert ("may not fetch the image" in answer.err) is bool(code)
    assert f"image: {repository}: " in answer.err and f"allows {repository}-2" in answer.err
    assert "name the repository in imageRepositories of the stack's settings" in answer.err


@pytest.mark.parametrize(
    ("internet", "secret", "env", "warning"),
    [
        (False, "WANDB_API_KEY", "", "do not reach Weights & Biases (api.wandb.ai)"),
        (False, "HF_TOKEN", "", "or, without one, set env HF_HUB_OFFLINE=1"),
        (False, "HF_TOKEN", "HF_HUB_OFFLINE: '1'", None),
        (False, "WANDB_API_KEY", "WANDB_BASE_URL: http://wandb.internal", None),
        (False, "OWN_TOKEN", "", None),
        (True, "WANDB_API_KEY", "", None),
        (None, "WANDB_API_KEY", "", None),
    ],
)
def test_a_secret_of_a_service_that_jobs_do_not_reach_causes_a_warning(
    world, spec_file, internet, secret, env, warning
):
    world.store.write_manifest(world.store.manifest().model_copy(update={"internet": internet}))
    text = f"name: a\nrecipe: image-classification\nsecrets: {{{secret}: 'ssm:/token'}}\nenv: {{{env}}}\n"
    answer = world.run("--json", "submit", str(spec_file(text)))
    assert answer.code == 0, answer.err
    about_secret = [words for words in answer.json["warnings"] if words.startswith(f"secrets.{secret}: jobs of ")]
    assert bool(about_secret) == (warning is not None)
    assert warning is None or warning in about_secret[0]


def test_dry_run_tells_slack_and_the_last_safe_moment(world, spec_file):
    path = str(spec_file(LATE.replace("deadline: 4h", "deadline: 2099-01-02T12:00:00Z")))
    text = world.run("submit", path, "--dry-run").out
    assert "The deadline, 2099-01-02 12:00 UTC, can be kept with " in text
    assert "on-demand has to begin by 2099-01-02 07:44 UTC at the latest" in text  # 12:00 less 4 h, 15 min and a tick
    began = datetime.now(UTC)
    deadline = world.run("--json", "submit", path, "--dry-run").json["deadline"]
    assert deadline["feasible"] is True
    assert deadline["on_demand_by"] == "2099-01-02T07:44:50Z"
    wait = datetime(2099, 1, 2, 7, 45, tzinfo=UTC) - began
    assert 0 <= wait.total_seconds() - deadline["slack_seconds"] < 120
    assert deadline["earliest_on_demand_usd"] == pytest.approx(0.085 * (4.25 + 10 / 3600))
    assert (deadline["instance_type"], deadline["region"]) == ("c6i.large", "us-east-1")


def test_dry_run_of_an_infeasible_job_answers_json_and_then_fails(world, spec_file):
    answer = world.run("--json", "submit", str(spec_file(LATE)), "--dry-run")
    assert answer.code == 1
    deadline = answer.json["deadline"]
    assert (deadline["feasible"], deadline["slack_seconds"], deadline["on_demand_by"]) == (False, -910, None)
    late = datetime.fromisoformat(deadline["earliest"]) - datetime.fromisoformat(deadline["at"])
    assert late == timedelta(minutes=15, seconds=10)
    assert json.loads(answer.err)["problems"][0]["field"] == "deadline"
    assert world.run("--json", "submit", str(spec_file(JOB)), "--dry-run").json["deadline"] is None


def test_a_deadline_that_has_passed_names_the_one_that_could_be_kept(world, spec_file):
    answer = world.run("submit", str(spec_file(LATE.replace("deadline: 4h", "deadline: 2020-01-01T00:00:00Z"))))
    assert answer.code == 1
    assert "deadline: 2020-01-01 00:00 UTC has passed already. The earliest is" in answer.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (JOB + "deadline: 9999999d\n", "deadline: a duration lies between 0s and 3650d, not '9999999d'"),
        (
            LATE.replace("expected_duration: 4h", "expected_duration: 9999999d"),
            "expected_duration: a duration lies between 0s",
        ),
    ],
)
def test_spans_beyond_every_calendar_are_refused(world, spec_file, text, words):
    answer = world.run("submit", str(spec_file(text)))
    assert answer.code == 1
    assert words in answer.err
    assert "Traceback" not in answer.err
    assert world.store.jobs.scan() == {}


def test_a_submission_reads_nothing_but_the_clusters_manifest_clock_prices_and_changeovers(world, spec_file):
    world.beat("i-spot2")
    world.offer("c6i.large", "m7i.large")
    script = (
        "import sys; from everspot_store.bucket import Bucket; from everspot_cli.main import main\n"
        "def told(name, call):\n"
        "    return lambda self, key='', *rest: print(name, key, file=sys.stderr) or call(self, key, *rest)\n"
        "for name in ('get', 'list', 'download'):\n"
        "    setattr(Bucket, name, told(name, getattr(Bucket, name)))\n"
        "main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", script, "--store", world.url, "submit"]
    for text, code in ((LATE, 1), (LATE.replace("deadline: 4h", "deadline: 1d"), 0)):
        done = subprocess.run([*command, str(spec_file(text))], capture_output=True, text=True, check=False, timeout=60)
        read = [line for line in done.stderr.splitlines() if line.startswith(("get ", "list ", "download "))]
        # Whether the cluster is about to be deleted is read right before the job is created.
        drain = [] if code else ["get drain.json"]
        assert (done.returncode, read) == (code, [*READ_AT_SUBMISSION, *drain])
