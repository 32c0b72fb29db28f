"""Notifications about jobs: their conditions, delivery exactly once, and delivery by AWS's own clients."""

import json
import ssl
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from uuid import uuid4

import boto3
import pytest
from botocore.config import Config
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from everspot_clouds.aws.notify import Sender
from everspot_clouds.webhook import post
from everspot_core.cluster.notify import SUBJECT, Notifications, Occasion, due
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import JobRecord, JobState, Request
from everspot_scheduler.notifier import TRIES
from scheduler_helpers import Cluster

AT = datetime(2026, 1, 1, tzinfo=UTC)
TOPIC = "arn:aws:sns:us-east-1:123456789012:jobs"


def job(state: JobState | None, *, ended: float = 1, deadline: float | None = None, detail: str = ""):
    spec = JobSpec(name="j", recipe="image-classification")
    due_at = AT + timedelta(hours=deadline) if deadline is not None else None
    submission = JobSubmission(job_id="j-1", spec=spec, submitted_at=AT, deadline_at=due_at)
    record = (
        JobRecord(job_id="j-1", state=state, changed_at=AT + timedelta(hours=ended), detail=detail) if state else None
    )
    return submission, record


@pytest.mark.parametrize(
    ("job_and_record", "hours", "occasions"),
    [
        (job(None), 9, []),
        (job(JobState.RUNNING, deadline=5), 4, []),
        (job(JobState.RUNNING, deadline=5), 6, [Occasion.LATE]),
        (job(None, deadline=5), 6, [Occasion.LATE]),
        (job(JobState.SUCCEEDED, ended=4, deadline=5), 9, [Occasion.SUCCEEDED]),
        (job(JobState.SUCCEEDED, ended=6, deadline=5), 9, [Occasion.LATE, Occasion.SUCCEEDED]),
        (job(JobState.FAILED, ended=2), 9, [Occasion.FAILED]),
        (job(JobState.CANCELLED, ended=6, deadline=5), 9, [Occasion.CANCELLED]),
    ],
)
def test_what_is_due(job_and_record, hours, occasions):
    now = AT + timedelta(hours=hours)
    notifications = due("c", [job_and_record], now, dict.fromkeys(Occasion, AT))
    assert [t.occasion for t in notifications] == occasions
    assert due("c", [job_and_record], now, {}) == []
    assert due("c", [job_and_record], now, dict.fromkeys(Occasion, now + timedelta(seconds=1))) == []


def test_only_what_happens_from_then_on_is_told_of_when_notifications_are_switched_on(cluster: Cluster):
    cluster.agent("i-1")
    fails(cluster, "before")
    cluster.declare(notifications=Notifications(topic_arn=TOPIC, on=(Occasion.FAILED,)))
    cluster.run(20)
    cluster.agents["i-1"].breaks = False
    cluster.submit("fine")
    settle(cluster, lambda: cluster.state("fine") == "SUCCEEDED")
    cluster.agents.clear()
    cluster.agent("i-2")
    cluster.agents["i-1"] = cluster.agents["i-2"]
    fails(cluster, "after")
    settle(cluster, lambda: "after/failed" in cluster.store.sent_notices.scan())
    cluster.declare(notifications=Notifications(topic_arn=TOPIC, on=(Occasion.FAILED, Occasion.SUCCEEDED)))
    cluster.run(20)
    cluster.schedulers = [cluster.scheduler("s2")]  # which knows it from the store
    cluster.run(20)
    assert [data["job_id"] for _, data in cluster.cloud.notified] == ["after"]


def test_events_while_notifications_were_off_are_not_sent(cluster: Cluster):
    cluster.declare(notifications=Notifications(topic_arn=TOPIC))
    cluster.agent("i-1")
    cluster.run(5)
    cluster.declare(notifications=None)
    fails(cluster, "meanwhile")
    cluster.declare(notifications=Notifications(topic_arn=TOPIC))
    cluster.run(20)
    assert cluster.cloud.notified == []


def test_only_the_recipient_that_failed_gets_it_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch):
    cluster.declare(notifications=Notifications(topic_arn=TOPIC, webhook_secret_arn=HOOK))
    cluster.agent("i-1")
    calls = list[Notifications]()

    def notify(recipient: Notifications, *_: object) -> None:
        calls.append(recipient)
        if recipient.topic_arn is None:
            raise OSError("the webhook answered 404")

    monkeypatch.setattr(cluster.cloud, "notify", notify)
    fails(cluster, "j")
    settle(cluster, lambda: "j/failed" in cluster.store.sent_notices.scan(), BETWEEN_TRIES)
    assert [call.webhook_secret_arn for call in calls if call.topic_arn == TOPIC] == [None]
    assert [call.webhook_secret_arn for call in calls if call.topic_arn is None] == [HOOK] * TRIES
    assert cluster.store.sent_notices.get("j/failed").value.note == "not sent: OSError"


def test_a_subject_is_one_line_that_sns_takes():
    submission, record = job(JobState.FAILED, detail="Fehler: ☃\n" * 200)
    long_id = submission.model_copy(update={"job_id": "é" * 300})
    (notification,) = due("c", [(long_id, record)], AT, {Occasion.FAILED: AT})
    assert notification.subject.isascii()
    assert len(notification.subject) <= SUBJECT
    assert "\n" not in notification.subject
    assert len(notification.data["detail"]) == 500


HOOK = "arn:aws:secretsmanager:us-east-1:123456789012:secret:hook"
BETWEEN_TRIES = timedelta(seconds=10)
"""Messages wait for at least half a minute."""


def settle(cluster: Cluster, check: Callable[[], bool], pace: timedelta = timedelta()) -> None:
    """Turns until it holds: what is sent is sent by a thread of its own. `pace`: what passes before each turn."""
    end = time.monotonic() + 600
    while not check():
        assert time.monotonic() < end
        cluster.clock.advance(pace)
        cluster.run(1)
        time.sleep(0.01)


def fails(cluster: Cluster, name: str) -> None:
    cluster.submit(name, retries={"errors": 0})
    cluster.agents["i-1"].breaks = True
    settle(cluster, lambda: cluster.state(name) == "FAILED")


def test_a_failed_job_is_told_of_once_whoever_comes_after(cluster: Cluster):
    cluster.declare(notifications=Notifications(topic_arn=TOPIC))
    cluster.agent("i-1")
    fails(cluster, "j")
    settle(cluster, lambda: "j/failed" in cluster.store.sent_notices.scan())
    ((subject, data),) = cluster.cloud.notified
    assert subject == "j failed (cluster test)"
    assert (data["job_id"], data["occasion"], data["state"]) == ("j", "failed", "FAILED")
    cluster.schedulers = [cluster.scheduler("s2")]
    cluster.run(20)
    assert len(cluster.cloud.notified) == 1


def test_what_another_scheduler_has_told_meanwhile_is_not_sent_again(cluster: Cluster):
    cluster.declare(notifications=Notifications(topic_arn=TOPIC))
    cluster.agent("i-1")
    cluster.run(2)  # it has read the messages that were sent before
    cluster.store.sent_notices.create("j/failed", Request(at=AT, note="by another"))
    fails(cluster, "j")
    cluster.run(20)
    assert cluster.cloud.notified == []
    assert cluster.store.sent_notices.get("j/failed").value.note == "by another"


def test_what_cannot_be_sent_is_tried_again_a_bounded_number_of_times(cluster: Cluster):
    cluster.declare(notifications=Notifications(topic_arn=TOPIC))
    cluster.agent("i-1")
    cluster.cloud.deaf = 2
    fails(cluster, "j")
    settle(cluster, lambda: "j/failed" in cluster.store.sent_notices.scan(), BETWEEN_TRIES)
    assert (len(cluster.cloud.notified), cluster.cloud.deaf) == (1, 0)
    cluster.cloud.deaf = 1000
    cluster.agents.clear()
    cluster.agent("i-2")
    cluster.agents["i-1"] = cluster.agents["i-2"]
    fails(cluster, "k")
    settle(cluster, lambda: "k/failed" in cluster.store.sent_notices.scan(), BETWEEN_TRIES)
    assert cluster.store.sent_notices.get("k/failed").value.note == "not sent: OSError"
    assert cluster.cloud.deaf == 1000 - 6


@pytest.mark.parametrize("answers", [True, False])
def test_a_job_is_archived_after_its_notifications_and_within_a_day(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, answers: bool
):
    """Agents end jobs without a scheduler, which finds them all after an outage of two hours."""
    cluster.declare(notifications=Notifications(topic_arn=TOPIC))
    cluster.run(1)
    names = {f"j-{number:02}" for number in range(30)}
    for name in names:
        cluster.submit(name)
        failed = JobRecord(job_id=name, state=JobState.FAILED, changed_at=cluster.clock.now(), epoch=1)
        cluster.store.records.put(name, failed)
    cluster.clock.advance(timedelta(hours=2))
    answer, notify = threading.Event(), cluster.cloud.notify

    def answer_late(*message: object) -> None:
        answer.wait()
        notify(*message)

    monkeypatch.setattr(cluster.cloud, "notify", answer_late)
    cluster.schedulers = [cluster.scheduler("s2")]
    cluster.run(3)
    assert set(cluster.store.jobs.names()) == names
    if answers:
        answer.set()
    else:
        cluster.clock.advance(timedelta(days=1))
    settle(cluster, lambda: not cluster.store.jobs.names())
    assert {data["job_id"] for _, data in cluster.cloud.notified} == (names if answers else set())
    answer.set()


def test_nobody_is_told_where_nothing_is_declared(cluster: Cluster):
    cluster.agent("i-1")
    fails(cluster, "j")
    cluster.run(10)
    assert (cluster.cloud.notified, cluster.store.sent_notices.scan()) == ([], {})


def test_what_was_told_of_a_job_that_is_gone_is_forgotten(cluster: Cluster):
    cluster.store.sent_notices.create("gone/failed", Request(at=AT))
    cluster.declare(notifications=Notifications(topic_arn=TOPIC))
    cluster.run(10)
    assert set(cluster.store.sent_notices.scan()) == {"_since/failed", "_since/late", "_since/anomaly"}


def test_a_topic_gets_the_subject_and_the_text(aws: str):
    name = f"jobs-{uuid4().hex[:8]}"
    sns, sqs = boto3.client("sns", region_name="us-east-1"), boto3.client("sqs", region_name="us-east-1")
    topic = sns.create_topic(Name=name)["TopicArn"]
    queue = sqs.create_queue(QueueName=name)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    sender = Sender(boto3.Session(region_name="eu-west-1"), Config(retries={"total_max_attempts": 1}))
    sender.send(Notifications(topic_arn=topic), "j failed", "j failed\neverspot job j", {})
    body = json.loads(sqs.receive_message(QueueUrl=queue)["Messages"][0]["Body"])
    assert (body["Subject"], body["Message"]) == ("j failed", "j failed\neverspot job j")


@pytest.mark.parametrize(
    "address",
    [
        "http://hooks.example.com/x",
        "file:///etc/passwd",
        "https://a b/",
        "",
        "https://user:token@host/x",
        "https://host:token/x",
        "https://[token/x",
        "https://host/\x7ftoken",
        "https://host/tok\u00e9n",
        "https:///token",
    ],
)
def test_a_webhook_that_is_no_https_address_is_refused_and_never_printed(aws: str, address: str):
    secrets = boto3.client("secretsmanager", region_name="us-east-1")
    arn = secrets.create_secret(Name=f"hook-{uuid4().hex[:8]}", SecretString=address or " ")["ARN"]
    sender = Sender(boto3.Session(region_name="us-east-1"), Config(retries={"total_max_attempts": 1}))
    with pytest.raises(ValueError, match="the webhook's secret is no https address") as refused:
        sender.send(Notifications(webhook_secret_arn=arn), "s", "t", {})
    assert str(refused.value) == "the webhook's secret is no https address"


def make_certificate(folder: Path) -> Path:
    """Return a file with a key and a certificate for 127.0.0.1 that is its own authority."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    now, address = datetime.now(UTC), x509.IPAddress(ip_address("127.0.0.1"))
    builder = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), now - timedelta(days=1), now + timedelta(days=1)
    )
    certificate = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False).sign(key, SHA256())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path = folder / "webhook.pem"
    path.write_bytes(private + certificate.public_bytes(Encoding.PEM))
    return path


def test_a_webhook_that_redirects_gets_the_message_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A real server with TLS. The place that it names is on the same server, and is not asked."""
    certificate, paths, bodies = make_certificate(tmp_path), list[str](), list[dict[str, str]]()

    class Moved(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            paths.append(self.path)
            bodies.append(json.loads(self.rfile.read(int(self.headers.get("Content-Length", 2))) or "{}"))
            self.send_response(307)
            self.send_header("Location", f"https://127.0.0.1:{server.server_port}/other")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Moved)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with pytest.raises(OSError, match=r"^the webhook answered 307$"):
        post(f"https://127.0.0.1:{server.server_port}/secret-path", {"text": "<!channel> a & b", "detail": "<a & b>"})
    server.shutdown()
    server.server_close()
    assert paths == ["/secret-path"]
    # A chat obeys `text`: it would call everybody. Programs read the other fields.
    assert bodies == [{"text": "&lt;!channel&gt; a &amp; b", "detail": "<a & b>"}]


def test_a_webhook_that_does_not_answer_is_told_without_its_address(aws: str):
    secrets = boto3.client("secretsmanager", region_name="us-east-1")
    arn = secrets.create_secret(Name=f"hook-{uuid4().hex[:8]}", SecretString="https://127.0.0.1:9/secret-path")["ARN"]
    sender = Sender(boto3.Session(region_name="us-east-1"), Config(retries={"total_max_attempts": 1}))
    with pytest.raises(OSError, match="the webhook does not answer") as refused:
        sender.send(Notifications(webhook_secret_arn=arn), "s", "t", {})
    assert "secret-path" not in str(refused.value)
