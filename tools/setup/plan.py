"""The order of things: Python's side and Go's go on at once, the one waits for the network while the other computes."""

import sys
import time

import dataset
import engine
import environment
import provider
from steps import chain, report, say


def main() -> int:
    """Run all steps that are needed; return the exit status."""
    began = time.monotonic()
    failures: list[str] = []
    steps = [environment.venv, dataset.step, engine.step, provider.step]
    if not provider.official_in_place():
        steps.append(environment.stubs)
    needed = [s for s in steps if not s.fresh()]
    if not needed:
        say("everything is in place")
        return 0
    say(f"needed: {', '.join(s.name for s in needed)}")
    threads = [chain([environment.venv, dataset.step], failures), chain([engine.step, provider.step], failures)]
    for thread in threads:
        thread.join()
    if not failures and not provider.official_in_place():
        chain([environment.stubs], failures).join()
    if not failures:
        say(f"done ({time.monotonic() - began:.0f} s)")
    return report(failures)


if __name__ == "__main__":
    sys.exit(main())
