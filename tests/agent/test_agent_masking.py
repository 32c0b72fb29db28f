"""The values of secrets are masked in what a program writes."""

import base64
import json
from itertools import pairwise
from urllib.parse import quote, quote_plus

import pytest
from everspot_train.masking import masked
from everspot_train.prepare.scrub import MASK, Scrubber
from hypothesis import given
from hypothesis import strategies as st

WORDS = st.text(alphabet="abc", min_size=4, max_size=7)


@given(st.lists(WORDS, max_size=4), st.text(alphabet="abcd", max_size=60), st.lists(st.integers(0, 60), max_size=8))
def test_a_secret_is_masked_wherever_the_stream_is_cut(secrets, text, cuts):
    whole = Scrubber(secrets)
    expected = whole.feed(text.encode()) + whole.flush()
    pieces = sorted({0, *(min(cut, len(text)) for cut in cuts), len(text)})
    cut = Scrubber(secrets)
    output = b"".join(cut.feed(text[a:b].encode()) for a, b in pairwise(pieces)) + cut.flush()
    assert output == expected
    assert not any(secret.encode() in piece for piece in output.split(MASK) for secret in secrets)


def test_nothing_is_held_back_that_can_be_no_secret():
    scrubber = Scrubber(["hunter22", "two\nlines of it"])
    assert scrubber.feed(b"step 1\rstep 2\n") == b"step 1\rstep 2\n"
    assert scrubber.feed(b"password hun") == b"password "
    assert scrubber.feed(b"ter22 lines of it") == MASK + b" " + MASK
    assert scrubber.flush() == b""
    assert Scrubber(["abc"]).feed(b"abc") == b"abc"


def test_a_secret_that_begins_with_another_is_masked_whole_when_it_is_cut_behind_that():
    scrubber = Scrubber(["hunter", "hunter22"])
    assert scrubber.feed(b"hunter") == b"", "more of it may come"
    assert scrubber.feed(b"22 ") == MASK + b" "
    assert scrubber.feed(b"hunter") + scrubber.feed(b" 22") == MASK + b" 22"


def test_nothing_of_a_secret_is_left_where_it_is_quoted():
    secret = "'pa\\ss\"wörd'"
    for quotation in (repr({secret: 1}), json.dumps({secret: 1})):
        scrubber = Scrubber([secret])
        output = scrubber.feed(quotation.encode()) + scrubber.flush()
        assert output in (b"{'" + MASK + b"': 1}", b'{"' + MASK + b'": 1}')


PASSWORD = "S3cr3t/Pa+ss=1"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\n-----END PRIVATE KEY-----\n"
ACCOUNT = json.dumps({"user": "train", "keys": [{"password": PASSWORD, "private_key": KEY}], "port": 5432})


@pytest.mark.parametrize("secret", [PASSWORD, ACCOUNT], ids=["text", "JSON"])
@pytest.mark.parametrize(
    "written",
    [
        f"login with {PASSWORD}",
        f"https://u:{quote(PASSWORD, safe='')}@host/x",
        f"https://u:{quote_plus(PASSWORD)}@host/x",
        f"postgres://u:{quote(PASSWORD)}@host/x",
        f"Authorization: {base64.b64encode(PASSWORD.encode()).decode()}",
        f"token={base64.urlsafe_b64encode(PASSWORD.encode()).decode().rstrip('=')}",
        repr({"password": PASSWORD}),
    ],
)
def test_a_secret_is_masked_in_each_form_in_which_programs_print_it(secret, written):
    scrubber = Scrubber([secret])
    output = (scrubber.feed(written.encode()) + scrubber.flush()).decode()
    assert masked(written, [secret]) == output
    assert MASK.decode() in output
    assert "S3cr3t" not in output and "UzNjcjN0" not in output


def test_the_lines_of_a_key_in_a_json_secret_are_masked_and_short_words_are_not():
    printed = f"train on 5432 with\n{KEY}"
    assert masked(printed, [ACCOUNT]) == f"train on 5432 with\n{MASK.decode()}"
    assert "MIIE" not in masked(f"line {KEY.splitlines()[1]}", [ACCOUNT])
