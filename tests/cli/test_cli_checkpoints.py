"""What the command says of a job's checkpoints: how often and why, and what a notice costs."""

from everspot_core.records import EventKind

REASON = "a checkpoint of 1 GB stalls training for 2 s, and an interruption comes about every 8 h"
LOSS = "a checkpoint of 150 GB takes 240 s to be durable, longer than a notice of 120 s leaves: an interruption costs"


def begin(world) -> None:
    world.submit("a")
    world.assign("a", "i-spot1", 10)
    world.start("a", 20)


def test_job_says_how_often_it_checkpoints_and_why(world):
    begin(world)
    row = world.run("--json", "job", "a").json
    assert (row["checkpoint_interval"], row["notice_loss"]) == (None, None)
    assert row["spec"]["checkpoint"]["every"] == "auto"
    world.emit("a", EventKind.CHECKPOINT_INTERVAL, seconds=60.0, cause="shortest", reason="the shortest")
    world.emit("a", EventKind.CHECKPOINT_INTERVAL, seconds=339.4, cause="balanced", reason=REASON)
    row = world.run("--json", "job", "a").json
    assert (row["checkpoint_interval"], row["notice_loss"]) == (f"every 5m39s: {REASON}", None)
    shown = " ".join(world.run("job", "a").out.split())
    assert shown.count(f"every 5m39s: {REASON}") == 2, "among the facts and in the history"
    assert "checkpoint_interval" in shown and "every 1m00s: the shortest" in shown
    assert "at a notice" not in shown


def test_job_says_what_a_notice_costs_a_job_whose_state_is_too_large(world):
    begin(world)
    sentence = f"{LOSS} up to 1,200 steps (10 min)"
    world.emit(
        "a", EventKind.CHECKPOINT_INTERVAL, seconds=360.0, cause="notice", reason="bounded", notice=sentence,
        lost_steps=1200,
    )  # fmt: skip
    row = world.run("--json", "job", "a").json
    assert row["notice_loss"] == sentence
    shown = " ".join(world.run("job", "a").out.split())
    assert f"at a notice {sentence}" in shown
    assert f"every 6m00s: bounded; {sentence}" in shown


def test_a_job_that_counts_in_steps_says_only_what_a_notice_costs(world):
    begin(world)
    world.emit("a", EventKind.CHECKPOINT_INTERVAL, cause="chosen", reason="as the job says", notice=f"{LOSS} a lot")
    row = world.run("--json", "job", "a").json
    assert (row["checkpoint_interval"], row["notice_loss"]) == ("as the job says", f"{LOSS} a lot")


def test_an_event_that_makes_no_sense_is_not_shown(world):
    begin(world)
    world.emit("a", EventKind.CHECKPOINT_INTERVAL, seconds=True, reason=5, notice=[1])
    answer = world.run("--json", "job", "a")
    assert (answer.code, answer.json["checkpoint_interval"], answer.json["notice_loss"]) == (0, None, None)
