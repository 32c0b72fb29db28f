"""The agent's own log reaches the store, whatever becomes of single writes."""

import logging
from datetime import timedelta
from pathlib import Path

import pytest
from everspot_store import ManualClock, Store, StoreDenied, WriteOutcome, WriteResult
from everspot_train.agent.own_log import MOST_BYTES, SPACING, OwnLog


@pytest.fixture
def store(tmp_path: Path) -> Store:
    for name in ("control", "data"):
        (tmp_path / name).mkdir()
    return Store.open(f"file://{tmp_path}/control", f"file://{tmp_path}/data", clock=ManualClock())


def write_line(log: OwnLog, words: str) -> None:
    log.handle(logging.LogRecord("agent", logging.INFO, "", 0, words, None, None))


def pieces(store: Store) -> list[tuple[str, str]]:
    entries = [(entry.key, store.data.get(entry.key)) for entry in store.data.list("agents/")]
    return [(key, piece.value.decode().partition(": ")[2]) for key, piece in entries if piece is not None]


def test_lines_wait_for_a_store_and_go_a_piece_a_minute(store: Store) -> None:
    log, clock = OwnLog(), ManualClock()
    write_line(log, "before there is a store")
    log.ship_if_due()
    log.to(store, "i-1", clock)
    log.ship_if_due()
    write_line(log, "later")
    clock.advance(SPACING - timedelta(seconds=1))
    log.ship_if_due()
    assert pieces(store) == [("agents/i-1/000000.log", "before there is a store\n")]
    clock.advance(timedelta(seconds=1))
    log.ship_if_due()
    log.ship()
    assert pieces(store)[1:] == [("agents/i-1/000001.log", "later\n")]

    again = OwnLog()
    again.to(store, "i-1", clock)
    write_line(again, "of the next agent")
    again.ship()
    assert pieces(store)[2:] == [("agents/i-1/000002.log", "of the next agent\n")]


@pytest.mark.parametrize("trouble", [WriteOutcome.UNKNOWN, WriteOutcome.CONFLICT, StoreDenied("403")])
def test_what_was_not_written_is_kept_for_the_next_piece(
    store: Store, monkeypatch: pytest.MonkeyPatch, trouble: WriteOutcome | Exception
) -> None:
    def fail(_key: str, _data: bytes) -> WriteResult:
        if isinstance(trouble, Exception):
            raise trouble
        return WriteResult(trouble)

    log = OwnLog()
    log.to(store, "i-1", ManualClock())
    write_line(log, "one")
    with monkeypatch.context() as patched:
        patched.setattr(store.data, "create", fail)
        log.ship()
    log.ship()
    assert pieces(store) == [("agents/i-1/000000.log", "one\n")]


def test_a_store_that_is_away_for_long_costs_old_lines_and_no_memory(store: Store) -> None:
    log = OwnLog()
    for number in range(40):
        write_line(log, f"{number} " + "x" * (MOST_BYTES // 20))
    log.to(store, "i-1", ManualClock())
    log.ship()
    (entry,) = store.data.list("agents/i-1/")
    piece = store.data.get(entry.key)
    assert piece is not None
    assert len(piece.value) <= MOST_BYTES
    assert piece.value.startswith(b"[older lines were dropped]\n")
    assert b" 39 xxx" in piece.value
