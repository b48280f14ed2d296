"""Pages: none lost, none twice, and a known beginning is the right one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fishtts.engine.pages import Pages, page_keys

SIZE = 4


def matrix(*values: int) -> np.ndarray:
    return np.stack((np.array(values), np.array(values) % 3)).astype(np.int64)


def test_keys_name_all_rows_and_all_that_comes_before() -> None:
    one = matrix(*range(12))
    assert page_keys(one, SIZE, 12)[:2] == page_keys(one, SIZE, 8)
    assert len(page_keys(one, SIZE, 11)) == 2
    for row, at in ((0, 0), (1, 0), (0, 5), (1, 7)):
        other = one.copy()
        other[row, at] += 1
        differing = [
            a != b for a, b in zip(*(page_keys(m, SIZE, 12) for m in (one, other)), strict=True)
        ]
        assert differing == [page >= at // SIZE for page in range(3)]


def test_what_was_used_least_recently_goes_first() -> None:
    pages = Pages(3, SIZE)
    for key in (b"a", b"b", b"c"):
        [page] = pages.take(1)
        pages.publish(page, key)
        pages.release([page])
    pages.share(pages.find([b"a"]))
    pages.release(pages.find([b"a"]))
    pages.take(1)
    assert [len(pages.find([key])) for key in (b"a", b"b", b"c")] == [1, 0, 1]


def test_the_end_of_a_beginning_goes_before_its_start() -> None:
    pages = Pages(3, SIZE)
    held = pages.take(3)
    for page, key in zip(held, (b"a", b"b", b"c"), strict=True):
        pages.publish(page, key)
    pages.release(held)
    pages.take(1)
    assert pages.find([b"a", b"b", b"c"]) == held[:2]


@pytest.mark.parametrize("wrong", ["twice", "free"])
def test_letting_go_of_what_one_has_not_is_noticed(wrong: str) -> None:
    pages = Pages(3, SIZE)
    [page] = pages.take(1)
    if wrong == "twice":
        pages.release([page])
    with pytest.raises(AssertionError, match="nobody holds"):
        pages.release([page] if wrong == "twice" else [2 if page != 2 else 1])


def test_more_than_there_is_cannot_be_had() -> None:
    with pytest.raises(AssertionError, match="3 pages of 2"):
        Pages(2, SIZE).take(3)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("tpsr"), st.integers(0, 6)), max_size=60))
def test_the_books_balance_whatever_happens(steps: list[tuple[str, int]]) -> None:
    pages = Pages(8, SIZE)
    holders: list[list[int]] = []
    published = 0
    for what, number in steps:
        if what == "t" and number <= pages.num_available:
            holders.append(pages.take(number))
        elif what == "p" and holders:
            for page in holders[number % len(holders)]:
                pages.publish(page, b"%d" % published)
                published += 1
        elif what == "s" and published:
            found = pages.find([b"%d" % (number % published)])
            pages.share(found)
            holders.append(found)
        elif what == "r" and holders:
            pages.release(holders.pop(number % len(holders)))
        pages.check(holders)
        assert pages.num_available + pages.num_held == 8
