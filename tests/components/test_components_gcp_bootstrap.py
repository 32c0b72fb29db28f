"""A project's bootstrap on Google Cloud: which jobs can use which service account, and the accounts' permissions."""

from collections.abc import Callable
from typing import Any

import pytest
from everspot import GcpBootstrap
from everspot.common import BadComponentInputs
from everspot.gcp.bootstrap_grants import CONTROL, except_state_bucket, permissions, provider_condition
from everspot.repository import ReviewPart
from everspot_clouds.gcp import deployers
from everspot_local.gcp.iam.conditions import compiled, is_true
from everspot_local.gcp.iam.permissions import KNOWN
from everspot_local.gcp.iam.pools import CLAIMS

Declare = Callable[..., tuple[Any, dict[str, Any]]]
TAGS = {"Project": "vision", "Team": "ml", "Environment": "bootstrap"}
REPOSITORY: Any = {"name": "Org/fleets", "id": "11", "owner_id": "22"}
NAME = "everspot-bootstrap"
MEMBER = "gcp:serviceaccount/iAMMember:IAMMember"


def bootstrap(declare: Declare, **more: Any) -> tuple[Any, dict[str, Any]]:
    args: Any = {"tags": TAGS, "repository": REPOSITORY, **more}

    def program() -> dict[str, Any]:
        component = GcpBootstrap(NAME, args)
        return {
            "state": component.state_url,
            "secrets": component.secrets_provider,
            "provider": component.identity_provider,
        }

    return declare(program)


def test_only_jobs_of_the_repository_come_in_and_each_becomes_what_its_subject_says(declare: Declare) -> None:
    recorder, outputs = bootstrap(declare)
    provider = recorder.inputs(f"{NAME}-github")
    assert provider["attributeCondition"] == provider_condition(REPOSITORY)
    assert provider["oidc"] == {"issuerUri": "https://token.actions.githubusercontent.com"}
    assert provider["attributeMapping"]["google.subject"] == "assertion.sub"
    members = {(m.inputs["serviceAccountId"], m.inputs["member"].rpartition("/subject/")[2], m.inputs["role"])
               for m in recorder.of_type(MEMBER)}  # fmt: skip
    ends = {"preview": "pull_request", "drift": "ref:refs/heads/main", "deploy": "environment:production"}
    assert members == {
        (f"{NAME}-{part}", f"repo:{repository}:{end}", "roles/iam.workloadIdentityUser")
        for part, end in ends.items()
        for repository in ("Org/fleets", "Org@22/fleets@11")
    }
    assert all(m.inputs["member"].startswith("principal://iam.googleapis.com/") for m in recorder.of_type(MEMBER))
    assert outputs["provider"]


@pytest.mark.parametrize(
    ("claims", "comes_in"),
    [
        ({"sub": "repo:Org/fleets:pull_request", "ref": "refs/pull/7/merge"}, True),
        ({"sub": "repo:Org/fleets:environment:production", "ref": "refs/heads/main"}, True),
        ({"sub": "repo:Org/fleets:environment:production", "ref": "refs/heads/theirs"}, False),
        ({"sub": "repo:Org@22/fleets@11:environment:production", "ref": "refs/pull/7/merge"}, False),
        ({"sub": "repo:Org/fleets:pull_request", "ref": "refs/pull/7/merge", "repository_id": "12"}, False),
        ({"sub": "repo:Org/fleets:pull_request", "ref": "refs/pull/7/merge", "repository": "Org/other"}, False),
    ],
)
@pytest.mark.parametrize("repository", [REPOSITORY, {"name": "Org/fleets"}], ids=["by ids", "by name"])
def test_a_job_that_may_write_comes_from_the_branch_that_changes_are_merged_into(
    repository: Any, claims: dict[str, str], comes_in: bool
) -> None:
    """An environment without rules for branches takes the jobs of any of them."""
    usual = {"repository": "Org/fleets", "repository_id": "11", "repository_owner_id": "22"}
    values = {f"assertion.{key}": value for key, value in {**usual, **claims}.items()}
    other = {"repository"} if "id" in repository else {"repository_id"}
    comes_in = comes_in or bool(other & claims.keys())  # claims that the condition does not use
    assert (compiled(provider_condition(repository), CLAIMS)(values) is True) == comes_in


def test_runners_act_by_their_own_accounts_where_there_is_no_repository(declare: Declare) -> None:
    runner = "runner-{}@p.iam.gserviceaccount.com".format
    args: Any = {
        "tags": TAGS, "preview_runner_accounts": [runner("p")], "deploy_runner_accounts": [runner("d")]
    }  # fmt: skip
    recorder, outputs = declare(lambda: {"provider": GcpBootstrap(NAME, args).identity_provider})
    assert outputs["provider"] == "" and recorder.of_type("gcp:iam/workloadIdentityPool:WorkloadIdentityPool") == []
    assert {(m.inputs["serviceAccountId"], m.inputs["member"]) for m in recorder.of_type(MEMBER)} == {
        (f"{NAME}-preview", f"serviceAccount:{runner('p')}"), (f"{NAME}-drift", f"serviceAccount:{runner('d')}"),
        (f"{NAME}-deploy", f"serviceAccount:{runner('d')}"),
    }  # fmt: skip


def test_state_lies_in_a_bucket_and_under_a_key_that_nothing_deletes(
    declare: Declare, protection: dict[str, tuple[bool, bool]]
) -> None:
    recorder, outputs = bootstrap(declare)
    assert outputs["state"] == "gs://everspot-state-everspot-local"
    assert outputs["secrets"].startswith("gcpkms://")
    assert protection[f"{NAME}-state"] == protection[f"{NAME}-state-key"] == (True, True)
    assert protection[f"{NAME}-state-encryption"] == (False, True), "Cloud Storage's use of the key"
    bucket = recorder.inputs(f"{NAME}-state")
    assert (bucket["uniformBucketLevelAccess"], bucket["publicAccessPrevention"]) == (True, "enforced")
    assert bucket["versioning"] == {"enabled": True}
    assert bucket["encryption"]["defaultKmsKeyName"] == f"{NAME}-state-key-id"
    assert bucket["lifecycleRules"][0]["condition"] == {"daysSinceNoncurrentTime": 90}
    assert recorder.inputs(f"{NAME}-state-key")["rotationPeriod"] == "7776000s"


def test_previews_and_looks_for_drift_only_read(declare: Declare) -> None:
    recorder, _ = bootstrap(declare)
    roles = recorder.of_type("gcp:projects/iAMCustomRole:IAMCustomRole")
    for part in ("preview", "drift"):
        granted = {
            permission
            for role in roles
            if role.name.startswith(f"{NAME}-{part}-")
            for permission in role.inputs["permissions"]
        }
        assert {
            permission for permission in granted if not permission.rpartition(".")[2].startswith(("get", "list"))
        } == set()
        assert recorder.inputs(f"{NAME}-{part}-key")["role"] == "roles/cloudkms.cryptoKeyDecrypter"
    granted = {
        permission
        for role in roles
        if role.name.startswith(f"{NAME}-deploy-")
        for permission in role.inputs["permissions"]
    }
    assert granted >= deployers.PREVIEW | deployers.DEPLOY and granted <= KNOWN
    assert permissions(ReviewPart.DEPLOY) <= granted
    assert recorder.inputs(f"{NAME}-deploy-key")["role"] == "roles/cloudkms.cryptoKeyEncrypterDecrypter"


def test_objects_are_read_in_the_state_and_in_control_buckets_alone_and_the_states_bucket_is_nobodys_to_change(
    declare: Declare,
) -> None:
    recorder, _ = bootstrap(declare)
    bound = {b.name: b.inputs for b in recorder.of_type("gcp:projects/iAMMember:IAMMember")}
    roles = {f"projects/everspot-local/roles/{r.name}": set(r.inputs["permissions"]) for r in
             recorder.of_type("gcp:projects/iAMCustomRole:IAMCustomRole")}  # fmt: skip
    everywhere = {permission for b in bound.values() if not b.get("condition") for permission in roles[b["role"]]}
    assert {permission for permission in everywhere if permission.startswith("storage.")} == set()
    assert "state" in bound[f"{NAME}-deploy-buckets"]["condition"]["expression"]
    assert "store-control-" in bound[f"{NAME}-preview-control-read"]["condition"]["expression"]
    state = {b.name: b.inputs["bucket"] for b in recorder.of_type("gcp:storage/bucketIAMMember:BucketIAMMember")}
    bindings = [*(f"{NAME}-{part}-state" for part in ReviewPart), f"{NAME}-drift-state-seen"]
    assert state == dict.fromkeys(bindings, "everspot-state-everspot-local")


@pytest.mark.parametrize(
    ("name", "listed", "changed"),
    [
        ("projects/_/buckets/everspot-dev-store-control-1/objects/cluster.json", True, True),
        ("projects/_/buckets/everspot-dev-store-data-1/objects/jobs/x", False, True),
        ("projects/_/buckets/everspot-state-p/objects/.pulumi/stacks/everspot/dev.json", False, False),
        ("projects/_/buckets/everspot-state-p", False, False),
        ("projects/_/buckets/everspot-state-p2/objects/x", False, True),
        ("projects/_/buckets/somebodys", False, True),
    ],
)
def test_conditions_tell_control_buckets_and_the_states_own_from_others(name: str, listed: bool, changed: bool) -> None:
    assert is_true(CONTROL.expression, {"resource.name": name}) is listed
    assert is_true(except_state_bucket("everspot-state-p").expression, {"resource.name": name}) is changed


def test_the_states_bucket_is_kept_from_what_makes_buckets_whatever_its_name_is(declare: Declare) -> None:
    recorder, _ = bootstrap(declare, state_bucket="acme-pulumi")
    (bound,) = [b for b in recorder.of_type("gcp:projects/iAMMember:IAMMember") if b.name == f"{NAME}-deploy-buckets"]
    expression = bound.inputs["condition"]["expression"]
    state = ("projects/_/buckets/acme-pulumi", "projects/_/buckets/acme-pulumi/objects/.pulumi/meta.yaml")
    assert [is_true(expression, {"resource.name": name}) for name in state] == [False, False]


def test_a_team_has_a_budget_at_the_billing_account(declare: Declare) -> None:
    spending = {"billing_account": "0123AB-4567CD-89EF01", "budgets": [{"team": "vision", "usd_per_month": 900.5}]}
    recorder, _ = bootstrap(declare, spending=spending)
    (budget,) = recorder.of_type("gcp:billing/budget:Budget")
    assert budget.inputs["budgetFilter"] == {"projects": ["projects/100000000001"], "labels": {"team": "vision"}}
    assert budget.inputs["amount"] == {"specifiedAmount": {"currencyCode": "USD", "units": "900", "nanos": 500000000}}
    assert [(r["spendBasis"], r["thresholdPercent"]) for r in budget.inputs["thresholdRules"]] == [
        ("CURRENT_SPEND", 0.8), ("CURRENT_SPEND", 1), ("FORECASTED_SPEND", 1),
    ]  # fmt: skip


def test_all_that_is_wrong_is_told_at_once(declare: Declare) -> None:
    bad: Any = {
        "tags": {"Project": "p"},
        "repository": {"name": f"Org/{'n' * 100}", "environment": "e" * 90},
        "preview_runner_accounts": ["me@example.com"],
        "state_bucket": "google-state",
        "location": "EU!",
        "spending": {"billing_account": "1", "budgets": [{"team": "Up", "usd_per_month": 1}], "channels": ["c"]},
    }
    with pytest.raises(BadComponentInputs) as refused:
        declare(lambda: {"x": GcpBootstrap(NAME, bad).state_url})
    paths = ("tags:", "repository:", "previewRunnerAccounts[0]", "stateBucket", "location", "spending.billingAccount",
             "spending.budgets[0].team", "spending.channels[0]")  # fmt: skip
    assert [path for path in paths if f"- {path}" not in str(refused.value)] == []
