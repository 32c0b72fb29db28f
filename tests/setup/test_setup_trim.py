"""The trimmed copy of Google's provider: its changes, and a failed build if the upstream source has another form."""

import subprocess
import sys
from pathlib import Path

import pytest

TRIM = Path(__file__).parents[2] / "tools/upstream_google/trim.py"
SERVICES = (
    "billingbudgets",
    "compute",
    "kms",
    "logging",
    "monitoring",
    "pubsub",
    "resourcemanager",
    "secretmanager",
    "storage",
    "spanner",
)
SCHEMA = 'x: {\n\t"max_run_duration": {\n\t\tType: T,\n\t\tElem: E{\n\t\t},\n\t},\n}\n'
SEND = 'if v, ok := original["max_run_duration"]; ok {\n\tresult["maxRunDuration"] = v\n}\n'
READ = 'if maxRun, ok := resp["maxRunDuration"].(map[string]interface{}); ok {\n\tm["max_run_duration"] = maxRun\n}\n'
READ_REGIONAL = 'if maxDurRaw, ok := resp["maxRunDuration"]; ok && maxDurRaw != nil {\n\tm["max_run_duration"] = 1\n}\n'
SOURCE = {
    "provider/provider_register_services.go": "".join(f'\t_ "here/google/services/{name}"\n' for name in SERVICES),
    "services/compute/resource_compute_instance_template.go": f'\t\t"scheduling.0.max_run_duration",\n{SCHEMA}',
    "services/compute/resource_compute_region_instance_template.go": SCHEMA,
    "services/compute/compute_instance_helpers.go": SEND + READ,
    "services/compute/compute_instance_http_helpers.go": READ_REGIONAL,
    "services/resourcemanager/resource_google_service_account.go": "time.Sleep(10 * time.Second)\n"
    "time.Sleep(time.Second * 5)\n",
    "tpgiamresource/iam.go": "time.Sleep(backoff)\n" * 3 + "time.Sleep(fetchBackoff)\n",
    "tpgresource/common_operation.go": "PollInterval: pollInterval,\n",
    "transport/config.go": 'const AttributionKey = "goog-terraform-provisioned"\n'
    "\terr = c.logGoogleIdentities(ctx)\n\tif err != nil {\n\t\treturn err\n\t}\n",
}


def trimmed(folder, **changed):
    """Return the script's output for a source with the given files changed; the copy is in `out`."""
    for name, text in SOURCE.items():
        path = folder / "module/google" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(changed.get(path.stem, text))
    command = [sys.executable, TRIM, folder / "module", folder / "out"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stderr


def test_the_copy_has_the_services_in_use_the_notice_and_the_clouds_time(tmp_path):
    assert trimmed(tmp_path) == ""
    google = tmp_path / "out/google"
    registered = (google / "provider/provider_register_services.go").read_text()
    assert [name for name in SERVICES if f"/{name}" not in registered] == ["spanner"]
    for name, text in SOURCE.items():
        if "compute/" in name:
            trimmed_text = (google / name).read_text()
            expected_count = text.count("max_run_duration") + text.count("maxRunDuration")
            assert (
                trimmed_text.count("preemption_notice_duration") + trimmed_text.count("preemptionNoticeDuration")
                == expected_count
            )
            assert trimmed_text.count("max_run_duration") == text.count("max_run_duration")
    waits = [google / name for name in SOURCE if "tpg" in name or "account" in name]
    assert [path.read_text().count("MarketTime(") for path in waits] == [2, 4, 1]
    assert "func MarketTime(" in (google / "transport/market_time.go").read_text()
    config = (google / "transport/config.go").read_text()
    assert "goog-pulumi-provisioned" in config and "logGoogleIdentities" not in config


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("provider_register_services", "\n", "names no ['billingbudgets', 'compute', 'kms'"),
        ("compute_instance_helpers", SEND, "0 times, not once"),
        ("compute_instance_http_helpers", READ_REGIONAL * 2, "2 times, not once"),
        ("resource_compute_region_instance_template", SCHEMA.replace("}", ""), "does not end"),
        ("iam", "time.Sleep(backoff)\n", "1 times, not 3"),
        ("common_operation", "", "0 times, not 1"),
        ("config", 'const AttributionKey = "goog-terraform-provisioned"\n', "0 times, not 1"),
    ],
)
def test_another_form_of_the_source_stops_the_build(tmp_path, file, text, problem):
    output = trimmed(tmp_path, **{file: text})
    assert "UnknownForm" in output and problem in output
