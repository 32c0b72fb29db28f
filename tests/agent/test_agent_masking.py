"""The values of secrets are masked in what a program writes."""

import json
from itertools import pairwise

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
