"""What the attacking programs share: who attacks whom, and the documents that a job must not be able to write."""

import json
import os
from pathlib import Path

CONTROL, DATA = os.environ["ATTACK_CONTROL"], os.environ["ATTACK_DATA"]
OWN, VICTIM = os.environ["ATTACK_OWN"], os.environ["ATTACK_VICTIM"]
EPOCH = json.loads((Path(os.environ["EVERSPOT_RUN_DIR"]) / "run.json").read_text())["epoch"]
WRITES = {
    "overwrite another job's head": f"heads/{VICTIM}.json",
    "write a record": f"records/{VICTIM}.json",
    "write one's own record": f"records/{OWN}.json",
    "write an assignment": "assignments/i-1.json",
    "write the ledger": "ledger/launches/i-1.json",
    "submit a job": "jobs/free-of-charge.json",
    "cancel a job": f"cancels/{VICTIM}.json",
    "write events of another job": f"events/{VICTIM}/000001-trainer-000001.json",
    "write the agent's events": f"events/{OWN}/000001-i-1-000001.json",
    "write events of another attempt": f"events/{OWN}/000009-trainer-i-1-000001.json",
    "change the cluster": "cluster.json",
    "set budgets": "budgets.json",
    "drain": "drain.json",
}
"""Keys of the control bucket, by what writing them would do."""
