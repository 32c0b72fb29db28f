"""The steps of the review demonstration, and the promise that each step checks."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pulumi import automation

from everspot_local.demo.aws import client
from everspot_local.demo.checks import Check
from everspot_local.demo.phases import Phases
from everspot_local.demo.review.gitea import OWNER, Gitea
from everspot_local.demo.review.hub import ForgeRefused, Hub, Run
from everspot_local.demo.review.tree import Tree
from everspot_local.demo.world import DemoWorld

ACTIONS = Path(__file__).parent / "actions"
STACKS = ("account", "local")
SECRET = "hunter2-of-the-planted-secret"  # noqa: S105 - planted, and looked for at the end
BUDGET = 2000
"""USD a month that the cluster may cost: far above what the pull request asks for, and far below its mistake."""
RULE = "cost-within-budget"
BOT = "gitea-actions"
THEIRS = "a-strangers-script-was-run"
DOOR = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
POLICY = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}


@dataclass
class Walk:
    """The steps of the demonstration.

    Attributes:
        ann: the developer's account on the forge.
        boss: the reviewer's account on the forge.
        checks: results so far.
        texts: all output that people can read, by source.
    """

    world: DemoWorld
    phases: Phases
    checks: list[Check] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    ann: Hub = field(init=False)
    boss: Hub = field(init=False)
    tree: Tree = field(init=False)
    number: int = 0

    # Before the forge ------------------------------------------------------------------------------------------

    def provision(self) -> None:
        """Start a local cloud and bring up the stacks as they were before the change; one setting is a secret."""
        with self.phases.phase("a local cloud", "cloud"):
            self.world.start("--no-processes")
        with self.phases.phase("pulumi up: an account and a cluster, from nothing", "up"):
            for name in STACKS:
                stack = self.world.stack(name)
                if name == "local":
                    note = automation.ConfigValue(SECRET, secret=True)
                    stack.set_config("everspot:cluster.tags.Note", note, path=True)
                self.world.up(name)
        rules = self.world.project / "stacks" / "rules.yaml"
        rules.write_text(f"{rules.read_text()}  local:\n    budgetUsdPerMonth: {BUDGET}\n")

    def runner_variables(self) -> Mapping[str, str]:
        """Return the environment of a self-hosted runner."""
        cloud_variables = {
            name: value for name, value in self.world.env.items() if name.startswith(("AWS_", "PULUMI_", "EVERSPOT_"))
        }
        programs = f"{Path(sys.executable).parent}:{self.world.env['PATH']}"
        own_variables = {
            "EVERSPOT_VENV": sys.prefix,
            "DEMO_ARTIFACTS": str(self.world.home / "artifacts"),
            "PATH": programs,
        }
        return {**cloud_variables, **own_variables, "PYTHONWARNINGS": "ignore"}

    def set_up_repository(self, forge: Gitea) -> None:
        """Set up the repository on the forge: its people, its variables, and that a failed check blocks a merge."""
        with self.phases.phase(f"a forge, its runner and a repository: {forge.url}", "forge"):
            self.boss = Hub(forge.url, forge.token, f"{OWNER}/fleets")
            self.ann = Hub(forge.url, forge.user("ann"), self.boss.repo)
            self.boss.call("POST", "/orgs", {"username": "actions"})
            for folder in sorted(ACTIONS.iterdir()):
                self.boss.serve_action(folder.name, folder)
            self.boss.call("POST", "/user/repos", {"name": "fleets", "private": True, "default_branch": "main"})
            self.boss.repo_call("PUT", "/collaborators/ann", {"permission": "write"})
            self.tree = Tree.create(self.world.project, STACKS)
            self.tree.commit("The environments and their review [skip ci]")
            self.tree.push(self.boss, "main")
            values = {
                "EVERSPOT_STATE": self.world.env["PULUMI_BACKEND_URL"],
                "EVERSPOT_POLICY_SETTINGS": "stacks/rules.yaml",
            }
            for name, value in values.items():
                self.boss.repo_call("POST", f"/actions/variables/{name}", {"value": value})
            checks = {"enable_status_check": True, "status_check_contexts": ["review / comment*"]}
            pushes = {"enable_push": True, "enable_push_whitelist": True, "push_whitelist_usernames": [OWNER]}
            self.boss.repo_call(
                "POST",
                "/branch_protections",
                {"rule_name": "main", "block_admin_merge_override": True, **checks, **pushes},
            )

    # The pull request ------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open a pull request that changes both environments."""
        with self.phases.phase("a pull request changes both environments", "review"):
            self.tree.git("checkout", "-q", "-b", "more")
            self.tree.edit("account", "Team: ml-platform", "Team: ml-platform, Owner: platform")
            self.tree.edit("local", r"target: 1\b", "target: 4")
            self.tree.commit("More of it")
            head = self.tree.push(self.ann, "more")
            self.number = self.ann.open_pull("more", "More of it")
            run, bodies = self._reviewed(head, "first")
        (body,) = bodies or [""]
        is_complete = all(words in body for words in ("account", "local", "everspot-local-fleet-spot", "$"))
        self._check("the review is green", run.good, _ends(run))
        self._check(
            "it says all in one comment",
            len(bodies) == 1 and is_complete,
            f"{len(bodies)} comment, {len(body)} characters",
        )

    def push_again(self) -> None:
        """Push twice, the second time while the first is reviewed: the comment is edited once."""
        (before,) = self.boss.comments(self.number)
        with self.phases.phase("a push, and one more while it is reviewed", "push"):
            self.tree.edit("local", r"target: 4\b", "target: 2")
            self.tree.commit("Much less of it")
            overtaken = self.tree.push(self.ann, "more")
            self.boss.begun("pull_request", overtaken)
            run, bodies = self._edited(r"target: 2\b", "target: 3", "Less of it", "second")
            old = self._record_run("overtaken", self.boss.ran("pull_request", overtaken))
        silent = not any(f"comment: {verb}" in old.log for verb in ("created", "edited"))
        self._check("a run that a push overtakes says nothing", silent and not old.good, _ends(old))
        (after,) = self.boss.comments(self.number)
        same = after["id"] == before["id"] and after["body"] != before["body"]
        self._check("a second push edits that comment", run.good and same, f"{len(bodies)} comment, {_ends(run)}")

    def stranger(self, forge: Gitea) -> None:
        """Open a pull request from a fork, which edits a script of the review too."""
        with self.phases.phase("a stranger's pull request, from a fork", "fork"):
            mallory = Hub(forge.url, forge.user("mallory"), self.boss.repo)
            self.boss.repo_call("PUT", "/collaborators/mallory", {"permission": "read"})
            fork = mallory.fork()
            self.tree.git("checkout", "-q", "-b", "theirs", "main")
            self.tree.edit("local", r"target: 1\b", "target: 5")
            script = self.tree.root / ".github" / "everspot" / "setup.sh"
            script.write_text(f"#!/usr/bin/env bash\necho {THEIRS}\n")
            self.tree.commit("A stranger's")
            head = self.tree.push(fork, "theirs")
            number = mallory.open_pull("mallory:theirs", "A stranger's")
            self.boss.let_run(OWNER, forge.passwords[OWNER], head)
            run = self._record_run("fork", self.boss.ran("pull_request", head))
            self.tree.git("checkout", "-q", "more")
        ends = {name.rpartition(" ")[2]: end for name, end in run.jobs.items()}
        alone = ends.get("files") == "success" and ends.get("preview") == ends.get("comment") == "skipped"
        self._check("a fork's change gets no credentials", alone and not self.boss.comments(number), _ends(run))
        priced = [line for line in run.log.splitlines() if "local: a month is expected to cost" in line]
        self._check(
            "its files are checked, and priced", bool(priced), priced[0].partition("cost ")[2] if priced else ""
        )
        self._check("by our scripts, not by its own", alone and THEIRS not in run.log, "its script printed nothing")

    def overspend(self) -> None:
        """Push a change that would cost more than the budget: its check fails, and it cannot be merged."""
        with self.phases.phase("a push that would cost more than the budget", "refusal"):
            run, bodies = self._edited(r"target: 3\b", "target: 60", "Very much of it", "third")
        names_rule = len(bodies) == 1 and RULE in bodies[0]
        self._check("a broken rule turns the review red", not run.good and names_rule, f"{RULE}; {_ends(run)}")
        try:
            self.boss.merge(self.number)
            status = 200
        except ForgeRefused as refused:
            status = refused.status
        self._check("what is red cannot be merged", status == 405, f"the forge answers {status}")

    def mend_and_merge(self) -> None:
        """Correct the change and merge it; it is applied as it was reviewed."""
        with self.phases.phase("the mended change", "mended"):
            run, bodies = self._edited(r"target: 60\b", "target: 3", "As much as is needed", "fourth")
        self._check("the mended change is green again", run.good and RULE not in bodies[0], _ends(run))
        with self.phases.phase("merge: what was reviewed is applied", "apply"):
            self.boss.merge(self.number)
            self.tree.git("checkout", "-q", "main")
            run = self._record_run("apply", self.boss.ran("push", self.boss.branches()["main"]))
            (body,) = self._comments("applied")
        changes = self.world.everspot_json("changes")["changes"]
        self._check("the merge is applied", run.good and self._target() == 3, f"the fleets' target is {self._target()}")
        lines = [f"- ✅ **{name}**: " in body for name in STACKS]
        self._check("the comment says so of each environment", all(lines), f"{sum(lines)} of {len(lines)}")
        exact = len(changes) == 1 and changes[0]["digest"] in bodies[0]
        self._check(
            "what was applied is what was reviewed", exact, f"digest {changes[0]['digest'][:12]}" if changes else "none"
        )
        pull = changes[0]["pull_request"] if changes else {}
        cost = [
            changes[0][side]["total"]["expected"] if changes and changes[0][side] else 0 for side in ("before", "after")
        ]
        is_stored = pull.get("number") == self.number and pull.get("author") == "ann" and 0 < cost[0] < cost[1]
        self._check(
            "the store keeps what it costs",
            is_stored,
            f"#{pull.get('number')}, ${cost[0]:.0f} → ${cost[1]:.0f} a month",
        )

    # Past the pull request -------------------------------------------------------------------------------------

    def push_past_review(self) -> None:
        """Push a commit to main that nobody has reviewed: it is not applied."""
        with self.phases.phase("a push to main that nobody has reviewed", "unreviewed"):
            self.tree.fetch(self.boss, "main")
            self.tree.git("reset", "-q", "--hard", "FETCH_HEAD")
            self.tree.edit("local", r"target: 3\b", "target: 9")
            self.tree.commit("Nobody has seen this")
            run = self._record_run("unreviewed", self.boss.ran("push", self.tree.push(self.boss, "main")))
        stopped = not run.good and "was not reviewed" in run.log and self._target() == 3
        self._check("what was not reviewed is not applied", stopped, f"the fleets' target is still {self._target()}")

    def meddle(self) -> None:
        """Change by hand what a refresh does not see: it is found, reported in one issue, and the issue is closed once
        it is undone."""
        with self.phases.phase("by hand: a port opened, a policy attached", "drift"), self._by_hand() as arn:
            run = self._looked("drift", 0)
            issues = self.boss.issues("open")
        text = "\n".join(issue["body"] for issue in issues)
        self.texts["issue"] = text
        reported = not run.good and len(issues) == 1 and "port 22, from 0.0.0.0/0" in text and arn in text
        self._check(
            "drift that no refresh sees is found", reported, ", ".join(issue["title"] for issue in issues) or "no issue"
        )
        with self.phases.phase("undone by hand", "undone"):
            run = self._looked("undone", run.id)
        open_issues = self.boss.issues("open")
        self._check(
            "its issue is closed once it is undone", run.good and not open_issues, f"{len(open_issues)} issues are open"
        )

    def keep_secrets(self) -> None:
        """Check that nothing that people can read contains the secret setting."""
        reports = {str(path): path.read_text() for path in (self.world.home / "artifacts").rglob("*") if path.is_file()}
        texts = {**self.texts, **reports}
        leaks = [name for name, text in texts.items() if SECRET in text]
        size = sum(map(len, texts.values())) / 1000
        figure = f"0 in {len(texts)} texts of {size:.0f} kB" if not leaks else ", ".join(leaks)
        self._check("no secret is told in comments, logs, reports or issues", not leaks and len(reports) > 0, figure)

    # -------------------------------------------------------------------------------------------------------------

    def _edited(self, pattern: str, by: str, message: str, name: str) -> tuple[Run, list[str]]:
        self.tree.edit("local", pattern, by)
        self.tree.commit(message)
        return self._reviewed(self.tree.push(self.ann, "more"), name)

    def _reviewed(self, head: str, name: str) -> tuple[Run, list[str]]:
        """Return the review run of a revision, and the bot's comments then."""
        run = self._record_run(name, self.boss.ran("pull_request", head))
        return run, self._comments(name)

    def _comments(self, name: str) -> list[str]:
        bodies = [each["body"] for each in self.boss.comments(self.number) if each["user"]["login"] == BOT]
        self.texts[f"comment {name}"] = "\n".join(bodies)
        (self.world.home / f"comment-{name}.md").write_text("\n".join(bodies))
        return bodies

    def _record_run(self, name: str, run: Run) -> Run:
        self.texts[f"log {name}"] = run.log
        (self.world.home / f"run-{name}.log").write_text(run.log)
        return run

    def _looked(self, name: str, after: int) -> Run:
        """Return a run of the workflow that detects drift."""
        self.boss.repo_call("POST", "/actions/workflows/drift.yml/dispatches", {"ref": "main"})
        return self._record_run(name, self.boss.ran("workflow_dispatch", after=after))

    @contextmanager
    def _by_hand(self) -> Iterator[str]:
        """Open port 22 to everybody and attach a policy; yield the policy's ARN, and undo both."""
        ec2, iam = client(self.world.env, "ec2"), client(self.world.env, "iam")
        groups = ec2.describe_security_groups()["SecurityGroups"]
        group = next(each["GroupId"] for each in groups if "network-instances" in each["GroupName"])
        role = next(each["RoleName"] for each in iam.list_roles()["Roles"] if "identity-agent" in each["RoleName"])
        arn = str(iam.create_policy(PolicyName="by-hand", PolicyDocument=json.dumps(POLICY))["Policy"]["Arn"])
        ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[DOOR])
        iam.attach_role_policy(RoleName=role, PolicyArn=arn)
        yield arn
        ec2.revoke_security_group_ingress(GroupId=group, IpPermissions=[DOOR])
        iam.detach_role_policy(RoleName=role, PolicyArn=arn)

    def _target(self) -> int:
        """Return the capacity units of the fleets' targets, as the cloud itself answers."""
        fleets: list[dict[str, Any]] = client(self.world.env, "ec2").describe_fleets()["Fleets"]
        return sum(fleet["TargetCapacitySpecification"]["TotalTargetCapacity"] for fleet in fleets)

    def _check(self, name: str, passed: bool, figure: str) -> None:
        self.checks.append(Check(name, passed, figure))
        self.world.print_line(f"{'yes' if passed else 'NO'} {name}: {figure}")


def _ends(run: Run) -> str:
    """Return how the jobs of a run ended."""
    return ", ".join(f"{name}: {end}" for name, end in run.jobs.items())
