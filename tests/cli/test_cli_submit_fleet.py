"""`submit` for jobs that the cluster cannot hold or whose price is unknown; and options that replace fields of the
file."""

import json

import pytest

CPU = ("c6i.large", "m7i.xlarge")
GPU_JOB = "name: big\nrecipe: image-classification\nresources: {vcpus: 4, memory_gib: 16, gpus: 1, gpu: A10G}\n"
SMALL = "name: small\nrecipe: image-classification\nresources: {vcpus: 2, memory_gib: 4}\n"


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_gpu_job_on_a_cpu_fleet_is_refused_with_what_the_cluster_has(world, spec_file, more):
    world.offer(*CPU)
    answer = world.run("submit", str(spec_file(GPU_JOB)), *more)
    assert answer.code == 1
    assert "nothing that the cluster test has can hold this job" in answer.err
    assert "resources: m7i.xlarge has GPUs 0 of 1" in answer.err
    assert "c6i.large (2 vCPUs, 4 GiB)" in answer.err and "m7i.xlarge (4 vCPUs, 16 GiB)" in answer.err
    assert "--wait-for-capacity" in answer.err
    assert world.store.jobs.scan() == {}
    error = json.loads(world.run("--json", "submit", str(spec_file(GPU_JOB)), *more).err)
    assert error["problems"][0]["field"] == "resources"


def test_who_means_to_wait_may(world, spec_file):
    world.offer(*CPU)
    assert world.run("submit", str(spec_file(GPU_JOB)), "--wait-for-capacity", "--dry-run").code == 0
    assert world.run("submit", str(spec_file(GPU_JOB)), "--wait-for-capacity").code == 0
    assert len(world.store.jobs.scan()) == 1


def test_dry_run_offers_only_what_the_fleet_has(world, spec_file):
    world.offer(*CPU, "g5.xlarge")
    candidates = world.run("--json", "submit", str(spec_file(SMALL)), "--dry-run").json["candidates"]
    assert {c["name"] for c in candidates} == {*CPU, "g5.xlarge"}
    candidates = world.run("--json", "submit", str(spec_file(GPU_JOB)), "--dry-run").json["candidates"]
    assert [c["name"] for c in candidates] == ["g5.xlarge"]


def test_on_a_folder_the_instances_that_have_reported_are_what_there_is(world, spec_file):
    assert world.run("submit", str(spec_file(GPU_JOB))).code == 0  # not known yet
    world.beat("i-brain")  # a scheduler runs no job
    world.beat("i-spot2")
    answer = world.run("submit", str(spec_file(GPU_JOB)))
    assert answer.code == 1
    assert "the instances that have reported: m7i.large (2 vCPUs, 8 GiB)" in answer.err
    assert world.run("submit", str(spec_file(SMALL))).code == 0


def test_without_a_price_a_budget_in_dollars_is_refused_and_nothing_is_free(world, spec_file):
    world.offer("own.type", "c6i.large", name="own.type", vcpus=4, memory_gib=8)
    budget = SMALL + "budget: {dollars: 5}\n"
    answer = world.run("submit", str(spec_file(budget)))
    assert answer.code == 1
    assert "budget.dollars: no on-demand price is known in us-east-1 for own.type" in answer.err
    assert "everspot cost prices refresh" in answer.err and "onDemandUsdPerHour" in answer.err
    assert world.run("submit", str(spec_file(budget)), "--dry-run").code == 1
    answer = world.run("--json", "submit", str(spec_file(SMALL)))
    assert answer.code == 0
    (warning,) = answer.json["warnings"]
    assert "own.type" in warning and "the job's cost there is unknown" in warning
    rows = {c["name"]: c for c in world.run("--json", "submit", str(spec_file(SMALL)), "--dry-run").json["candidates"]}
    assert rows["own.type"]["on_demand_usd_per_hour"] is None
    world.offer("own.type", name="own.type", vcpus=4, memory_gib=8, on_demand_usd_per_hour=1.5)
    assert world.run("submit", str(spec_file(budget))).code == 0


def test_a_dry_run_has_the_warnings_of_a_submission_in_the_same_order(world, spec_file):
    world.offer("own.type", "c6i.large", name="own.type", vcpus=4, memory_gib=8)
    text = SMALL + "clouds: [gcp]\ndeadline: 9h\nenv: {OMP_NUM_THREADS: '64'}\n"
    dry_run, submitted = (
        world.run("--json", "submit", str(spec_file(text)), *options).json["warnings"]
        for options in (["--dry-run"], [])
    )
    assert dry_run == submitted
    assert [words.split()[0] for words in submitted] == ["OMP_NUM_THREADS=64", "no", "clouds", "without"]


def test_the_command_line_goes_before_the_file(world, spec_file):
    path = str(spec_file(SMALL + "env: {A: '1'}\nparameters: {epochs: 3}\n"))
    answer = world.run(
        "--json", "submit", path, "--name", "other", "--set", "parameters.epochs=5", "--set", "resources.vcpus=1",
        "--set", "deadline=6h", "--env", "A=2", "--env", "B_C=x=y",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    spec = world.store.jobs.get(answer.json["job_id"]).value.spec
    assert answer.json["job_id"].startswith("other-")
    assert (spec.parameters["epochs"], spec.resources.vcpus, spec.resources.memory_gib) == (5, 1, 4)
    assert spec.env == {"A": "2", "B_C": "x=y"}
    assert spec.deadline.total_seconds() == 6 * 3600


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--set", "resources.gpu"), 2, "--set FIELD=VALUE"),
        (("--env", "=x"), 2, "--env KEY=VALUE"),
        (("--set", "resources.vcpu=1"), 1, "resources.vcpu: unknown field (did you mean vcpus?)"),
        (("--set", "resources.vcpus=[1"), 1, "--set resources.vcpus is neither YAML nor JSON"),
        (("--name", "Not A Name"), 1, "name: 1 to 40 small letters"),
    ],
)
def test_what_the_command_line_says_is_checked_as_the_file_is(world, spec_file, options, code, words):
    answer = world.run("submit", str(spec_file(SMALL)), *options)
    assert (answer.code, words in answer.err) == (code, True), answer.err
    assert world.store.jobs.scan() == {}


def test_options_that_cannot_be_read_are_named_all_at_once(world, spec_file):
    options = ("--env", "FOO", "--set", "priority", "--set", "resources.vcpus=[1")
    answer = world.run("--json", "submit", str(spec_file(SMALL)), *options)
    assert answer.code == 2
    fields = [p["field"] for p in json.loads(answer.err)["problems"]]
    assert fields == ["--set priority", "--env FOO", "--set resources.vcpus"]


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_what_the_cluster_lacks_is_named_all_at_once(world, spec_file, more):
    world.offer(*CPU)
    path = spec_file(
        SMALL.replace("vcpus: 2", "vcpus: 64") + "deadline: 1h\nexpected_duration: 2h\ndatasets: [roses]\n"
    )
    answer = world.run("submit", str(path), *more)
    assert answer.code == 1
    assert "job.yaml: 3 fields are wrong for this cluster" in answer.err
    assert "resources: " in answer.err and "deadline: " in answer.err and "datasets[0]: " in answer.err
    missing = world.run("submit", str(spec_file(SMALL + "datasets: [roses]\n")), *more)
    assert (missing.code, "job.yaml: datasets are missing" in missing.err) == (3, True)
    assert world.store.jobs.scan() == {}


def test_a_job_counts_for_the_team_of_the_stack_unless_it_names_its_own(world, spec_file):
    world.store.write_manifest(world.store.manifest().model_copy(update={"team": "Vision & Robotics"}))
    own = SMALL.replace("small", "own") + "tags: {Team: audio, Environment: dev}\n"
    for text in (SMALL, own):
        assert world.run("submit", str(spec_file(text))).code == 0
    tags = {doc.value.spec.name: doc.value.spec.tags for doc in world.store.jobs.scan().values()}
    assert tags == {"small": {"Team": "Vision & Robotics"}, "own": {"Team": "audio", "Environment": "dev"}}
