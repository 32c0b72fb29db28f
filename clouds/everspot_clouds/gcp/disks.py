"""Which boot disks a machine type takes.

Source: Compute Engine documentation, "Persistent Disk" and "Hyperdisk", machine series support. Others have met the
refusals: nextflow-io/nextflow pull request 6841 (C4 and N4 with their kin), DataBiosphere/dsub issue 301 (N4: "features
are not compatible for creating instance").
"""

BOOT_DISKS = ("pd-balanced", "pd-ssd", "hyperdisk-balanced")
"""The types of boot disks that the settings offer. The first is the default."""
_PERSISTENT, _HYPERDISK = BOOT_DISKS[:2], BOOT_DISKS[2:]
_NO_HYPERDISK = frozenset({"a2", "c2", "c2d", "e2", "f1", "g1", "g2", "n1", "n2", "n2d", "t2a", "t2d"})
_NO_PERSISTENT = frozenset({"a4", "a4x", "c4", "c4a", "c4d", "c4n", "g4", "h4d", "m4", "m4n", "n4", "n4a", "n4d", "x4"})
_ULTRA = "a3-ultragpu-"
"""The one line of A3 without Persistent Disk."""


def boot_disks(machine: str) -> tuple[str, ...]:
    """Return those of `BOOT_DISKS` that a machine type takes; all of them if its series is not known."""
    series = machine.partition("-")[0]
    if series in _NO_HYPERDISK:
        return _PERSISTENT
    return _HYPERDISK if series in _NO_PERSISTENT or machine.startswith(_ULTRA) else BOOT_DISKS


def boot_disk(machine: str, preferred: str) -> str:
    """Return the wanted type, or the first that the machine type takes."""
    supported = boot_disks(machine)
    return preferred if preferred in supported else supported[0]
