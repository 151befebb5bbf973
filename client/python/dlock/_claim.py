# SPDX-License-Identifier: BSD-3-Clause
"""One claim on one lock, or on several that are taken together: what Lock is for threads and tasks.

    attempt   join the session, send DLOCK.ACQUIRE, and wait for the outcome if the lock is busy
    again     after a failure that may pass, until the wait is over, with the same token: what an
              earlier attempt took is kept, and so is a place in the queue
    give up   leave the queue, and give back what an unanswered attempt may have taken

A kept lock is a hold of the session (VIA id SESSION), and lasts as long as the session. A lock with
a lease (PX) ends by itself; a session only carries the outcome of its wait."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import secrets
from typing import Any, Callable, NoReturn, Sequence

from redis.exceptions import ResponseError

from ._session import Life, Session
from ._wire import (MARGIN, PAUSE_FIRST, PAUSE_MAX, Elsewhere, Find, NoReply, Send, Steps, Wait,
                    Word, Words, error_of, is_transient, is_unknown_session, milliseconds, text_of)
from .errors import Busy, Error, InDoubt, Lost, NotHeld, Refused, Timeout, Unreachable

A_DAY = 86_400.0  # the longest wait of the server
STILL_BUSY = "busy until the wait was over"
FRESH = 0.9       # of a lease must be left when the lock is given to its user


class _Again(Exception):
    """The attempt may succeed if it is made again. is_soon: even if the wait is over, since the
    server has replied and the session had to be opened again."""

    def __init__(self, failure: Error, is_soon: bool = False):
        super().__init__(str(failure))
        self.failure, self.is_soon = failure, is_soon


class Claim:
    def __init__(self, io_timeout: float, clock: Callable[[], float], wakeup: Any, lost: Any,
                 names: Sequence[str | bytes], wait: float = 0.0, lease: float | None = None,
                 shared: bool = False, slots: int | None = None,
                 on_lost: Callable[[Any], object] | None = None):
        if not 1 <= len(names) <= 64:
            raise ValueError("a lock has 1 to 64 names")
        if lease is not None:
            _check_lease(lease)
        if slots is not None and (isinstance(slots, bool) or not isinstance(slots, int)
                                  or slots < 1):
            raise ValueError("slots: a whole number, at least 1")
        for name in names:
            if not isinstance(name, (str, bytes)):  # bytes(5) would be five zeros
                raise TypeError(f"a name is a str or bytes, not {name!r}")
        self.names = tuple(name.encode() if isinstance(name, str) else name for name in names)
        self.wait, self.lease = _checked(wait), lease
        self.shared, self.slots = shared or slots is not None, slots
        self.fence = 0
        self.why_lost: str | None = None
        self.lost, self._on_lost, self._wakeup = lost, on_lost, wakeup
        self._client: Any = None
        self._io_timeout, self._clock = io_timeout, clock
        self._token = b""
        self._session: Session | None = None
        self._life = Life(0, 0.0)
        self._pid = 0
        self._outcome: tuple[str, Any, float] | None = None
        self._is_doubted = False
        self._is_queued = False  # the server has said so
        self._is_unsure = False  # the server may have received a request without a reply
        self._was_sent = False   # a request of this acquisition
        self._route: Any = None  # of Elsewhere, for the next attempt
        self._asking: set[object] = set()  # requests of sessions for this acquisition
        self._answer: Any = None  # to the last of these
        self._calls: set[object] = set()  # of acquire() and release() that are under way

    # -- for everybody

    @property
    def token(self) -> str:
        """Identifies this acquisition at the server; another one for every acquisition."""
        return self._token.decode()

    @property
    def held(self) -> bool:
        """Is the lock certainly ours at this moment?"""
        return self.remaining() > 0

    def remaining(self) -> float:
        """For how many seconds the lock is certainly ours. Of a kept lock: if no heartbeat is
        answered from now on."""
        if not self.fence or self.why_lost or self._pid != os.getpid():
            return 0.0
        return max(0.0, self._life.until - self._clock())

    def check(self) -> None:
        """Raises Lost if the lock is not certainly ours any more, NotHeld if it never was."""
        self._require()
        if not self.held:
            raise Lost(self._message(self.why_lost or "its time is over"))

    # -- for the session

    def _tell(self, outcome: tuple[str, Any, float]) -> None:
        self._outcome = outcome
        self._wake()

    def _wake(self) -> None:
        self._wakeup.set()

    def _lose(self, why: str) -> None:
        if self.why_lost:
            return
        self.why_lost = why
        self.lost.set()
        if self._on_lost is not None:
            try:
                self._on_lost(self)
            except Exception:
                logging.getLogger("dlock").exception("on_lost of %r", self.names[0])

    # -- commands

    def _acquire_words(self, session: str | None, wait: float = 0.0) -> Words:
        words: list[Word] = ["DLOCK.ACQUIRE"]
        if len(self.names) > 1:
            words = ["DLOCK.ACQUIREALL", len(self.names)]
        words += [*self.names, self._token]
        if self.lease is not None:
            words += ["PX", milliseconds(self.lease)]
        if wait > 0:
            words += ["WAIT", milliseconds(min(wait, A_DAY))]
        if session is not None:
            words += ["VIA", session]
        if self.lease is None:
            words.append("SESSION")
        if self.shared:
            words.append("SHARED")
        if self.slots is not None:
            words += ["MAX", self.slots]
        return words

    def _release_words(self) -> Words:
        if len(self.names) > 1:
            return ["DLOCK.RELEASEALL", len(self.names), *self.names, self._token]
        return ["DLOCK.RELEASE", self.names[0], self._token]

    # -- acquire

    def _acquire(self, wait: float | None, token: bytes = b"") -> Steps:
        """token: a new one, by which the caller can tell whether this acquisition has begun."""
        call = object()
        try:
            self._calls.add(call)
            if len(self._calls) > 1:  # they would take each other's grants for their own
                raise RuntimeError("another thread or task is just acquiring or releasing this "
                                   "Lock: use another Lock")
            return (yield from self._take(wait, token or new_token()))
        finally:
            self._calls.discard(call)

    def _take(self, wait: float | None, token: bytes) -> Steps:
        is_over = self.why_lost or self.lease is not None and not self.held
        if self.fence and not is_over and self._pid == os.getpid():
            raise RuntimeError("this Lock is held already, and is not re-entrant: use another Lock")
        wait = self.wait if wait is None else _checked(wait)
        deadline, pause = self._clock() + wait, PAUSE_FIRST
        if self.fence and self.lease is not None and self._pid == os.getpid():
            with contextlib.suppress(Error):  # its lease may last longer at the server
                yield from self._release()
        self._token, self._pid = token, os.getpid()
        self.fence, self.why_lost, self._session = 0, None, None
        self._outcome, self._life = None, Life(0, 0.0)
        self._is_doubted = self._is_queued = self._is_unsure = self._was_sent = False
        self._asking, self._answer, self._route = set(), None, None
        self.lost.clear()
        try:
            while True:
                try:
                    self.fence = yield from self._attempt(wait, deadline)
                    return self.fence
                except _Again as again:
                    self._is_unsure = self._is_unsure or self.fence > 0  # it was granted
                    self.fence = 0
                    end = deadline + (self._io_timeout if again.is_soon else 0)
                    if self._clock() + pause > end:
                        raise again.failure from None
                until = self._clock() + pause
                while self._clock() < until:
                    yield Wait(self, until)
                pause = min(2 * pause, PAUSE_MAX)
        except BaseException as failure:
            yield from self._give_up(deadline, failure)
            raise

    def _attempt(self, wait: float, deadline: float) -> Steps:
        """The fence."""
        session, life = None, Life(0, 0.0)
        if self.lease is None or wait > 0:
            session, life = yield from self._join(deadline)
        self._outcome, sent = None, self._clock()
        words = self._acquire_words(session and session.id, deadline - sent if session else 0.0)
        [fence] = yield from self._send([words], session)
        begin = sent
        if isinstance(fence, ResponseError):
            self._raise(fence)
        if fence is None:
            raise Timeout(self._message(STILL_BUSY)) if wait else Busy(self._message("busy"))
        if not isinstance(fence, int):  # QUEUED
            assert session is not None
            self._is_queued = True
            fence, begin = yield from self._wait_for_outcome(session, life, sent, deadline)
            self._is_queued = False
        self.fence = fence
        if self.lease is None:
            assert session is not None
            if not session.take(self, life):
                self._is_unsure = True
                raise _Again(InDoubt("the session had to be opened again"), is_soon=True)
            return fence
        if session is not None:
            session.leave(self)
        self._life = Life(0, begin + MARGIN * self.lease)
        if self.remaining() < FRESH * self.lease and not (yield from self._prolong(
                self.lease, max(sent, deadline) + self._io_timeout)):
            self._is_unsure = True
            raise _Again(InDoubt("the lease was over before the lock arrived"), is_soon=True)
        return fence

    def _join(self, deadline: float) -> Steps:
        """The session, when it is open, and its life."""
        while True:
            session: Session = yield from self._find()
            if session is not self._session:
                if self._session is not None:
                    self._session.leave(self)
                self._session = session
            session.claims[self._token] = self
            if session.is_ended:  # perhaps before it could have woken us
                continue          # the client is closed, and says so
            life = session.life
            if session.is_usable():
                return session, life
            if session.is_refused:
                raise Refused(session.trouble)
            now, limit = self._clock(), deadline + self._io_timeout
            if now >= limit or session.trouble and now >= deadline:
                raise Unreachable(session.trouble or "the server did not reply in time")
            yield Wait(self, limit if now >= deadline else deadline)

    def _find(self) -> Steps:
        """The session."""
        try:
            return (yield Find(self, self._route))
        except NoReply as failure:
            raise _Again(self._failure(failure)) from None

    def _send(self, commands: list[Words], session: Session | None = None,
              limit: float = math.inf) -> Steps:
        """For requests that may be repeated: the replies."""
        was_unsure, self._is_unsure, self._was_sent = self._is_unsure, True, True
        route, self._route = self._route, None
        try:
            until = min(self._clock() + self._io_timeout, limit)
            replies = yield Send(self, commands, until, session, route)
        except Elsewhere as failure:
            self._is_unsure, self._route = was_unsure, failure.route
            raise _Again(self._failure(failure), is_soon=True) from None
        except NoReply as failure:
            self._is_unsure = was_unsure or failure.was_sent
            raise _Again(self._failure(failure)) from None
        self._is_unsure = was_unsure
        return replies

    def _wait_for_outcome(self, session: Session, life: Life, asked: float,
                          deadline: float) -> Steps:
        """(fence, begin of the lease). The place in the queue is kept while the session lives."""
        limit = deadline + self._io_timeout
        while self._outcome is None:
            if session.life is not life:
                raise _Again(Unreachable("the server was restarted"), is_soon=True)
            if self._clock() >= limit:
                raise Unreachable(session.trouble) if session.trouble else Timeout(
                    self._message(STILL_BUSY))
            yield Wait(self, limit)
            if not session.is_open and (yield from self._find()) is not session:
                raise _Again(Unreachable("another server has the lock now"), is_soon=True)
        kind, value, begin = self._outcome
        if kind == "granted":
            return value, begin
        self._is_queued = False
        if value == "timeout" and deadline - asked <= A_DAY:
            raise Timeout(self._message(STILL_BUSY))
        if value in ("timeout", "released") or is_transient(value):
            raise _Again(Timeout(self._message(value)))
        raise Refused(value)

    def _give_up(self, deadline: float, failure: BaseException) -> Steps:
        is_left, is_answered = self._was_sent, False
        try:
            limit = self._clock() + self._io_timeout
            # Other failures are interrupts, perhaps right before the reply was looked at.
            if isinstance(failure, Error):
                is_left = self._is_queued or self._is_unsure or self.fence > 0
                limit = deadline + self._io_timeout
            self.fence = 0
            if self._session is not None:
                self._session.leave(self)
            # GeneratorExit: an interrupt has ended what carries out the steps.
            if is_left and self._clock() < limit and not isinstance(failure, GeneratorExit):
                yield Send(self, [self._release_words()], limit)
                is_answered = True
        except (NoReply, Error, ValueError):  # ValueError: the client was closed
            pass
        finally:
            if is_left and self._session is not None and (self._is_unsure or not is_answered):
                self._session.withdraw(self)

    # -- the lock is ours

    def _release(self) -> Steps:
        call = object()
        try:
            self._calls.add(call)
            yield from self._give_back()
        finally:
            self._calls.discard(call)

    def _give_back(self) -> Steps:
        self._require()
        is_done, until = False, self._clock() + self._io_timeout
        try:
            # A request of the session goes first, over another connection: behind the release, it
            # would take the lock again.
            while self._session is not None and not self._session.leave_if_quiet(self):
                if self._clock() >= until:
                    raise NoReply("the server did not reply in time", was_sent=False)
                yield Wait(self, until)
            why, self.fence = self.why_lost, 0
            if why and self.lease is None:
                is_done = not self._is_unsure  # the session has withdrawn the lock
                raise Lost(self._message(why))
            [reply] = yield Send(self, [self._release_words()], until)
            is_done = not isinstance(reply, ResponseError)
        except NoReply as failure:
            raise InDoubt(f"{failure}; the lock is released in the background, or by the end of "
                          "its lease") from None
        finally:
            self.fence = 0
            if self._session is not None:
                self._session.leave(self)
                if self._is_unsure or not is_done:
                    self._session.withdraw(self)
        if not is_done:
            raise error_of(reply)
        if why or reply != len(self.names):
            raise Lost(self._message(why or "the server had ended it"))

    def _leave(self, kind: type[BaseException] | None) -> Steps:
        """At the end of a block, which has ended with this kind of exception."""
        was_held = self.held
        try:
            if self.fence:
                yield from self._release()
        except (Error, ValueError) as failure:  # ValueError: the client was closed
            if kind is None and not (was_held and isinstance(failure, (InDoubt, Unreachable))):
                raise

    def _extend(self, lease: float | None) -> Steps:
        if self.lease is None:
            raise ValueError("a kept lock has no lease: it lasts as long as the session")
        lease = self.lease if lease is None else lease
        _check_lease(lease)
        self._require()
        try:
            is_done = yield from self._prolong(lease)
        except _Again as again:
            raise again.failure from None
        if not is_done:
            self._lose("the server had ended it")
            raise Lost(self._message(self.why_lost))

    def _prolong(self, lease: float, limit: float = math.inf) -> Steps:
        sent = self._clock()
        replies = yield from self._send([("DLOCK.EXTEND", name, self._token, "PX",
                                          milliseconds(lease)) for name in self.names],
                                        limit=limit)
        for reply in replies:
            if isinstance(reply, ResponseError):
                self._raise(reply)
        if not all(replies):
            return False
        self._life.until = max(self._life.until, sent + MARGIN * lease)
        return True

    def _guarded(self, words: Sequence[Word]) -> Steps:
        self._require()
        if self.why_lost:
            raise Lost(self._message(self.why_lost))
        command: Words = ("DLOCK.GUARD", self.names[0], self._token, *words)
        try:
            [reply] = yield Send(self, [command], self._clock() + self._io_timeout)
        except NoReply as failure:
            raise self._failure(failure) from None
        if not isinstance(reply, ResponseError):
            return reply
        if text_of(reply).startswith("NOTHELD"):
            if self._session is not None:
                self._session.leave(self)
            if self._session is not None and self.lease is None:
                self._session.withdraw(self)  # other names of the lock
            self._lose("the server had ended it")
            raise Lost(self._message("nothing was run"))
        raise error_of(reply) if is_transient(reply) else reply

    def _require(self) -> None:
        if not self.fence or self._pid != os.getpid():
            raise NotHeld(self._message("not acquired"))

    # -- sentences

    def _raise(self, reply: ResponseError) -> NoReturn:
        if is_unknown_session(reply):
            raise _Again(Unreachable(text_of(reply)), is_soon=True)
        error = error_of(reply)
        if isinstance(error, Unreachable):
            raise _Again(error)
        raise error

    def _failure(self, failure: NoReply) -> Error:
        return InDoubt(str(failure)) if failure.was_sent else Unreachable(str(failure))

    def _message(self, why: object) -> str:
        return f"{b', '.join(self.names).decode(errors='replace')}: {why}"


def new_token() -> bytes:
    return secrets.token_hex(16).encode()


def _check_lease(lease: float) -> None:
    if isinstance(lease, (bool, str)) or not 0.001 <= lease < math.inf:
        raise ValueError("lease: seconds, or None for a lock that is kept")


def _checked(wait: float) -> float:
    if isinstance(wait, (bool, str)) or not wait >= 0:
        raise ValueError("wait: seconds, 0 for one attempt; math.inf to wait for ever")
    return min(wait, math.inf)
