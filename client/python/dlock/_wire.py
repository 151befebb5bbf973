# SPDX-License-Identifier: BSD-3-Clause
"""The clock, the meaning of errors, and what the steps of a lock ask of a thread or a task.

The steps (_session.py, _claim.py) are generators. They yield requests of the classes below, and are
sent the replies. A client (_client.py) carries the requests out, for threads and for tasks, so
there is one lock for both, and a test can play the server and the clock."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Generator, NamedTuple, Sequence, Union

from redis import exceptions

from .errors import Error, QueueFull, Refused, Unreachable

if TYPE_CHECKING:
    from ._claim import Claim
    from ._client import Route
    from ._session import Session

Word = Union[bytes, str, int, float]
Words = Sequence[Word]
Steps = Generator[Any, Any, Any]

MARGIN = 0.99  # of a lease counts: the clocks of client and server may run 1 % apart
PAUSE_FIRST, PAUSE_MAX = 0.02, 1.0  # before the next attempt, in seconds
SLICE = 1.0  # of a long wait: timeouts stand still while the machine sleeps, CLOCK does not
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Seconds on a clock that nobody can set, and that counts while the machine is suspended."""
    return time.clock_gettime(CLOCK)


class Send(NamedTuple):
    """Commands to the server that has the lock. The result is a list of replies, in which errors
    are exceptions; or NoReply is raised. session: of the commands, which are for its server alone;
    Elsewhere is raised if another one has the lock. route: as of Elsewhere."""
    claim: Claim
    commands: list[Words]
    until: float
    session: Session | None = None
    route: Route | None = None


class Call(NamedTuple):
    """The same, over the connection of the session."""
    commands: list[Words]
    until: float


class Wait(NamedTuple):
    """Until then, or until the claim is woken. A wait may also end without a reason."""
    claim: Claim
    until: float


class Pause(NamedTuple):
    """Until then, or until the session is ended."""
    until: float


class Find(NamedTuple):
    """The session at the server that has the lock. It is being opened if it is not open. route: as
    of Elsewhere."""
    claim: Claim
    route: Route | None = None


class Relocate(NamedTuple):
    """Give these kept locks to the sessions at the servers that have them now, in a cluster. Until
    then, nodes are asked who has them."""
    claims: list[Claim]
    until: float


class NoReply(Exception):
    """was_sent: the server may have received the commands."""

    def __init__(self, cause: object, was_sent: bool):
        super().__init__(str(cause) or type(cause).__name__)
        self.was_sent = was_sent


class Elsewhere(NoReply):
    """Another server has the lock than that of the session. route: to the one that has it while
    its slot moves, and has to be told that we were sent; None: to the owner of the slot."""

    def __init__(self, route: Route | None = None):
        super().__init__("another server has the lock now", was_sent=False)
        self.route = route


# redis-py turns the first words of some errors into classes, and takes them off the text. Which
# ones depends on its release, so both forms are known here.
TRANSIENT = (exceptions.ReadOnlyError, exceptions.TryAgainError, exceptions.ClusterDownError,
             exceptions.MasterDownError, exceptions.AskError)  # MovedError is an AskError
TRANSIENT_WORDS = ("READONLY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "ASK", "MOVED", "LOADING",
                   "BUSY", "NOREPLICAS", "UNBLOCKED")


def text_of(reply: Any) -> str:
    return reply.decode("utf-8", "replace") if isinstance(reply, bytes) else str(reply)


def is_transient(error: object) -> bool:
    """May the same request succeed in a moment?"""
    return isinstance(error, TRANSIENT) or text_of(error).split(" ")[0] in TRANSIENT_WORDS


def is_read_only(reply: object) -> bool:
    """From a replica: its address may lead to another server by now."""
    return isinstance(reply, exceptions.ReadOnlyError) or (
        isinstance(reply, exceptions.ResponseError) and str(reply).startswith("READONLY"))


def is_unknown_session(error: object) -> bool:
    return text_of(error).startswith("NOSESSION")


def error_of(error: object) -> Error:
    """The exception for an error reply."""
    text = text_of(error)
    if text.startswith("QUEUEFULL"):
        return QueueFull(text)
    if is_transient(error):
        return Unreachable(f"the server does not serve the lock at present: {text}")
    if text.startswith("unknown command"):
        return Refused("the server does not have the module dlock, or not this version of it: "
                       + text)
    return Refused(text)


def redirection(reply: Any) -> tuple[str, str, int] | None:
    """("MOVED" or "ASK", host, port), if the reply is one of them."""
    if not isinstance(reply, exceptions.ResponseError):
        return None
    if isinstance(reply, exceptions.AskError):
        kind = "MOVED" if isinstance(reply, exceptions.MovedError) else "ASK"
        return kind, reply.host, reply.port
    words = str(reply).split(" ")
    if words[0] not in ("MOVED", "ASK") or len(words) < 3:
        return None
    host, _, port = words[2].rpartition(":")
    return words[0], host, int(port)


def milliseconds(seconds: float) -> int:
    """At least so long: a lease of the server must not be shorter than what we count."""
    return max(1, math.ceil(round(seconds * 1000, 3)))
