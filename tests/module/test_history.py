"""The checker of histories has teeth: small histories made by hand, good ones and bad ones.

A history is a text of clauses, "second who verb option...". Its times are from a morning long ago,
and a lease is 10 s. See Story for the verbs. "gone" alone: the server has removed the key."""

import re

import pytest

from support.history import (
    Claim, Command, Event, History, check, hand_over_delays, read_monitor, read_stream)

UNBLOCKED = "UNBLOCKED client unblocked via CLIENT UNBLOCK"


class Story:
    START = 1_000_000_000

    def __init__(self, text):
        self.history = History([], [], [], self.START + 1000)
        self.claims = {}
        for clause in text.split(","):
            self.play(*clause.split())

    def play(self, at, who="gone", verb=None, *options):
        if at == "gone":
            return self.event("gone")
        at = float(at) + self.START
        options = dict(option.partition("=")[::2] for option in options)
        if who in ("deleted", "stalls"):
            return getattr(self, who)(at, verb)
        claim = self.claims.get(who)
        if claim is None:
            claim = self.asks(at, who, verb, options)
        if verb not in ("asks", "waits"):
            getattr(self, verb)(at, claim, **options)

    def event(self, kind, claim=Claim("k", ""), *more, **fields):
        self.history.events.append(Event(kind, "k", claim.token, *more, **fields))

    def command(self, at, name, token=""):
        self.history.commands.append(Command(at, name, "k", token))

    def asks(self, at, who, verb, options):
        """Of whom nothing was told before. "waits": for a minute, or wait=ms."""
        limit = options.pop("max", None)
        claim = self.claims[who] = Claim(
            "k", who, sent_at=at, is_string=verb == "sets", max_holders=limit and int(limit),
            wait_ms=int(options.pop("wait", 60_000)) if verb == "waits" else 0,
            is_shared=options.pop("shared", None) is not None)
        if options.pop("unasked", None) is None:
            self.history.claims.append(claim)
            self.command(at, "SET" if claim.is_string else "DLOCK.ACQUIRE", who)
        return claim

    def gets(self, at, claim, lease=10, fence=None, untold=None):
        """fence=a-1: the one below that of a."""
        of, change = re.match(r"(\w)([+-]\d)", fence).groups() if fence else ("", 0)
        fence = self.claims[of].answer + int(change) if fence else int(at * 1e6)
        self.event("grant", claim, fence, float(lease), claim.is_shared)
        if untold is None:
            claim.answer, claim.answered_at = fence, at

    def sets(self, at, claim):
        """A plain string."""
        self.event("string", claim, expires=at + 10)
        claim.answer, claim.answered_at = True, at

    def extends(self, at, claim):
        self.command(at, "DLOCK.EXTEND", claim.token)
        self.event("grant", claim, claim.answer, 10)

    def extended(self, until, claim):
        """At its grant, for so long."""
        self.event("grant", claim, claim.answer, until - claim.answer / 1e6)

    def ends(self, at, claim):
        """The server has removed it; the stream was read then."""
        self.event("release", claim, at=at)

    def hears(self, at, claim, null=None, error=None, fence=None):
        answer = UNBLOCKED if error is not None else fence and int(fence)
        claim.answer, claim.answered_at = answer, at

    def releases(self, at, claim, refused=None, unseen=None):
        """unseen: somebody else has the lock after it."""
        self.command(at, "DLOCK.RELEASE", claim.token)
        claim.release = int(refused is None)
        if unseen is None:
            self.event("release", claim)

    def passes(self, at, claim, **options):
        """It releases the lock, and the one who is named first gets it."""
        to, *_ = options
        del options[to]
        self.releases(at, claim, unseen=True)
        self.gets(at, self.claims[to], **options)

    def dies(self, at, claim, session=None):
        claim.lost_at, claim.is_session = at, session is not None

    def unblocked(self, at, claim):
        claim.unblocked_at = at

    def cut(self, at, claim):
        """Its session."""
        claim.cuts = [at]

    def deleted(self, at, _verb):
        self.command(at, "DEL")
        self.event("gone")

    def stalls(self, at, until):
        self.history.pauses.append((at, float(until) + self.START))


HELD = "0 a gets, 1 b waits, 2 c waits, "  # a holds the lock, b and c wait for it in this order
LONELY = HELD + "2.5 c dies, "
UNTOLD = "0.5 b waits wait=5000, 1 b cut, {}3 b gets untold, 3.2 b hears null, 3.1 b ends"
LATE_LINE = "1 a gets, 1.5 b waits wait=9000, {}2 b gets, 4.1 a releases unseen, 4.2 b releases"

GOOD = {
    "each gets the lock in turn":
        HELD + "3 a passes b, 4 b passes c, 5 c releases, 6 d gets, gone",
    "an extended lease is one tenure":
        "0 a gets, 500 a extended, 400 a releases",
    "a lease that ended is followed":
        LONELY + "10.001 b gets, 20.001 b ends",
    "an extension counts from its own time":
        LONELY + "5 a extends, 15.001 b gets, 25.001 b ends",
    "a grant whose lease ended untold is answered with null":
        LONELY + "3 a passes b untold lease=0.05, 3.2 b hears null, 3.2 b ends",
    "a dead session is followed":
        HELD + "3 a dies session, 3.001 b gets, 4 b passes c, 5 deleted",
    "a holder that died untold is followed":
        HELD + "2.9 b dies, 3 a passes b untold, 3.001 c gets, 4 c releases",
    "a holder that was told an error is followed":
        HELD + "3 a releases unseen, 3 b unblocked, 3 b gets untold, 3 b hears error, "
        "3.001 c gets, 4 c releases",
    "a holder that was told an error loses a brief lease":
        "0 a waits wait=10, 0 a unblocked, 0 a gets lease=0.005, 0 a hears error, gone",
    "a waiter that left is passed":
        HELD + "2.5 b dies, 3 a passes c, 4 c releases",
    "a string is followed when it was released":
        "0 a sets, 1 b waits, 2 a passes b, 3 b releases",
    "nobody can be served during a stall":
        LONELY + "gone, 12 b gets, 13 b releases, 9 stalls 11.9",
    "readers hold it together":
        "0 r gets shared, 1 s gets shared, 2 t gets shared max=3, 5 r releases, 6 s releases, "
        "7 t releases",
    "a writer waits while a reader is left":
        "0 r gets shared, 1 s gets shared, 2 w waits wait=20000, 3 r releases, 8 s passes w, "
        "9 w releases",
    "a waiter whose session was cut off is passed over":
        HELD + "3.5 b cut, 4 a passes c, 5 c passes b, 6 b releases",
    "a grant to a session that was cut off is taken back":
        HELD + "3.05 b cut, 3 a passes b untold, 3.1 c gets, 4 c passes b, 5 b releases",
    "a cut counts until the server, which stood still, had time to notice it":
        UNTOLD.format("0.9 stalls 3.0, "),
    "the line of a release is late by a stall":
        LATE_LINE.format("2 stalls 4.1, "),
}

# The story, and a part of each problem that is found in it.
BAD = {
    "a fence that does not grow": (
        HELD + "3 a passes b, 4 b passes c fence=b-1, 5 c releases",
        ["is not above", "k: b lost it by hand-over"]),
    "a fence with two tokens": (
        "0 a gets, 0 b asks, 0 b gets untold fence=a+0, 0 b hears null, 1 a releases",
        ["has two tokens"]),
    "a second holder": (
        "0 a gets, 1 b waits wait=500, 2 c waits wait=500, 1.5 b hears null, 2.1 c gets, "
        "3 c releases", ["k: a lost it by hand-over before its lease ended"]),
    "a successor of one that outlived its connection, told and without a session": (
        HELD + "2.5 a dies, 2.5 b dies, 3 c gets, 4 c releases",
        ["neither released it nor died"]),
    "a release that came later": (
        LONELY + "3 b gets, 4 b releases, 5 a releases unseen",
        ["k: a lost it by hand-over before its lease ended"]),
    "a release that was refused": (
        LONELY + "3 a releases refused unseen, 3 b gets, 4 b releases",
        ["neither released it nor died"]),
    "a release by a stranger": (
        "0 a gets, 1 b asks, 1 b hears null, 2 b releases, 3 a releases",
        ["k: b released what a held",
         "k: b was told that it released the lock, but it did not hold it"]),
    "a plain SET over a lock": (
        "0 a gets, 1 b sets, gone", ["k: b took it while a held it", "k: a lost it by hand-over"]),
    "a lease cut short": (
        HELD + "gone, 3 b gets, 4 b passes c, 5 c releases",
        ["k: a lost it before its lease ended, and nobody deleted it"]),
    "a lease that was removed too early": (
        "0 a gets, 5 a ends", ["k: a lost it by release before its lease ended"]),
    "a grant nobody asked for": (
        "1 ghost gets unasked, gone", ["k: ghost got it without asking"]),
    "a waiter that is overtaken": (
        HELD + "3 a passes c, 4 c passes b, 5 b releases", ["k: c overtook b"]),
    "a waiter that is overtaken and never served": (
        "0 a gets, 1 b waits wait=4000, 2 c waits, 3 a passes c, 5.1 b hears null, 6 c releases",
        ["k: c overtook b"]),
    "a plain ACQUIRE that overtakes": (
        LONELY + "3 thief asks, 3 deleted, 3 thief gets, 4 thief passes b, 5 b releases",
        ["k: thief overtook b"]),
    "a fence that was never granted": (
        "0 a asks, 0 a hears fence=7",
        ["k: a was told fence 7, which was not granted to it"]),
    "a holder that is told null": (
        "0 a waits wait=10, 0 a unblocked, 0 a gets, 0 a hears null, 10.001 a ends",
        ["but it was granted the lock"]),
    "a holder that is told an error": (
        "0 a waits wait=10, 0 a unblocked, 0 a gets, 0 a hears error, 10.001 a ends",
        ["but it was granted the lock"]),
    "a wait cut short": (
        HELD + "99 a extended, 30 b hears null, 62 c hears null, gone",
        ["k: b was told no after 29000 of 60000 ms"]),
    "a wait with a grant that lasts too long": (
        LONELY + "70 a extended, 63 a releases unseen, 63 b gets, gone",
        ["k: b waited 2.0 s longer than it asked for"]),
    "a wait in vain that lasts too long": (
        LONELY + "70 a extended, 63 b hears null, gone",
        ["k: b waited 2.0 s longer than it asked for"]),
    "a waiter without an answer": (
        LONELY + "900 a extended, gone", ["k: b was never answered"]),
    "a lock of a session that outlives its connection by 8 s": (
        "0 a gets, 2 a dies session, gone",
        ["k: a kept it after its connection had ended"]),
    "a lock left over": ("0 a gets", ["k: a still holds it"]),
    "a release refused to the holder": (
        "0 a gets, 1 a releases refused unseen",
        ["k: a still holds it", "k: a was told that it does not hold the lock, but it does"]),
    "a waiter beside a free lock": (
        LONELY + "3 a releases, 5 b gets, 6 b releases",
        ["k: b waited 2000 ms beside a free lock"]),
    "a waiter beside a free lock that it never gets": (
        LONELY + "3 a releases, 61.1 b hears null", ["beside a free lock"]),
    "a waiter beside a lock whose lease ended": (
        LONELY + "gone, 12 b gets, 13 b releases", ["k: b waited 2000 ms beside a free lock"]),
    "a permit too many": (
        "0 r gets shared max=2, 1 s gets shared max=2, 2 t gets shared max=2, 5 r releases, "
        "6 s releases, 7 t releases", ["t got permit 3 of 2"]),
    "a writer beside readers": (
        "0 r gets shared, 1 s gets shared, 3 writer gets, 4 writer releases",
        ["writer took it while r and s held it", "r lost it by hand-over",
         "s lost it by hand-over"]),
    "a reader that replaces a writer before its release": (
        "0 writer gets, 1 reader gets shared, 2 reader releases", ["writer lost it by hand-over"]),
    "a reader that overtakes a waiting writer": (
        "0 r gets shared, 1 writer waits wait=20000, 2 late gets shared, 3 r releases, "
        "4 late releases, 4 writer gets, 5 writer releases", ["k: late overtook writer"]),
    "a waiter that is passed over though its session was not cut off": (
        HELD + "4 a passes c, 5 c passes b, 6 b releases", ["k: c overtook b"]),
    "a grant that is taken back though its session was not cut off": (
        HELD + "3 a passes b untold, 3.1 c gets, 4 c passes b, 5 b releases",
        ["k: b lost it by hand-over before its lease ended"]),
    "a cut that the server had two seconds to notice": (
        UNTOLD.format(""), ["k: b lost it by release before its lease ended"]),
    "a cut before a later stall": (
        UNTOLD.format("3.5 stalls 4.0, "), ["k: b lost it by release before its lease ended"]),
    "a line of a release that is late for no reason": (
        LATE_LINE.format(""), ["k: a lost it by hand-over before its lease ended"]),
}


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD.keys())
def test_all_is_well_when(text):
    assert check(Story(text).history) == []


@pytest.mark.parametrize("text, problems", BAD.values(), ids=BAD.keys())
def test_what_is_wrong_is_found(text, problems):
    found = check(Story(text).history)
    assert len(found) == len(problems), found
    assert all(part in problem for part, problem in zip(problems, found)), found


def test_the_delays_of_hand_overs_are_told_apart():
    story = Story(HELD + "gone, 10.002 b gets lease=1000, 11 deleted, 11.003 c gets, "
                  "12 c releases, 13 s sets, 14 d waits, gone, 23.007 d gets")
    found = hand_over_delays(story.history)
    delays = {how: round(1000 * seconds) for how, [seconds] in found.items()}
    assert delays == {"lease": 2, "del": 3, "string": 7}


# -- reading --------------------------------------------------------------------------------------


def test_the_monitor_is_read():
    lines = ('+1700000000.5 [0 127.0.0.1:1] "dlock.acquire" "k" "a" "PX" "10" "WAIT" "5"\r\n'
             '+1700000000.6 [0 ?:0] "GETRANGE" "k" "0" "256"\r\n'
             '+1700000000.6 [0 ] "GETRANGE" "k" "0" "256"\r\n'
             '+1700000000.7 [0 127.0.0.1:1] "DEL" "k"\r\n')
    acquire, deletion = read_monitor(lines)
    assert acquire == Command(1700000000.5, "DLOCK.ACQUIRE", "k", "a")
    assert deletion == Command(1700000000.7, "DEL", "k")


def test_the_stream_is_read(stream, lock):
    fence = lock.acquire("me", 50_000)
    lock.release("me")
    lock.client.set("lock", "other", nx=True, px=10_000)
    lock.client.delete("lock")
    lines = [b"*%d\r\n" % len(c) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in c)
             for c in stream.take()]
    data = b"".join(lines)
    grant, release, string, gone = read_stream([(7, data[:20]), (8, data[20:-1]), (9, data[-1:])])
    assert grant == Event("grant", "lock", "me", fence, 50, at=8)
    assert release == Event("release", "lock", "me", at=8)
    assert (string.kind, string.token, gone) == ("string", "other", Event("gone", "lock", at=9))
    assert string.expires == pytest.approx(fence / 1e6 + 10, abs=5)


def test_a_claim_on_several_names_is_one_on_each():
    lines = '+1.5 [0 127.0.0.1:1] "DLOCK.ACQUIREALL" "2" "a" "b" "me+" "PX" "9"\r\n'
    assert [(c.name, c.key, c.token) for c in read_monitor(lines)] == [
        ("DLOCK.ACQUIRE", "a", "me+a"), ("DLOCK.ACQUIRE", "b", "me+b")]
    words = [b"dlock.applyall 2 a b me+ 7 9", b"DLOCK.RELEASEALL 2 a b me+", b"dlock.release a me+"]
    data = b"".join(b"*%d\r\n" % len(line.split()) + b"".join(
        b"$%d\r\n%s\r\n" % (len(word), word) for word in line.split()) for line in words)
    assert [(e.kind, e.key, e.token, e.fence, e.may_miss) for e in read_stream([(7, data)])] == [
        ("grant", "a", "me+a", 7, False), ("grant", "b", "me+b", 7, False),
        ("release", "a", "me+a", 0, True), ("release", "b", "me+b", 0, True),
        ("release", "a", "me+a", 0, False)]
