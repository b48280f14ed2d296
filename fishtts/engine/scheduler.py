"""Who runs next: admission, parts of prompts, decoding, preemption, finishing.

First come, first served. Owns requests' pages and slots. Knows no tensors and no frames' meaning.
"""

from __future__ import annotations

from bisect import insort
from collections import deque

from fishtts.engine.pages import Pages
from fishtts.engine.request import Batch, Capacity, Chunk, Request

CHUNK = 256
"""Positions of a prompt that are worked out at once at most. A known beginning is taken over only
where a chunk would begin, so that it is cut up in one way whether it was known or not: then its
numbers are the same to the last bit."""


class Scheduler:
    """Keeps those that wait in the order in which they came, and those that run likewise.

    When pages run out, the youngest gives up its own and waits again, so that the oldest always
    gets on. ``budget`` is how many positions of prompts a step may work out beside its frames.
    """

    def __init__(self, capacity: Capacity, *, budget: int = CHUNK) -> None:
        assert CHUNK % capacity.page_size == 0, "chunks are whole pages"
        self.pages = Pages(capacity.num_pages, capacity.page_size)
        self._capacity = capacity
        self._budget = budget
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []
        self._slots = list(range(capacity.max_batch - 1, -1, -1))

    @property
    def num_waiting(self) -> int:
        """Requests that have no slot."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """Requests that have one."""
        return len(self._running)

    def add(self, request: Request) -> None:
        """Let a request wait for its turn."""
        assert not self._waiting or self._waiting[-1].id < request.id, "ids rise"
        self._waiting.append(request)

    def remove(self, request: Request) -> None:
        """Take a request out, wherever it is: it is finished, or nobody wants it any more."""
        if request.slot < 0:
            self._waiting.remove(request)
        else:
            self._stop(request)

    def schedule(self) -> Batch:
        """Choose what the next step works out, and count it as done.

        Nothing comes out where all who run have drawn their last frame: then somebody must end.
        """
        decode = self._with_room()
        chunks = self._chunks()
        for request in decode:
            request.num_computed += 1
        for chunk in chunks:
            chunk.request.num_computed = chunk.stop
        return Batch(tuple(chunks), tuple(decode))

    def publish(self, batch: Batch) -> None:
        """Let others share the beginnings that a step has worked out."""
        for chunk in batch.chunks:
            request, size = chunk.request, self._capacity.page_size
            first, last = chunk.start // size, min(chunk.stop, request.cut) // size
            for at in range(first, last):
                self.pages.publish(request.pages[at], request.keys[at])

    def check(self) -> None:
        """Check what must hold between two steps."""
        self.pages.check(request.pages for request in self._running)
        slots = [request.slot for request in self._running]
        assert sorted([*slots, *self._slots]) == list(range(self._capacity.max_batch))
        for queue in (self._running, self._waiting):
            ids = [request.id for request in queue]
            assert ids == sorted(set(ids)), "out of order, or twice"
        for request in self._waiting:
            owned = (request.pages, request.slot, request.num_computed)
            assert owned == ([], -1, 0), f"{request.id} waits and has {owned}"
        for request in self._running:
            need = self.pages.count(request.num_computed)
            assert need <= len(request.pages), f"{request.id} has more positions than pages"
            assert request.num_computed < request.num_prompt + request.max_frames

    def _with_room(self) -> list[Request]:
        """Find the requests that decode, each with a page for its next position."""
        decode: list[Request] = []
        for request in [r for r in self._running if r.is_prefilled and not r.has_drawn_all]:
            if request.slot < 0:  # it gave way to an older one just now
                continue
            if self.pages.count(request.num_computed + 1) > len(request.pages):
                while not self.pages.num_available and request.slot >= 0:
                    self._preempt(self._running[-1])
                if request.slot < 0:
                    continue
                request.pages += self.pages.take(1)
            decode.append(request)
        return decode

    def _chunks(self) -> list[Chunk]:
        """Choose parts of prompts: of those that run first, then of those who now may."""
        chunks: list[Chunk] = []
        budget = self._budget
        for request in [r for r in self._running if not r.is_prefilled]:
            budget = self._cut_up(request, budget, chunks)
        while budget > 0 and self._waiting and self._slots and self._admit(self._waiting[0]):
            budget = self._cut_up(self._waiting.popleft(), budget, chunks)
        return chunks

    def _cut_up(self, request: Request, budget: int, chunks: list[Chunk]) -> int:
        """Add a request's next chunks as far as the budget goes; a chunk is never made shorter."""
        start = request.num_computed
        while start < request.num_prompt and budget > 0:
            stop = _chunk_end(start, request.cut, request.num_prompt)
            chunks.append(Chunk(request, start, stop))
            budget -= stop - start
            start = stop
        return budget

    def _admit(self, request: Request) -> bool:
        """Give a request a slot and pages for its prompt and first frame, if there are as many."""
        known = self._known(request)
        if self._is_coming(request.keys[len(known) :]):
            return False
        # What only lies kept is held by this, and then no page to be had any more.
        self.pages.share(known)
        needed = self.pages.count(request.num_prompt + 1) - len(known)
        if needed + self._reserve() > self.pages.num_available:
            self.pages.release(known)
            return False
        request.pages = known + self.pages.take(needed)
        request.num_computed = len(known) * self._capacity.page_size
        request.slot = self._slots.pop()
        insort(self._running, request, key=lambda r: r.id)
        return True

    def _known(self, request: Request) -> list[int]:
        """Find the pages of a known beginning, up to a place where a chunk would begin."""
        found = self.pages.find(request.keys)
        length = len(found) * self._capacity.page_size
        if length < request.cut:
            length -= length % CHUNK
        return found[: length // self._capacity.page_size]

    def _is_coming(self, missing: tuple[bytes, ...]) -> bool:
        """Tell whether somebody is working out the same beginning: then it pays to wait."""
        return bool(missing) and any(
            request.num_computed < request.cut and missing[0] in request.keys
            for request in self._running
        )

    def _reserve(self) -> int:
        """Count the pages that are left for those that run; nobody is let in to be sent out."""
        return len(self._running)

    def _preempt(self, request: Request) -> None:
        self._stop(request)
        request.num_preempted += 1
        # It is older than all who wait: they came after it, or gave way before it did.
        assert not self._waiting or request.id < self._waiting[0].id
        self._waiting.appendleft(request)

    def _stop(self, request: Request) -> None:
        self._running.remove(request)
        self.pages.release(request.pages)
        self._slots.append(request.slot)
        request.pages, request.slot, request.num_computed = [], -1, 0


def _chunk_end(start: int, cut: int, stop: int) -> int:
    """Say where a chunk ends. It depends on the prompt alone, never on who runs beside it."""
    if start < cut:
        return min(start - start % CHUNK + CHUNK, cut)
    return min(start + CHUNK, stop)
