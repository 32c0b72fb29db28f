"""Boots an instance as the image does, or an agent as the file that the first argument names says for its market.

`silent`: no agent starts. `no-metadata`: the agent does not reach the metadata service. The scheduler always boots
well.
"""

import base64
import json
import os
import sys
import time
import urllib.request
from pathlib import Path

SERVICE = "AWS_EC2_METADATA_SERVICE_ENDPOINT"


def read_metadata(path: str) -> bytes:
    call = urllib.request.Request(f"{os.environ[SERVICE]}/latest/api/token", method="PUT")
    call.add_header("X-aws-ec2-metadata-token-ttl-seconds", "60")
    with urllib.request.urlopen(call, timeout=60) as answer:
        token = answer.read().decode()
    call = urllib.request.Request(f"{os.environ[SERVICE]}/latest/{path}")
    call.add_header("X-aws-ec2-metadata-token", token)
    with urllib.request.urlopen(call, timeout=60) as answer:
        return bytes(answer.read())


def read_role() -> str:
    """The role in the user data."""
    text = read_metadata("user-data")
    return str(json.loads(text if text.startswith(b"{") else base64.b64decode(text))["role"])


def main() -> None:
    if read_role() == "agent":
        mode = json.loads(Path(sys.argv[1]).read_text())[read_metadata("meta-data/instance-life-cycle").decode()]
        if mode == "silent":
            time.sleep(3600)
        if mode == "no-metadata":
            os.environ[SERVICE] = "http://127.0.0.1:9"  # the discard port: nothing listens
    os.execv(sys.executable, [sys.executable, "-m", "everspot_train.agent.main"])


main()
