#!/usr/bin/env python3
"""Write the catalogue that comes with Everspot, core/everspot_core/data/, from the tables in tools/catalogue_data/.

catalogue.py            write
catalogue.py --check    exit with 1 if a file is not what the tables say

types.csv has the resources of each instance type, prices.csv what a type costs in a region. A type without a price is
in the catalogue all the same. Where each figure comes from is in core/everspot_core/data/sources.json.
"""

import csv
import io
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLES = ROOT / "tools/catalogue_data"
WRITTEN = ROOT / "core/everspot_core/data"
CATALOGUE_CLOUDS = ("aws", "gcp")

RESOURCES = (
    "instance_type", "arch", "vcpus", "memory_gib", "gpu", "gpus", "gpu_memory_gib", "local_nvme_gb", "network_gbps",
    "efa_interfaces", "nvswitch",
)  # fmt: skip
PRICES = ("on_demand_usd_per_hour", "spot_usd_per_hour_min", "spot_usd_per_hour_max", "zones", "note", "source")


def read(name: str) -> list[dict[str, str]]:
    """Return the rows of a table."""
    with (TABLES / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def render(cloud: str) -> str:
    """Return a cloud's file: a row for each type in each region that has a price of it, and one without a region for
    each type that none has.

    Raises:
        SystemExit: if a type stands twice in its table, or a price is of an unknown type, or stands twice.
    """
    types = {row["instance_type"]: row for row in read("types.csv") if row["cloud"] == cloud}
    prices = [row for row in read("prices.csv") if row["cloud"] == cloud]
    places = [(row["instance_type"], row["region"]) for row in prices]
    names = [row["instance_type"] for row in read("types.csv")]
    twice = {place for place in places if places.count(place) > 1} | {name for name in names if names.count(name) > 1}
    strangers = {name for name, _ in places} - types.keys()
    if twice or strangers:
        raise SystemExit(f"tools/catalogue_data: twice: {sorted(map(str, twice))}; unknown types: {sorted(strangers)}")
    unpriced = [{"instance_type": name, "region": ""} for name in types if name not in {each for each, _ in places}]
    text = io.StringIO()
    writer = csv.DictWriter(text, ["region", *RESOURCES, *PRICES], restval="", lineterminator="\n")
    writer.writeheader()
    for row in [*prices, *unpriced]:
        resources = {key: types[row["instance_type"]][key] for key in RESOURCES}
        writer.writerow({"region": row["region"], **resources, **{key: row.get(key, "") for key in PRICES}})
    return text.getvalue()


def main() -> None:
    """Write or check."""
    expected = {WRITTEN / f"{cloud}.csv": render(cloud) for cloud in CATALOGUE_CLOUDS}
    if "--check" in sys.argv[1:]:
        stale = [str(path.relative_to(ROOT)) for path, text in expected.items() if path.read_text("utf-8") != text]
        if stale:
            raise SystemExit(f"not what tools/catalogue_data says, run tools/catalogue.py: {', '.join(stale)}")
        return
    for path, text in expected.items():
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
