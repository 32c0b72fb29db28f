"""A set-up for one cloud runs that cloud's programs without the other cloud's provider, although both SDKs are
installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine
TOOLCHAIN = Path(__file__).resolve().parents[2] / ".everspot" / "toolchain"
PROGRAMS = {
    "aws": 'import pulumi_aws\npulumi_aws.Provider("own", region="us-east-1", skip_credentials_validation=True)\n',
    "gcp": 'import pulumi_gcp\npulumi_gcp.Provider("own", project="p", region="europe-west4", access_token="t")\n',
}


@pytest.mark.parametrize(
    ("cloud", "other"),
    [("aws", "gcp"), pytest.param("gcp", "aws", marks=pytest.mark.nightly)],  # the same steps with the other names
)
def test_a_program_of_one_cloud_runs_without_the_others_provider(tmp_path: Path, cloud: str, other: str) -> None:
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    own = plugins / f"pulumi-resource-{cloud}"  # no link: the real one looks for the rest from where it lies
    own.write_text(f'#!/bin/sh\nexec {TOOLCHAIN}/plugins/{own.name} "$@"\n')
    own.chmod(0o755)
    (tmp_path / "__main__.py").write_text(PROGRAMS[cloud])
    (tmp_path / "Pulumi.yaml").write_text(
        f"name: one\nruntime: {{name: python, options: {{virtualenv: {sys.prefix}}}}}\n"
    )
    (tmp_path / "state").mkdir()
    system = str(Path(shutil.which("sh") or "/bin/sh").parent)
    env = {
        "PATH": os.pathsep.join([str(TOOLCHAIN / "bin"), str(plugins), str(Path(sys.executable).parent), system]),
        "PULUMI_HOME": str(tmp_path / "home"), "PULUMI_BACKEND_URL": f"file://{tmp_path / 'state'}",
        "PULUMI_CONFIG_PASSPHRASE": "", "PULUMI_SKIP_UPDATE_CHECK": "1", "HOME": str(tmp_path),
    }  # fmt: skip
    assert shutil.which(f"pulumi-resource-{other}", path=env["PATH"]) is None
    for command in (["stack", "init", "s"], ["preview", "--stack", "s", "--non-interactive", "--color=never"]):
        done = subprocess.run(
            ["pulumi", *command], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert f"pulumi:providers:{cloud}" in done.stdout
