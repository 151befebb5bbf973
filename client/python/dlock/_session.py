# SPDX-License-Identifier: BSD-3-Clause
"""The session of this process at one server: one heartbeat and one mailbox for all locks.

    keep      a heartbeat (DLOCK.SESSION) is always under way. The server replies with events, at
              the latest after a third of the timeout; the next heartbeat follows at once
    life      the server numbers the lives of a session (born). A restarted server has forgotten
              the session: kept locks are asked for again with the same tokens, and stay ours if
              their fences are the same. Whoever waits asks again, too
    lost      by an event, by another fence, or because no heartbeat was answered in time
    withdraw  a lock that nobody uses. A request without a reply may reach the server long after it
              was given up or repeated, as TCP delivers what it once accepted, and a kept lock would
              then last as long as this process. So its token is released again and again, at
              intervals that double: such a lock stays about as long as its request was late

The heartbeat runs in a thread or task of its own, and the mutex protects what other threads use:
lives, claims, withdrawn."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
from typing import TYPE_CHECKING, Any, Callable

from redis.exceptions import ResponseError

from ._wire import (MARGIN, PAUSE_FIRST, PAUSE_MAX, Call, NoReply, Pause, Relocate, Steps, Words,
                    error_of, is_transient, is_unknown_session, milliseconds, text_of)
from .errors import Refused

if TYPE_CHECKING:
    from ._claim import Claim

BATCH = 1000  # commands sent at a time
LATE = 120.0  # seconds after which no request arrives any more
PAUSE_LATER = 0.1  # until a lock that is not served is asked for again, in seconds


@dataclasses.dataclass
class Withdrawal:
    words: Words  # of the release
    since: float
    due: float


@dataclasses.dataclass(eq=False)
class Asked:
    """A request for a lock that was kept."""
    claim: Claim
    token: bytes
    words: Words
    release: Words
    asking: set[object]  # of the acquisition


class Life:
    """A time for which locks are certainly ours: a life of the session, or a lease."""
    __slots__ = ("born", "until", "claims")

    def __init__(self, born: int, until: float):
        self.born, self.until = born, until
        self.claims: dict[bytes, Claim] = {}  # kept locks, by token


class Session:
    def __init__(self, id: str, timeout: float, io_timeout: float, clock: Callable[[], float],
                 is_cluster: bool = False):
        self.id, self.timeout, self.clock = id, timeout, clock
        self.io_timeout = min(io_timeout, timeout / 4)  # so that a failure can be made good
        self.is_cluster = is_cluster
        self.mutex = threading.Lock()
        self.life: Life | None = None  # the present one
        self.lives: list[Life] = []    # those that have kept locks, and the present one
        self.claims: dict[bytes, Claim] = {}  # by token: those that wait, and kept locks
        self.withdrawn: dict[bytes, Withdrawal] = {}  # by token
        self.is_open = self.is_ended = False
        self.trouble: str | None = None  # why the session is not open
        self.is_refused = False          # and this will not pass by itself
        self._last = 0                   # number of the last event
        self._pause = 0.0

    # -- for the claims

    def is_usable(self) -> bool:
        return self.is_open and self.life is not None and self.life.until > self.clock()

    def is_unused(self) -> bool:
        """Nothing hangs on it, and nothing has to be released for as long as it lives."""
        with self.mutex:
            is_over = self.life is None or self.life.until <= self.clock()
            return not (self.claims or self.withdrawn and not is_over
                        or any(life.claims for life in self.lives))

    def take(self, claim: Claim, life: Life) -> bool:
        """The claim is a kept lock now. False: something has happened meanwhile, ask again."""
        with self.mutex:
            is_doubted, claim._is_doubted = claim._is_doubted, False
            if life is not self.life or is_doubted or self.is_ended or life.until <= self.clock():
                return False
            claim._life = life
            life.claims[claim._token] = claim
            return True

    def leave(self, claim: Claim) -> None:
        with self.mutex:
            self._forget(claim)

    def leave_if_quiet(self, claim: Claim) -> bool:
        """False: the lock is being asked for again just now. The claim is woken when that ends."""
        with self.mutex:
            if claim._asking:
                return False
            self._forget(claim)
            return True

    def _forget(self, claim: Claim) -> None:
        self.claims.pop(claim._token, None)
        claim._life.claims.pop(claim._token, None)

    def withdraw(self, claim: Claim) -> None:
        self._withdraw(claim._token, claim._release_words())

    def _withdraw(self, token: bytes, words: Words) -> None:
        now = self.clock()
        with self.mutex:
            self.withdrawn[token] = Withdrawal(words, now, now)

    def adopt(self, claim: Claim) -> None:
        """A kept lock has moved here, from another server or life. It is asked for again, and is
        certain no longer than it was before."""
        until = claim._life.until
        if claim._session is not None:
            claim._session.leave(claim)
        with self.mutex:
            if claim.fence and not claim.why_lost:  # else it was released, or lost meanwhile
                claim._session, claim._life = self, Life(0, until)
                claim._is_unsure = True
                claim._life.claims[claim._token] = self.claims[claim._token] = claim
                self.lives.append(claim._life)
        if self.is_ended:
            self._lose(claim, "the client was closed")

    def end(self) -> None:
        """Nobody keeps it any more. What hangs on it is lost with it."""
        with self.mutex:
            self.is_ended, self.is_open = True, False
        for claim in self._kept():
            self._lose(claim, "the client was closed")

    # -- the heartbeat

    def keep(self) -> Steps:
        try:
            while not self.is_ended:
                try:
                    yield from self._beat()
                except Exception as failure:  # a garbled reply, too: the thread must not end
                    self.trouble, self.is_refused = str(failure), isinstance(failure, Refused)
                    self.is_open = False
                    self._wake_all()
                    self._expire()
                    yield from self._relocate(self._kept())
                    yield Pause(min(self.clock() + self._pause, self._due()))
                    self._pause = min(max(2 * self._pause, PAUSE_FIRST), PAUSE_MAX)
                self._expire()
        finally:
            self.is_open = False  # the program may have canceled the task
            for claim in self._kept():
                self._lose(claim, "the heartbeat was canceled")
            self._wake_all()

    def _relocate(self, claims: list[Claim]) -> Steps:
        """The thread must not end, whatever goes wrong: they are looked for again."""
        if self.is_cluster:
            with contextlib.suppress(Exception):
                yield Relocate(claims, min(self.clock() + self.io_timeout, self._due()))

    def _beat(self) -> Steps:
        """Over one connection, until it breaks. The first heartbeat is answered at once."""
        is_first = True
        while not self.is_ended:
            sent = self.clock()
            until = sent + self.io_timeout + (0 if is_first else self.timeout / 3)
            words = ("DLOCK.SESSION", self.id, "PX", milliseconds(self.timeout), "ACK", self._last)
            [reply] = yield Call([words], min(until, self._due()))
            if isinstance(reply, ResponseError):
                self._raise(reply)
            self._renew(reply[0], sent)
            for event in reply[1]:
                self._tell(event, sent)
            self._expire()
            yield from self._ask_again()
            yield from self._release_withdrawn()
            if not is_first:
                self._pause = 0.0
            is_first = False

    @staticmethod
    def _raise(error: ResponseError) -> None:
        if is_transient(error) or is_unknown_session(error):
            raise NoReply(error, was_sent=False)
        raise error_of(error)

    def _renew(self, born: int, sent: float) -> None:
        until = sent + MARGIN * self.timeout
        is_news = not self.is_usable()
        with self.mutex:
            if self.life is None or self.life.born != born:
                self.life, self._last, is_news = Life(born, until), 0, True
                self.lives.append(self.life)
            self.life.until, self.is_open = until, True
            self.trouble, self.is_refused = None, False
        if is_news:
            self._wake_all()

    def _due(self) -> float:
        """When the next kept locks are lost, unless a heartbeat is answered before. A lock may
        still be taken in the present life, while the heartbeat is under way."""
        now = self.clock()
        with self.mutex:
            return min((life.until for life in self.lives
                        if life.claims or life is self.life and life.until > now),
                       default=math.inf)

    def _expire(self) -> None:
        now = self.clock()
        for claim in self._kept(lambda life: life.until <= now):
            self._lose(claim, "no heartbeat was answered in time")
        with self.mutex:
            self.lives = [life for life in self.lives if life.claims or life is self.life]

    # -- events

    def _tell(self, event: list[Any], sent: float) -> None:
        number, kind, key, token, *more = event
        if number <= self._last:
            return
        self._last = number  # of unknown events, too: else they would come again at once
        if kind == b"lost" and not token:  # a flush, which does not know the tokens
            for each in list(self.claims.values()):
                if key in each.names:
                    self._doubt(each, "flushed")
            return
        claim = self.claims.get(token)
        if claim is None:
            # Of a claim that was given up, and is released again at once. Or of one whose request
            # was repeated, and that has the lock by the reply: the event tells the same grant.
            with self.mutex:
                if kind == b"granted" and token in self.withdrawn:
                    self.withdrawn[token].due = self.clock()
        elif kind == b"granted":
            fence, age = more
            claim._tell(("granted", fence, sent - age / 1000))
        elif kind == b"ended":
            claim._tell(("ended", text_of(more[0]), sent))
        elif kind == b"lost":
            if self.is_cluster and more[0] == b"moved" and token in claim._life.claims:
                self.adopt(claim)
            else:
                self._doubt(claim, text_of(more[0]))

    def _doubt(self, claim: Claim, why: str) -> None:
        """The lock is gone. Where nobody was told of it yet, it is asked for again."""
        with self.mutex:
            is_kept = claim._token in claim._life.claims
            claim._is_doubted = not is_kept
        if is_kept:
            self._lose(claim, why)

    def _lose(self, claim: Claim, why: str) -> None:
        with self.mutex:
            was_kept = claim._life.claims.pop(claim._token, None) is not None
            self.claims.pop(claim._token, None)
        if was_kept:
            self.withdraw(claim)  # the server may still have the lock
            claim._lose(why)

    def _kept(self, is_meant: Callable[[Life], bool] = lambda life: True) -> list[Claim]:
        with self.mutex:
            return [claim for life in self.lives if is_meant(life)
                    for claim in life.claims.values()]

    def _wake_all(self) -> None:
        for claim in list(self.claims.values()):
            claim._wake()

    # -- after a heartbeat, over its connection

    def _ask_again(self) -> Steps:
        """For the kept locks of earlier lives. Some may not be served for now, or have moved."""
        end = self.clock() + self.timeout / 6
        while claims := self._kept(lambda life: life is not self.life):
            for i in range(0, len(claims), BATCH):
                life, replies = self.life, None
                asked = self.begin_asking(claims[i:i + BATCH])
                try:
                    if asked:
                        replies = yield Call([each.words for each in asked],
                                             self.clock() + self.io_timeout)
                finally:
                    self.end_asking(asked, replies, life)
            left = self._kept(lambda life: life is not self.life)
            if not left or self.clock() >= end:
                return
            yield from self._relocate(left)
            yield Pause(self.clock() + PAUSE_LATER)
            self._expire()

    def begin_asking(self, claims: list[Claim]) -> list[Asked]:
        """For kept locks, until end_asking(): those that are still kept. Nobody releases them
        meanwhile: a release over another connection could overtake the request, and the lock would
        be taken again."""
        with self.mutex:
            asked = [Asked(claim, claim._token, claim._acquire_words(self.id),
                           claim._release_words(), claim._asking)
                     for claim in claims if claim._token in claim._life.claims]
            for each in asked:
                each.asking.add(each)
        return asked

    def end_asking(self, asked: list[Asked], replies: list[Any] | None,
                   life: Life | None) -> None:
        """life: in which the commands were sent. No replies: nobody knows what has become of them.
        A loss is told when the request has ended, as the program may release the lock then."""
        lost = [(each.claim, why) for each, reply in zip(asked, replies or [])
                if (why := self._confirm(each, reply, life))]
        with self.mutex:
            for each in asked:
                each.asking.discard(each)
                if replies is None and each.claim._token == each.token:
                    each.claim._is_unsure = True
        for each in asked:
            each.claim._wake()
        for claim, why in lost:
            self._lose(claim, why)

    def _confirm(self, asked: Asked, reply: Any, life: Life | None) -> str | None:
        """reply: to an acquire of a kept lock, which was sent in this life. The result is why the
        lock is lost now. It may also have been lost before, and the Lock be used again."""
        claim = asked.claim
        with self.mutex:
            is_kept = (claim._token == asked.token and claim._token in claim._life.claims
                       and claim.fence > 0)
            is_same = reply == claim.fence
            if is_kept:
                claim._answer = reply
            if is_kept and is_same and life is not None and life is self.life:
                del claim._life.claims[claim._token]
                claim._life = life
                life.claims[claim._token] = claim
        if isinstance(reply, ResponseError):
            may_pass = is_transient(reply) or is_unknown_session(reply)
            return None if may_pass or not is_kept else text_of(reply)
        if not is_kept:  # and perhaps taken again by this request
            self._withdraw(asked.token, asked.release)
            return None
        return None if is_same else "the server has forgotten it"

    def _release_withdrawn(self) -> Steps:
        now = self.clock()
        with self.mutex:
            due = [(token, each) for token, each in self.withdrawn.items() if each.due <= now]
        for i in range(0, len(due), BATCH):
            some = due[i:i + BATCH]
            yield Call([each.words for _, each in some], self.clock() + self.io_timeout)
            with self.mutex:
                for token, each in some:
                    age = self.clock() - each.since
                    each.due = self.clock() + age
                    if age >= LATE and self.withdrawn.get(token) is each:
                        del self.withdrawn[token]
