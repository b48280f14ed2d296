"""Who holds which page of keys and values, and which pages hold a known beginning of a prompt.

Owns the counts. Knows no tensors and no requests, only numbers of pages and keys.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt


class Pages:
    """A fixed number of pages. A page is free, held by one or more, or kept for its content.

    Content is kept when nobody holds it any more, until its page is needed; what was used least
    recently goes first.
    """

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.num_pages, self.page_size = num_pages, page_size
        self._free = list(range(num_pages - 1, -1, -1))
        self._holders: Counter[int] = Counter()
        self._kept: OrderedDict[int, None] = OrderedDict()
        self._page_of: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}

    @property
    def num_available(self) -> int:
        """Pages that can be had: free ones, and those only kept."""
        return len(self._free) + len(self._kept)

    @property
    def num_held(self) -> int:
        """Pages that somebody holds."""
        return len(self._holders)

    def count(self, num_positions: int) -> int:
        """Say how many pages so many positions need."""
        return -(-num_positions // self.page_size)

    def take(self, number: int) -> list[int]:
        """Get pages of one's own. There must be as many."""
        assert number <= self.num_available, f"{number} pages of {self.num_available} asked for"
        taken = []
        for _ in range(number):
            page = self._free.pop() if self._free else self._forget_oldest()
            self._holders[page] = 1
            taken.append(page)
        return taken

    def find(self, keys: Sequence[bytes]) -> list[int]:
        """Find the pages that hold the longest known beginning; nobody holds them by that."""
        found = []
        for key in keys:
            page = self._page_of.get(key)
            if page is None:
                break
            found.append(page)
        return found

    def share(self, pages: Iterable[int]) -> None:
        """Hold pages that ``find`` has found."""
        for page in pages:
            self._kept.pop(page, None)
            self._holders[page] += 1

    def release(self, pages: Iterable[int]) -> None:
        """Let go of pages, the first ones last: a beginning is worth more than what follows it."""
        for page in reversed(list(pages)):
            assert self._holders[page] > 0, f"page {page} is released and nobody holds it"
            self._holders[page] -= 1
            if self._holders[page]:
                continue
            del self._holders[page]
            if page in self._key_of:
                self._kept[page] = None
            else:
                self._free.append(page)

    def publish(self, page: int, key: bytes) -> None:
        """Let others find a held page, whose content is final. What is known already stays so."""
        assert self._holders[page] > 0, f"page {page} is published and nobody holds it"
        if key not in self._page_of and page not in self._key_of:
            self._page_of[key] = page
            self._key_of[page] = key

    def check(self, holders: Iterable[Sequence[int]]) -> None:
        """Compare the counts with those who say they hold pages: nothing lost, nothing twice."""
        held = Counter(page for pages in holders for page in pages)
        assert held == self._holders, f"held {held}, counted {self._holders}"
        every = [*self._free, *self._kept, *self._holders]
        assert sorted(every) == list(range(self.num_pages)), "a page is lost or in two places"
        assert set(self._kept) <= set(self._key_of), "a page is kept without content"
        assert self._page_of == {key: page for page, key in self._key_of.items()}

    def _forget_oldest(self) -> int:
        page, _ = self._kept.popitem(last=False)
        del self._page_of[self._key_of.pop(page)]
        return page


def page_keys(matrix: npt.NDArray[np.int64], page_size: int, stop: int) -> tuple[bytes, ...]:
    """Name the contents of the whole pages below ``stop``, each with all that comes before it.

    All rows count: two recordings may share their semantic codes and still be two voices.
    """
    keys = []
    key = b""
    for start in range(0, stop - page_size + 1, page_size):
        rows = np.ascontiguousarray(matrix[:, start : start + page_size])
        key = hashlib.sha256(key + rows.tobytes()).digest()
        keys.append(key)
    return tuple(keys)
