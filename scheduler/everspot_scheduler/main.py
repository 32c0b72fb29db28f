"""The scheduler's command: `everspot-scheduler --manifest FILE`."""

import argparse
import logging
import secrets
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from everspot_clouds.base import CloudError
from everspot_clouds.registry import provider
from everspot_core.cluster.manifest import Manifest, left_out
from everspot_store import Store, StoreError, SystemClock, located
from pydantic import ValidationError

from everspot_scheduler.loop import Scheduler
from everspot_scheduler.watch.listen import METRICS, address, usual, watchers

_log = logging.getLogger(__name__)


def main(argv: list[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT. Exit status 0; 2 if the manifest, the store or the cloud cannot be used."""
    options, stop = _parse(argv), _stop_on_signals()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        text = options.manifest.read_bytes()
        manifest = located(Manifest.read(text))
        for problem in left_out(text):
            _log.warning("%s: %s: left out", options.manifest, problem)
        clock = SystemClock.from_environment()
        store = Store.open(manifest.control_url, manifest.data_url, clock=clock)
        cloud = provider(manifest.cloud).scheduling(manifest, store)
    except (OSError, ValidationError, ValueError, StoreError, CloudError) as error:
        _log.critical("the scheduler cannot start: %s", error)
        return 2
    scheduler_id = options.id or f"scheduler-{secrets.token_hex(4)}"
    _log.info("%s begins for cluster %s on %s", scheduler_id, manifest.cluster, manifest.control_url)
    try:
        with watchers(_metrics(options, manifest)) as metric_watchers:
            scheduler = Scheduler(store, manifest, cloud, scheduler_id, options.instance, metric_watchers)
            if options.once:
                scheduler.tick()
            else:
                scheduler.run(stop.is_set)
    finally:
        cloud.close()
    _log.info("%s ends", scheduler_id)
    return 0


def _metrics(options: argparse.Namespace, manifest: Manifest) -> tuple[str, int] | None:
    """Return the address of the metrics: by the command line, otherwise by the manifest; None for a single tick."""
    return None if options.once else vars(options).get("metrics", usual(manifest.metrics))


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="everspot-scheduler", description="Decide which job runs where, and say so.")
    parser.add_argument("--manifest", type=Path, required=True, metavar="FILE", help="the cluster's manifest, as JSON")
    parser.add_argument("--once", action="store_true", help="one tick, then end")
    parser.add_argument("--instance", default=None, metavar="ID", help="the instance on which it runs")
    parser.add_argument("--id", default="", help="name of this scheduler; by default a random one")
    parser.add_argument(
        "--metrics", type=address, default=argparse.SUPPRESS, metavar="HOST:PORT",
        help="where Prometheus may read metrics; a port alone: on loopback; off: nowhere. Default: what the manifest "
        f"says, else {METRICS}",
    )  # fmt: skip
    return parser.parse_args(argv)


def _stop_on_signals() -> threading.Event:
    stop = threading.Event()

    def request_stop(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, request_stop)
    return stop


if __name__ == "__main__":
    sys.exit(main())
