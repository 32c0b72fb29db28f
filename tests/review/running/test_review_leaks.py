"""A plain credential in a change is refused by file and line, and never printed."""

import base64
import json
from pathlib import Path

import pytest
from desk import UPDATE, Desk
from everspot_review import leaks
from everspot_review.affected import Project
from everspot_review.leaks import leaks_of_change, leaks_of_settings
from everspot_review.markdown.safe import visible

ROOT = Path(__file__).parents[3]
PLANTED = {
    "an AWS access key": ("Owner", "AKIA" + "QWERTYUIOPASDFGH"),
    "a GitHub token": ("Owner", "ghp_" + "a1B2" * 9),
    "a password in an address": ("Url", "postgres://me:pw7@db.example.com/x"),
    "a password": ("password", "hunter2"),
    "a private key": ("Key", "-----BEGIN OPENSSH PRIVATE KEY-----"),
    "a Slack token": ("Owner", "xoxb-123456789012-" + "a1B2c3D4e5" * 2),
    "a Stripe key": ("Owner", "sk_live_" + "a1B2" * 6),
    "a JSON Web Token": ("Owner", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0." + "a1B2" * 10),
    "a Google API key": ("Owner", "AIza" + "SyA-1234567890abcdefghijklmnopqrstu"),
    "a Hugging Face token": ("Owner", "hf_" + "aB" * 17),
    "a random key": ("Owner", "u8Jd92KslPq0aXz7Vb4NmT6rYw1EoCfGhQiZ3xB5"),
}
SETTINGS = """config:
  aws:region: eu-west-1
  everspot:cluster:
    cloud: aws
    tags: {Project: p, Team: t,
      %s: "%s"}
"""


@pytest.mark.parametrize("kind", PLANTED)
def test_a_credential_in_a_settings_file_is_refused_with_file_and_line_and_never_shown(desk: Desk, kind: str) -> None:
    name, value = PLANTED[kind]
    desk.write("stacks/Pulumi.dev.yaml", SETTINGS % (name, value))
    desk.commit()
    desk.answers("preview", "dev", [UPDATE])
    summary = desk.root.parent / "summary.md"
    done = desk.run("files", "--base", "HEAD~1", GITHUB_STEP_SUMMARY=str(summary))
    assert done.returncode == 1
    assert f"Pulumi.dev.yaml: line 6, config.everspot:cluster.tags.{name}: seems to hold {kind}" in done.stdout
    answer = desk.run("files", "--base", "HEAD~1", "--json")
    assert json.loads(answer.stdout)["credentials"] == [
        {"file": "Pulumi.dev.yaml", "line": 6, "kinds": [kind], "rule": "no-plain-credentials"}
    ]
    preview = desk.run("preview", "dev", "--out", "reports")
    comment = desk.run("comment", "reports", "--show")
    assert comment.returncode == 1 and "no-plain-credentials" in comment.stdout and "line 6" in comment.stdout
    secret = value.removeprefix("postgres://me:").partition("@")[0]
    texts = [done.stdout, done.stderr, answer.stdout, preview.stdout, preview.stderr, comment.stdout]
    texts += [summary.read_text(), (desk.root / "reports/dev.json").read_text()]
    assert not any(secret in text for text in texts)


UNSEEN = ["\u200b", "\u00ad", "\u2060", "\ufeff", "\u034f", "\ufe0f", "\u202e", "\U000e0041"]


@pytest.mark.parametrize("unseen", UNSEEN, ids=lambda text: f"{ord(text):x}")
@pytest.mark.parametrize(
    "setting", ['tags: {Project: p, Team: t, Owner: "%s"}', 'imageId: "%s"', '"%s": 1', 'tags: {"%s": a}']
)
def test_unseen_characters_hide_no_credential_and_no_message_shows_it(desk: Desk, unseen: str, setting: str) -> None:
    token = "ghp_" + "a1B2" * 9
    hidden = token[:10] + unseen + token[10:]
    for value in (hidden, json.dumps(hidden)[1:-1]):
        desk.write("stacks/Pulumi.dev.yaml", f"config:\n  everspot:cluster:\n    cloud: aws\n    {setting % value}\n")
        desk.write("train.py", f"# {hidden}\n")
        desk.commit()
        for done in (desk.run("files", "--base", "HEAD~1"), desk.run("files", "--base", "HEAD~1", "--json")):
            assert done.returncode == 1 and done.stdout.count("a GitHub token") >= 2
            assert token[:9] not in done.stdout and token[-9:] not in done.stdout
        desk.git("reset", "-q", "--hard", "HEAD~1")


def test_a_message_that_has_only_the_beginning_of_a_credential_shows_none_of_it(desk: Desk) -> None:
    token = "github_pat_" + "a1B2" * 20
    desk.write("stacks/Pulumi.dev.yaml", f"config:\n  {token}: 1\n  {token}: 2\n")
    desk.commit()
    done = desk.run("files", "--base", "HEAD~1")
    assert done.returncode == 1 and "is given twice" in done.stdout and "a1B2" not in done.stdout


def test_a_change_too_large_to_be_looked_at_is_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaks, "MOST_TEXT", 2 << 20)
    desk.write("a.txt", f"password=hunter2\n{'lorem ipsum ' * 200_000}\n")
    desk.write("b.py", 'password = "hunter2"\n')
    desk.commit()
    done = desk.run("files", "--base", "HEAD~1")
    assert done.returncode == 1
    assert "a.txt: line 1: seems to hold a password" in done.stdout
    for place in ("a.txt: line 2: was not looked at", "b.py: line 1: was not looked at"):
        assert place in done.stdout and "more than 2 MiB" in done.stdout
    monkeypatch.undo()
    assert "b.py: line 1: seems to hold a password" in desk.run("files", "--base", "HEAD~1").stdout


@pytest.mark.parametrize("name", ["new\nline", 'quo"te', "::error::x\r", "\udce9", "-x"])
def test_a_credential_is_found_whatever_its_file_is_called(desk: Desk, name: str) -> None:
    desk.write(f"stacks/Pulumi.{name}.yaml", "config:\n  a:password: hunter2\n")
    desk.write(f"{name}.yaml", "password: hunter2\n")
    desk.commit()
    done = desk.run("files", "--base", "HEAD~1")
    shown = visible(name)
    assert done.returncode == 1 and "hunter2" not in done.stdout
    assert f"\nPulumi.{shown}.yaml: line 2, config.a:password: seems to hold a password" in done.stdout
    assert f"{shown}.yaml: line 1, password: seems to hold a password" in done.stdout.replace("\\::", "::")
    assert f"\nPulumi.{shown}.yaml: the file's name names no stack" in done.stdout


def test_one_in_a_comment_a_key_or_a_file_that_is_no_yaml_is_found_too() -> None:
    token = PLANTED["a GitHub token"][1]
    for text, line in (
        (f"config: {{}}\n# was {token}\n", 2), (f'config:\n  a:b: {{"{token}": 1}}\n', 2),
        (f"config: [\n\n{token}", 3), (f"config:\n  a:b: |\n    one\n    export T={token}\n", 4),
        ("config:\n  a:b:\n    - {name: DB_PASSWORD,\n       value: hunter2}\n", 4),
        (json.dumps({"config": {"a:b": {"clientSecret": "s3cr3t"}}}), 1),
    ):  # fmt: skip
        (leak,) = leaks_of_settings(text)
        assert leak.line == line and token not in str(leak) and token not in repr(leak)


def test_what_only_looks_so_is_taken() -> None:
    text = """
secretsprovider: awskms://alias/everspot?region=eu-west-1
encryptedkey: AQICAHiZ3xB5u8Jd92KslPq0aXz7Vb4NmT6rYw1EoCfGhQiZ3xB5u8Jd92KslPq0aXz7Vb4NmT6rYw1EoCfGhQ==
encryptionsalt: v1:Zm9vYmFyYmF6cXV4:v1:u8Jd92KslPq0aXz7:Vb4NmT6rYw1EoCfGhQiZ3xB5u8Jd92KslPq0aXz7Vb4NmT6rYw1EoC==
config:
  aws:skipCredentialsValidation: "true"
  aws:secretKey: {secure: AAABAHvb4NmT6rYw1EoCfGhQiZ3xB5u8Jd92KslPq0aXz7Vb4NmT6rYw1EoCfGhQiZ3xB5u8Jd92K}
  app:password:
    secure: v1:u8Jd92KslPq0aXz7:Vb4NmT6rYw1EoCfGhQiZ3xB5u8Jd92KslPq0aXz7Vb4NmT6rYw1EoC==
  everspot:cluster:
    imageId: ami-04681a1dbd79675a5
    kmsKeyArn: arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab
    secretArns: ["arn:aws:secretsmanager:eu-west-1:123456789012:secret:wandb-Ab1Cd2", "arn:aws:ssm:::a"]
    permissionsBoundaryArn: arn:aws:iam::123456789012:policy/EverspotBoundary2024AbCdEfGhIjKlMnOpQrStUvWx
    image: registry.example.com/team/image@sha256:0a1b2c3d4e0a1b2c3d4e0a1b2c3d4e0a1b2c3d4e0a1b2c3d4e0a1b2c3d4e0a1b
    revision: 0a1b2c3d4e0a1b2c3d4e0a1b2c3d4e0a1b2c3d4e
    run: 550e8400-e29b-41d4-a716-446655440000
    codeSha256: n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg=
    egress: {proxy: "http://proxy.example.com:3128"}
    serviceAccount: everspot-agents@my-project-123456.iam.gserviceaccount.com
    subnetwork: projects/my-project/regions/europe-west4/subnetworks/everspot-dev-agents-EuropeWest4Production01
    tags: {Tokenizer: bert-base-uncased, PadToken: <pad>, Password: "${PASSWORD}", Secret: wandb-key, MaxTokens: "4096"}
    sshKey: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ8u8Jd92KslPq0aXz7Vb4NmT6rYw1EoCfGhQiZ3xB5u me@example.com"
    httpTokens: required
    model: meta-llama/Llama-3.1-8B-Instruct
    federation: [{controlUrl: "s3://everspot-dev-control-0a1b2c3d?region=eu-west-1", roleArn: "arn:aws:iam::1:role/a"}]
"""
    assert leaks_of_settings(text) == []


@pytest.mark.parametrize("path", sorted(ROOT.glob("stacks/Pulumi.*.yaml")), ids=lambda path: path.name)
def test_the_repositorys_own_settings_hold_none(path: Path) -> None:
    assert leaks_of_settings(path.read_text()) == []


def test_what_detect_secrets_is_told_to_allow_is_allowed() -> None:
    text = "config: {'a:password': hunter2}  # pragma: allowlist secret\n"
    assert leaks_of_settings(text) == []
    assert leaks_of_settings("# pragma: allowlist nextline secret\nconfig: {'a:password': hunter2}\n") == []
    assert len(leaks_of_settings(text + "# password: hunter22\n")) == 1


def test_a_credential_in_any_other_file_that_a_change_edits_is_refused(desk: Desk) -> None:
    key = PLANTED["an AWS access key"][1]
    desk.write("old.py", f"KEY = '{key}'\n")
    desk.commit()
    desk.write("old.py", f"KEY = '{key}'\n# edited\n++ b/stranger\n")
    desk.write("train.py", f"import os\n\nKEY = '{key}'\npassword = get_password(user1)\n")
    desk.write(".env", "DEBUG=1\nDB_PASSWORD=hunter2\nTOKENS=4096\n")
    desk.write("job.yaml", "name: a\nenv:\n  API_KEY: s3cr3t-0-value\nsecrets: {TOKEN: 'ssm:/a'}\n")
    desk.write("docs/a b.md", f"AKIAIOSFODNN7EXAMPLE and\n{key}\n")
    desk.write(".gitattributes", "* -diff\n")
    (desk.root / "latin.txt").write_bytes(b"caf\xe9\n" + key.encode())
    desk.commit()
    leaks_by_path = leaks_of_change(Project.read(desk.root), "HEAD~1")
    assert {path: [leak.line for leak in leaks] for path, leaks in leaks_by_path.items()} == {
        "train.py": [3], ".env": [2], "job.yaml": [3], "docs/a b.md": [2], "latin.txt": [2],
    }  # fmt: skip
    done = desk.run("files", "--base", "HEAD~1")
    assert done.returncode == 1 and "train.py: line 3: seems to hold an AWS access key" in done.stdout
    assert key not in done.stdout and "hunter2" not in done.stdout
    first = leaks_of_change(Project.read(desk.root), "0" * 40)
    assert set(leaks_by_path) | {"old.py"} == set(first)


@pytest.mark.parametrize(
    "value",
    [
        "xapp-1-A0123456789-1234567890123-" + "0a1b" * 16, "npm_" + "a1B2" * 9, "nvapi-" + "a1B2" * 16,
        "gsk_" + "a1B2" * 13, "wandb_v1_" + "a1B2" * 19 + "c", "dckr_pat_" + "a1B" * 9, "lin_api_" + "a1B2" * 10,
        "ntn_" + "a1B2" * 11 + "cd", "PMAK-" + "0a1b" * 6 + "-" + "0a1b" * 8 + "cd", "glsa_" + "a1B2" * 8 + "_0a1b2c3d",
        "tskey-auth-" + "a1B2" * 3 + "-" + "a1B2" * 8, "shpat_" + "0a1b" * 8, "NRAK-" + "A1B" * 9, "key-" + "0a1b" * 8,
        "Authorization: Basic YWRtaW46aHVudGVyMnNlY3JldA==",
        "https://x.blob.core.windows.net/c?sp=r&sig=" + "a1B2" * 11,
    ],
)  # fmt: skip
def test_a_credential_is_known_by_its_form_in_any_file(desk: Desk, value: str) -> None:
    assert leaks_of_settings(f"config:\n  # {value}\n  a:b: c\n")
    desk.write("notes.md", f"first\n{value}\n")
    desk.commit()
    leaks_by_path = leaks_of_change(Project.read(desk.root), "HEAD~1")
    assert {path: [leak.line for leak in leaks] for path, leaks in leaks_by_path.items()} == {"notes.md": [2]}


@pytest.mark.parametrize("value", ["hunter2", PLANTED["a GitHub token"][1], "AKIA" + "QWERTYUIOPASDFGH"])
def test_what_is_called_secure_and_is_not_encrypted_is_refused(value: str) -> None:
    (leak,) = leaks_of_settings(f"config:\n  a:b:\n    secure: {value}\n")
    assert leak.line == 3 and value not in str(leak)
    encrypted = "v1:u8Jd92KslPq0aXz7:Vb4NmT6rYw1EoCfGhQiZ3xB5u8Jd92KslPq0aXz7Vb4NmT6rYw1EoC=="
    assert leaks_of_settings(f"config:\n  a:b:\n    secure: {encrypted}  # was {PLANTED['a GitHub token'][1]}\n")


@pytest.mark.parametrize(
    "content",
    [
        "A=1\nTOKEN={}\n".encode("utf-16").decode("latin-1"),
        "A=1\rTOKEN={}\r",
        '{{"image": "' + "iVBORw0K" * 30_000 + '", "text": "{}"}}',
    ],
    ids=["two bytes a character", "lines that end with CR", "a long line"],
)
def test_a_credential_is_found_however_a_file_writes_its_lines(desk: Desk, content: str) -> None:
    token = PLANTED["a GitHub token"][1]
    wide = "\0" in content
    text = content.replace("{\0}\0", "".join(f"{char}\0" for char in token)) if wide else content.format(token)
    (desk.root / "run.log").write_bytes(text.encode("latin-1"))
    desk.commit()
    assert list(leaks_of_change(Project.read(desk.root), "HEAD~1")) == ["run.log"]


def test_a_program_that_holds_a_password_is_refused_and_one_that_only_names_it_is_not(desk: Desk) -> None:
    key = "0123456789abcdef" * 2 + "01234567"
    desk.write(
        "bad.py",
        f'connect(password="hunter2")\nos.environ["WANDB_API_KEY"] = "{key}"\n'
        f'wandb.login(key="{key}")\nDB_PASSWORD: str = "hunter2"\n',
    )
    desk.write("bad.sh", "export DB_PASSWORD=hunter2\n")
    desk.write(
        "good.py",
        'password = get_password(user1)\npad_token = "<pad>"\napi_key = os.environ["API_KEY2"]\n'
        'PASSWORD_NAME = "DB_PASSWORD_2"\nsecret_key = f"{prefix1}"\ndb_key = "train-images-10"\n',
    )
    desk.write("good.sh", "export DB_PASSWORD=$(cat /run/secrets/db1)\nAPI_KEY=${API_KEY1}\n")
    desk.commit()
    leaks_by_path = leaks_of_change(Project.read(desk.root), "HEAD~1")
    assert {path: [leak.line for leak in leaks] for path, leaks in leaks_by_path.items()} == {
        "bad.py": [1, 2, 3, 4], "bad.sh": [1],
    }  # fmt: skip


PASSWORDS = [
    (".netrc", "machine example.com\n  login me\n  password correct-horse\n", 3),
    (".netrc", "machine example.com login me password hunter22\n", 1),
    (".pgpass", "# host:port:database:user:password\ndb.example.com:5432:*:me:correcthorse\n", 2),
    ("pom.xml", "<server>\n<password>hunter2</password>\n</server>\n", 2),
    ("web.config", '<add key="ApiPassword" value="hunter22" />\n', 1),
    ("web.config", 'cs="Server=db;User Id=me;Password=hunter22;"\n', 1),
    ("a.tfstate", '{"resources": [{"instances": [\n{"attributes": {"password": "correcthorse"}}]}]}\n', 2),
    ("a.ipynb", '{"cells": [{"source": [\n"password = \\"hunter2\\"\\n"]}]}\n', 2),
    ("compose.yaml", "services:\n  a:\n    environment:\n      - DB_PASSWORD=correcthorse\n", 4),
    (".npmrc", "//registry.example.com/:_password=aHVudGVyMg==\n", 1),
    ("login.php", "$password = 'hunter22';\n", 1),
    ("run.sh", "fetch --password hunter22x https://example.com\n", 1),
    ("run.sh", "curl -s -u me:correcthorse https://example.com\n", 1),
    ("run.sh", "git clone https://a1b2c3d4e5f6a7b8c9d0@git.example.com/x\n", 1),
    ("run.py", 'run(["mysql", "--password", "hunter22x"])\n', 1),
    ("run.py", 'run(["curl", "-u", "me:pw7x", url])\n', 1),
]


@pytest.mark.parametrize(
    ("name", "text", "line"), PASSWORDS, ids=[f"{name}{n}" for n, (name, *_) in enumerate(PASSWORDS)]
)
def test_a_password_is_found_where_tools_keep_it_and_where_programs_pass_it(
    desk: Desk, name: str, text: str, line: int
) -> None:
    desk.write(name, text)
    desk.commit()
    leaks_by_path = leaks_of_change(Project.read(desk.root), "HEAD~1")
    assert {path: [leak.line for leak in each] for path, each in leaks_by_path.items()} == {name: [line]}


HARMLESS = {
    "run.sh": """
docker run -u 1000:1000 -p 8080:80 x
curl x && docker run -u 1000:1000 x
docker run --name mysql -p3306:3306 mysql
mysql -h db -P3306 -port=3306
gcloud run deploy --secret wandb-key-1
docker build --secret id=mytoken1,src=token1.txt .
fetch --password-file /run/secrets/db1
curl -u "$USER1:$PASS1" https://example.com
curl -u user:password https://example.com
git clone ssh://git@github.com/x/y
fetch --token "$(cat token1)" --max-token 4096 --token 128000 --token <token-1>
""",
    "a.py": """
parser.add_argument("--token", "-t1", help="of version 1")
args = ["--token", os.environ["TOKEN1"], "--secret", "tokenizer-2024"]
body = f"<NextContinuationToken>{escape(page.more)}</NextContinuationToken>"
url = "https://first-last-2024-of-a-name@example.com"
""",
    "a.xml": """
<password/><password>${db.password1}</password><label>password</label><token>&lt;token1&gt;</token>
<Password>Enter your password 2</Password><Secret>wandb-key-1</Secret><password>password</password>
""",
    "a.json": """
{"url": "https://0123456789abcdef0123456789abcdef@o12345.ingest.sentry.io/1", "input_token": "NextToken",
"password": {"type": "string", "minLength": 8}, "token": "tokenizer_config"}
""",
    "a.md": "machine example.com login USER password $PW\nUse `--token TOKEN`; the machine has a password policy.\n",
    ".netrc": "machine example.com login me\n",
    ".pgpass": "# host:port:database:user:password\n",
    "a.tfstate": '{"version": 4, "serial": 12, "lineage": "0f2a7d1e-1111-2222-3333-444455556666"}\n',
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_only_names_a_password_or_passes_none_is_taken(desk: Desk, name: str) -> None:
    desk.write(name, HARMLESS[name])
    desk.commit()
    assert leaks_of_change(Project.read(desk.root), "HEAD~1") == {}


def test_packed_prose_and_a_label_called_pass_are_no_credentials() -> None:
    prose = base64.b64encode(b"We love the quick brown fox and it jumps over the lazy dog.").decode()
    assert leaks_of_settings(f"config:\n  a:b: {prose}\n  a:c: {{Pass: season-pass-2026}}\n") == []
    packed = base64.b64encode(f"We love the token {PLANTED['a GitHub token'][1]}.".encode()).decode()
    assert leaks_of_settings(f"config:\n  a:b: {packed}\n")
    assert leaks_of_settings("config:\n  a:c: {Pass: hunter22, DB_PASS: season-pass-2026}\n")
