"""The order of the steps: those of Python and Go run in parallel, since one waits for the network while the other
computes."""

import sys
import time
from collections.abc import Sequence

import control_plane
import dataset
import engine
import environment
import forge
import kubernetes_plugin
import libraries
import provider
from steps import Step, chain, print_progress, report

USUAL = ("aws",)
FURTHER = {step.name: step for step in (forge.step, control_plane.step, kubernetes_plugin.step, libraries.step)}
"""What only some targets need, and is had where it is named."""


def main(selection: Sequence[str] = ()) -> int:
    """Run all steps that are needed; return the exit status. `selection`: the clouds whose providers are installed,
    `forge` for that of `make review-demo`, `kubernetes` for the control plane of the local Kubernetes,
    `provider-kubernetes` for Pulumi's provider, and `libraries` for users' own storage libraries."""
    began = time.monotonic()
    clouds = [each for each in selection if each not in FURTHER] or USUAL
    last = [FURTHER[each] for each in dict.fromkeys(selection) if each in FURTHER]
    unknown = sorted(set(clouds) - set(provider.steps))
    if unknown:
        return report([f"no cloud {', '.join(unknown)}; there are {', '.join(provider.steps)} (CLOUD=...)"])
    failures: list[str] = []
    providers = [provider.steps[cloud] for cloud in dict.fromkeys(clouds)]
    needed = [
        s for s in (environment.venv, dataset.step, engine.step, *providers, *last, *_last(clouds)) if not s.fresh()
    ]
    if not needed:
        print_progress("everything is in place")
        return 0
    print_progress(f"needed: {', '.join(s.name for s in needed)}")
    with_python = [step for step in last if step is libraries.step]
    built = [step for step in last if step is not libraries.step]
    python_side = chain([environment.venv, *with_python, dataset.step], failures)
    threads = [python_side, chain([engine.step, *providers, *built], failures)]
    for thread in threads:
        thread.join()
    if not failures:
        chain(_last(clouds), failures).join()
    if not failures:
        print_progress(f"done ({time.monotonic() - began:.0f} s)")
    return report(failures)


def _last(clouds: Sequence[str]) -> list[Step]:
    """What needs both sides, and only a bridge."""
    bridged = any(not provider.PLUGINS_OF[cloud].official_in_place() for cloud in clouds)
    return [environment.stubs] if bridged else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
