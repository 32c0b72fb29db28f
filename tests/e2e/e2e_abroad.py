"""A cluster on the local AWS in its own process, for tests that run the local Google Cloud beside it.

`python e2e_abroad.py FOLDER HOME CONTROL_URL`: it names the cluster HOME as its peer, says its endpoint on one line
once it is laid, and lives until its standard input ends. What it is asked for there, a job's report, it answers.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from e2e_elastic import ElasticLive
from e2e_helpers import BUCKETS, CLUSTER, REGION, everspot
from everspot.aws import policies
from everspot_core.cluster.peers import Peer


def main(folder: Path, home: str, control_url: str) -> None:
    with ElasticLive(folder) as live:
        os.environ["EVERSPOT_CLOCK"] = live.cloud.market.clock.variable  # the command reckons in the market's time
        visits = [f"arn:aws:s3:::{BUCKETS[0]}/visits/*"]
        answers = policies.document([policies.allow("AnswerOffers", ["s3:PutObject"], visits)])
        live.allow("e2e-scheduler", "visits", answers)
        peer = Peer(name=home, cloud="gcp", control_url=control_url)
        live.store.write_manifest(live.store.manifest().model_copy(update={"federation": (peer,)}))
        print(json.dumps({"endpoint": live.cloud.endpoint, "clock": live.cloud.market.clock.variable}), flush=True)
        for line in sys.stdin:
            request = json.loads(line)
            print(json.dumps(json.loads(everspot("report", request["job"], "--json"))), flush=True)


class Abroad:
    """A test's handle of the process."""

    name, control_url = CLUSTER, f"s3://{BUCKETS[0]}?region={REGION}"

    def __init__(self, folder: Path, home: str, home_url: str) -> None:
        words = [sys.executable, __file__, str(folder), home, home_url]
        with (folder / "abroad.log").open("wb") as log:
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        hello = self._answer()
        self.endpoint = str(hello["endpoint"])
        self.epoch = int(hello["clock"].partition("@")[2])

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a program in the other cloud that uses this cluster's store."""
        keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        return {"AWS_ENDPOINT_URL": self.endpoint, "AWS_REGION": REGION, **keys}

    def report(self, job: str) -> Any:
        """The report of a job there."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"job": job}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the other cloud's process has ended"
        return json.loads(line)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
