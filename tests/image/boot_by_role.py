"""The boot command of a cluster whose agents are slow or large machines: its scheduler stays a process.

`boot_by_role.py COMMAND…`: what an agent's instance runs.
"""

import json
import os
import sys
import urllib.request


def fetch(path: str, method: str, headers: dict[str, str]) -> str:
    url = f"{os.environ['AWS_EC2_METADATA_SERVICE_ENDPOINT'].rstrip('/')}/latest/{path}"
    with urllib.request.urlopen(urllib.request.Request(url, method=method, headers=headers), timeout=30) as answer:
        return str(answer.read().decode())


token = fetch("api/token", "PUT", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
manifest = json.loads(fetch("user-data", "GET", {"X-aws-ec2-metadata-token": token}))
scheduler = [sys.executable, "-m", "everspot_train.agent.main"]
command = sys.argv[1:] if manifest["role"] == "agent" else scheduler
os.execv(command[0], command)
