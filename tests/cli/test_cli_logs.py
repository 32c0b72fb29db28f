"""What `everspot logs` prints: every byte once, over attempts and pieces, and while it follows."""

import subprocess
import sys

from everspot_cli.client import Client
from everspot_core.jobs.records import Progress, Reason


def test_logs_are_the_bytes_that_were_printed(past):
    past.store.logs.append("moved", 1, 0, b"first\n")
    letter = "é".encode()
    past.store.logs.append("moved", 1, 1, letter[:1])  # a chunk ends where it has to
    past.store.logs.append("moved", 1, 2, letter[1:] + b"\n")
    assert past.run("logs", "moved").out == "first\né\n"


def test_logs_go_on_over_attempts(past):
    past.store.logs.append("moved", 1, 0, b"first\n")
    past.store.logs.append("moved", 2, 0, b"second\n")
    assert past.run("logs", "moved").out == "first\nsecond\n"
    assert past.run("logs", "-f", "moved").out == "first\nsecond\n"
    lines = past.run("--json", "logs", "moved").out.splitlines()
    assert len(lines) == 2 and '"epoch": 2' in lines[1]


def test_an_attempt_that_was_killed_within_a_line_ends_it(past):
    past.store.logs.append("moved", 1, 0, b"step 100\nstep 110 lo")
    past.store.logs.append("moved", 2, 0, b"step 100\n")
    lines = ["step 100", "step 110 lo", "step 100"]
    assert past.run("logs", "moved").out.splitlines() == lines
    assert list(Client(store=past.url).logs("moved")) == lines


def test_the_last_lines_are_printed_over_pieces_that_end_anywhere(past):
    for seq, data in enumerate((b"one\ntw", b"o\nthree\n", b"fo", b"ur\n")):
        past.store.logs.append("moved", 1, seq, data)
    expected = ["one", "two", "three", "four"]
    for lines in range(1, 6):
        assert past.run("logs", "moved", "--tail", str(lines)).out.splitlines() == expected[-lines:]
    assert past.run("logs", "moved", "--since", "1h").out.splitlines() == expected
    assert past.run("logs", "moved", "--since", "soon").code == 2
    assert past.run("logs", "moved", "--tail", "0").code == 2


def test_what_an_agent_had_to_say_is_printed_for_its_instance(past):
    past.store.data.ensure("agents/i-spot1/000000.log", b"boot\n")
    past.store.data.ensure("agents/i-spot1/000001.log", b"end\n")
    assert past.run("logs", "--instance", "i-spot1").out == "boot\nend\n"
    assert past.run("logs", "--instance", "i-none").code == 3
    assert past.run("logs").code == past.run("logs", "moved", "--instance", "i-spot1").code == 2


def test_following_leaves_no_request_behind(past):
    past.store.logs.append("moved", 1, 0, b"first\n")
    past.run("logs", "-f", "moved")
    assert not past.store.following.is_followed("moved")


def test_following_a_job_that_waits_says_so_once_and_prints_what_comes(past):
    past.submit("slow", 9100)
    command = [sys.executable, "-m", "everspot_cli.main", "--store", past.url, "logs", "-f", "slow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:
        assert following.stderr.readline().startswith("cluster test: ")
        assert "has printed nothing yet (PENDING)" in following.stderr.readline()
        past.store.logs.append("slow", 1, 0, b"first\n")
        assert following.stdout.readline() == "first\n"
        past.assign("slow", "i-base", 9110)
        past.start("slow", 9115)
        past.store.logs.append("slow", 1, 1, b"last\n")
        past.leave("slow", 9120, Reason.FINISHED)
        assert following.communicate(timeout=300) == ("last\n", "")
    assert following.returncode == 0


def test_output_of_a_running_job_that_has_not_arrived_is_called_so(past):
    past.submit("busy", 9100)
    assert past.run("logs", "busy").err.splitlines()[-1] == "busy has printed nothing yet (PENDING)"
    past.assign("busy", "i-base", 9110)
    past.start("busy", 9115)
    past.save(past.record("busy").model_copy(update={"progress": Progress(step=280)}))
    line = past.run("logs", "busy").err.splitlines()[-1]
    assert line.startswith("no output of busy has arrived yet (RUNNING, step 280): it comes once a minute")
    past.store.logs.append("busy", 1, 0, b"first\n")
    answer = past.run("logs", "busy")
    assert answer.out == "first\n" and "arrived" not in answer.err


def test_following_a_job_that_failed_ends_with_5(past):
    past.submit("gone", 9100)
    past.assign("gone", "i-base", 9110)
    past.start("gone", 9115)
    past.leave("gone", 9120, Reason.CANCEL)
    answer = past.run("logs", "--follow", "gone")
    assert answer.code == 5
    assert "has printed nothing yet" in answer.err
