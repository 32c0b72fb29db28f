"""The steps of setting up a new project that are the same on every cloud, with the cloud's own parts as parameters."""

from collections.abc import Mapping, Sequence

from everspot_clouds.base.project_setup import ProjectAnswers, SetupStep

LOCAL = (
    "mkdir -p .state",
    "export PULUMI_BACKEND_URL=file://$PWD/.state PULUMI_CONFIG_PASSPHRASE=first",
)
"""The engine opens a folder as its backend, and makes none."""
BOOTSTRAP_FILE = "stacks/Pulumi.bootstrap.yaml"
STACKS = ("account", "dev", "prod")


def installed() -> SetupStep:
    """Return the program's environment."""
    description = (
        "Installs what the stacks' program and your own commands need. Pulumi itself is installed apart, from its site."
    )
    return SetupStep(
        "Install",
        description,
        ("python3 -m venv .venv", ".venv/bin/pip install -r requirements.txt", ". .venv/bin/activate"),
    )


def ids(answers: ProjectAnswers) -> list[SetupStep]:
    """Return the step that finds the repository's ids, if they are unknown."""
    if answers.ids is not None:
        return []
    description = (
        f"Write both numbers into {BOOTSTRAP_FILE}, in quotes, as `id` and `ownerId` of `repository`. "
        "Without them, whoever takes over the repository's name is trusted, and repositories made after June 2026 are "
        f"not. Where there is no repository yet, `gh repo create {answers.repository} --private` makes one."
    )
    return [
        SetupStep(
            "Name the repository for good", description, (f"gh api repos/{answers.repository} --jq '.id, .owner.id'",)
        )
    ]


def bootstrapped(contents: str, before: Sequence[str] = ()) -> SetupStep:
    """Return the step of the bootstrap stack, applied by hand, whose commands are chained: when one fails, none of the
    others runs in a shell that they are pasted into. `contents`: the resources that it creates."""
    own = "You apply it yourself, as an administrator: no job of the repository may ever change it."
    description = f"{contents} {own} Its state lies in .state/ for the moment."
    last = "pulumi up --stack bootstrap"
    chained = [f"{line} &&" for line in (*before, *LOCAL, "pulumi stack select --create bootstrap")]
    return SetupStep("Bootstrap", description, (*chained, last), stack="bootstrap")


def moved(state: str, secrets: str) -> SetupStep:
    """Return the bootstrap's own state, into the bucket that it has made. `state`, `secrets`: the backend and the
    provider of secrets, as the commands take them. An import keeps the provider of secrets that the state was exported
    with, whatever the stack was made with: so it is changed after it."""
    description = (
        "Moves the bootstrap's own state into the bucket that it has made; from now on its secrets are under the key."
    )
    return SetupStep(
        "Move the state",
        description,
        (
            "pulumi stack export --stack bootstrap --file bootstrap.json",
            f"export PULUMI_BACKEND_URL='{state}'",
            f"sed -i.old '/^encryptionsalt:/d' {BOOTSTRAP_FILE} && rm {BOOTSTRAP_FILE}.old",
            f"pulumi stack init bootstrap --secrets-provider '{secrets}'",
            "pulumi stack import --stack bootstrap --file bootstrap.json",
            f"pulumi stack change-secrets-provider --stack bootstrap '{secrets}'",
            "unset PULUMI_CONFIG_PASSPHRASE",
            "pulumi preview --stack bootstrap --expect-no-changes",
            "rm -r bootstrap.json .state",
        ),
    )


def stacks_made(secrets: str, more: str = "", after: Sequence[str] = ()) -> list[SetupStep]:
    """Return the steps of the other stacks. Only the account's stack is applied by hand. `after`: commands that come
    after it; `more`: a description of them."""
    inits = [f"pulumi stack init {name} --secrets-provider '{secrets}'" for name in STACKS]
    description = (
        "Makes the stacks, without anything in them. Each command writes the stack's key into its settings file."
    )
    account = f"What an account has once besides: it is the same for all clusters.{more and ' '}{more}"
    return [
        SetupStep("Make the stacks", description, tuple(inits)),
        SetupStep("Account", account, ("pulumi up --stack account", *after), stack="account"),
    ]


def published(answers: ProjectAnswers, variables: Mapping[str, str]) -> list[SetupStep]:
    """Return the step of the forge's settings and the first push. `variables`: of the repository, by name; a value that
    a command completes has it as `$(…)`."""
    quoted = {name: f'"{value}"' if "$(" in value else f"'{value}'" for name, value in variables.items()}
    sets = [f"gh variable set {name} --body {value}" for name, value in quoted.items()]
    repository = answers.repository
    environment = f"repos/{repository}/environments/production"
    settings = (
        f"gh api -X PUT {environment} -F 'deployment_branch_policy[protected_branches]=false'"
        " -F 'deployment_branch_policy[custom_branch_policies]=true'",
        f"gh api -X POST {environment}/deployment-branch-policies -f name=main",
        "git init -b main",
        f"git remote get-url origin || git remote add origin https://github.com/{repository}.git",
        "! grep 'file:' requirements.txt && git add -A && git commit -m 'Environments' && git push -u origin HEAD:main",
        *sets,
    )
    description = (
        "Makes the environment whose jobs may write, for the branch `main` alone: in one that any branch may deploy "
        "to, whoever may push takes the role that deploys. Pushes the files, which applies nothing as long as the "
        "variables are not set, and tells the workflows where the state lies and which identities they have. Give the "
        "environment required reviewers, which in a private repository only GitHub Enterprise has, and protect "
        "`main`: the checks files, preview and comment, and an owner's review of `.github/`. Nothing is pushed while "
        "requirements.txt names a path of this machine (`file:`), from which no runner can install: put a URL of your "
        "fork there (`git+https://…@COMMIT`), or a release."
    )
    first = (
        "Edit stacks/Pulumi.dev.yaml, check it against the account, and open a pull request. Its comment says what "
        "would be made, what a month of it costs, and which rules it breaks. After the merge the job `apply` makes it, "
        "once production's reviewers agree."
    )
    commands = (
        "everspot preflight --settings stacks/Pulumi.dev.yaml",
        "git switch -c first",
        "git commit -am 'Our first environment'",
        "git push -u origin first",
        "gh pr create --fill",
    )
    return [
        SetupStep("Publish", description, settings),
        SetupStep("The first reviewed change", first, commands, stack="dev"),
        SetupStep("Production", "The same with stacks/Pulumi.prod.yaml, in a pull request of its own.", stack="prod"),
    ]
