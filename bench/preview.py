"""The components' cost at preview: AwsTrainingCluster compared with the same cloud resources registered one by one.

Both programs run in turn through the real engine and the provider bridge against an empty local cloud. The raw program
is recorded from the components under mocks. It has the same resources, inputs and dependencies, and no components. Both
times are divided by the number of cloud resources.
"""

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulumi
import pulumi_aws as aws
from everspot import AwsTrainingCluster, AwsTrainingClusterArgs
from pulumi import automation
from pulumi.runtime import stack as runtime

ROUNDS, LIMIT = 5, 1.2
REFERENCE = re.compile(r"<<([a-z0-9-]+)\.(\w+)>>")
ANSWERS = ("arn", "url", "name", "prefixListId", "latestVersion")
IMAGE = "ami-04681a1dbd79675a5"
SPEC: AwsTrainingClusterArgs = {
    "tags": {"Project": "bench", "Team": "bench", "Environment": "bench"},
    "zones": ["us-east-1a", "us-east-1b", "us-east-1c"],
    "image_id": IMAGE,
    "capacity": {
        "standing": {"target": 5, "on_demand_base": 1},
        "instance_types": [{"type": t} for t in ("c6i.large", "m6i.large", "m7i.large", "c6i.xlarge", "m6i.xlarge")],
    },
}


class Recorder(pulumi.runtime.Mocks):
    """Answers every output with a reference to itself, which the raw program turns back into the output."""

    def __init__(self) -> None:
        self.resources: list[dict[str, Any]] = []

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        if not args.typ.startswith("everspot:"):
            self.resources.append({"type": args.typ, "name": args.name, "inputs": args.inputs})
        return f"<<{args.name}.id>>", {**{key: f"<<{args.name}.{key}>>" for key in ANSWERS}, **args.inputs}

    def call(self, args: pulumi.runtime.MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]]]:
        return {"region": "us-east-1", "rootDeviceName": "/dev/xvda"}, []


def record() -> list[dict[str, Any]]:
    """The cloud resources of a cluster, in an order in which each comes after what it refers to."""
    recorder = Recorder()

    async def program() -> None:
        AwsTrainingCluster("bench", SPEC)

    async def body() -> None:
        pulumi.runtime.set_mocks(recorder, preview=False)
        await runtime.run_pulumi_func(program)

    asyncio.run(body())
    return recorder.resources


def raw(resources: list[dict[str, Any]]) -> Callable[[], None]:
    """A program that registers these resources without any component."""

    def program() -> None:
        aws.get_region_output()
        aws.ec2.get_ami_output(filters=[aws.ec2.GetAmiFilterArgs(name="image-id", values=[IMAGE])])
        created: dict[str, pulumi.CustomResource] = {}
        for resource in resources:
            props = {**dict.fromkeys(ANSWERS), **{k: _resolve(v, created) for k, v in resource["inputs"].items()}}
            created[resource["name"]] = pulumi.CustomResource(resource["type"], resource["name"], props)

    return program


def _resolve(value: Any, created: dict[str, pulumi.CustomResource]) -> Any:
    if isinstance(value, dict):
        return {key: _resolve(entry, created) for key, entry in value.items()}
    if isinstance(value, list):
        return [_resolve(entry, created) for entry in value]
    references = REFERENCE.findall(value) if isinstance(value, str) else []
    if not references:
        return value
    outputs = [getattr(created[name], attribute) for name, attribute in references]
    return pulumi.Output.all(*outputs).apply(lambda known: _filled(value, known))


def _filled(text: str, values: list[Any]) -> str:
    remaining = iter(values)
    return REFERENCE.sub(lambda _: str(next(remaining)), text)


def components() -> None:
    """The program with components."""
    AwsTrainingCluster("bench", SPEC)


def seconds(program: Callable[[], None], name: str, env: dict[str, str], home: Path) -> float:
    """How long one preview of an empty stack takes."""
    work = automation.LocalWorkspaceOptions(env_vars=env, work_dir=str(home))
    stack = automation.create_or_select_stack(name, "bench", program, opts=work)
    stack.set_all_config(
        {key: automation.ConfigValue(value) for key, value in
         {"aws:region": "us-east-1", "aws:s3UsePathStyle": "true", "aws:skipCredentialsValidation": "true"}.items()}
    )  # fmt: skip
    begun = time.perf_counter()
    stack.preview(color="never")
    return time.perf_counter() - begun


def measure(env: dict[str, str], home: Path) -> dict[str, Any]:
    """The figure, medians of alternating rounds after one that is not counted."""
    resources = json.loads(subprocess.check_output([sys.executable, __file__, "--record"], text=True))
    programs = {"components": components, "raw": raw(resources)}
    times: dict[str, list[float]] = {name: [] for name in programs}
    for round_number in range(ROUNDS + 1):
        for name, program in programs.items():
            took = seconds(program, name, env, home)
            if round_number:
                times[name].append(took)
    with_components, without = statistics.median(times["components"]), statistics.median(times["raw"])
    count = len(resources)
    return {
        "name": "preview.per_resource_ratio",
        "value": round(with_components / without, 3),
        "limit": LIMIT,
        "unit": "ratio",
        "note": f"{count} cloud resources: {with_components / count * 1000:.0f} ms each with components, "
        f"{without / count * 1000:.0f} ms without; medians of {ROUNDS} previews in turn",
    }


def main() -> int:
    """Print the figure as one JSON line; 1 when it is over its limit."""
    if "--record" in sys.argv:
        print(json.dumps(record()))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        local = [sys.executable, "-m", "everspot_local.main"]
        state = ["--state-dir", str(home / "local")]
        subprocess.run([*local, "up", "--no-processes", *state], check=True, stdout=subprocess.DEVNULL)
        try:
            env = json.loads(subprocess.check_output([*local, "env", "--json", *state], text=True))
            os.environ.update(env)
            (home / "work").mkdir()
            figure = measure(env, home / "work")
        finally:
            subprocess.run([*local, "down", *state], check=True, stdout=subprocess.DEVNULL)
    print(json.dumps(figure))
    return int(figure["value"] > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
