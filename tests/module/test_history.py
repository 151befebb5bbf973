"""The checker of histories has teeth: small histories made by hand, good ones and bad ones."""

import pytest

from support.history import (
    Claim, Command, Event, History, check, hand_over_delays, read_monitor, read_stream)

UNBLOCKED = "UNBLOCKED client unblocked via CLIENT UNBLOCK"


class Story:
    """A history in the making. Times are in seconds from a morning long ago; a lease is 10 s."""

    START = 1_000_000_000

    def __init__(self):
        self.history = History([], [], [], self.START + 1000)

    def asks(self, at, token, key="k", **more):
        at += self.START
        claim = Claim(key, token, sent_at=at, **more)
        self.history.claims.append(claim)
        self.history.commands.append(
            Command(at, "SET" if claim.is_string else "DLOCK.ACQUIRE", key, token))
        return claim

    def granted(self, at, claim, told=True, lease=10, fence=None):
        at += self.START
        fence = int(at * 1e6) if fence is None else fence
        self.history.events.append(
            Event("grant", claim.key, claim.token, fence, lease, claim.is_shared))
        if told:
            claim.answer, claim.answered_at = fence, at

    def string(self, at, claim, lease=10):
        at += self.START
        self.history.events.append(
            Event("string", claim.key, claim.token, expires=at + lease))
        claim.answer, claim.answered_at = True, at

    def extended(self, until, claim):
        """At its grant, for so long."""
        lease = until + self.START - claim.answer / 1e6
        self.history.events.append(
            Event("grant", claim.key, claim.token, claim.answer, lease))

    def ended(self, at, claim):
        """The server has removed it; the stream was read then."""
        self.history.events.append(
            Event("release", claim.key, claim.token, at=at + self.START))

    def told(self, at, claim, answer):
        claim.answer, claim.answered_at = answer, at + self.START

    def releases(self, at, claim, answer=1, event=True):
        """event: the lock is free after it; without, somebody else has it."""
        self.history.commands.append(
            Command(at + self.START, "DLOCK.RELEASE", claim.key, claim.token))
        claim.release = answer
        if event:
            self.history.events.append(Event("release", claim.key, claim.token))

    def passes(self, at, claim, to, **grant):
        """One releases the lock, and the other gets it."""
        self.releases(at, claim, event=False)
        self.granted(at, to, **grant)

    def deleted(self, at, key="k"):
        self.history.commands.append(Command(at + self.START, "DEL", key))
        self.gone(key)

    def gone(self, key="k"):
        self.history.events.append(Event("gone", key))

    def problems(self):
        return check(self.history)


@pytest.fixture
def story():
    return Story()


def hand_over(story, first_at=1, second_at=2):
    """a holds the lock, b and c wait for it in this order."""
    a = story.asks(0, "a")
    story.granted(0, a)
    return a, story.asks(first_at, "b", wait_ms=60_000), story.asks(second_at, "c", wait_ms=60_000)


# -- good ones ------------------------------------------------------------------------------------


def test_a_good_history_has_no_problems(story):
    a, b, c = hand_over(story)
    story.passes(3, a, b)
    story.passes(4, b, c)
    story.releases(5, c)
    again = story.asks(6, "d")
    story.granted(6, again)
    story.gone()  # its lease
    assert story.problems() == []


def test_an_extended_lease_is_one_tenure(story):
    a = story.asks(0, "a")
    story.granted(0, a)
    story.extended(500, a)
    story.releases(400, a)
    assert story.problems() == []


def test_a_lease_that_ended_may_be_followed(story):
    a, b, c = hand_over(story)
    c.lost_at = story.START + 2.5
    story.granted(10.001, b)
    story.ended(20.001, b)
    assert story.problems() == []


def test_an_extension_counts_from_its_own_time(story):
    a, b, c = hand_over(story)
    c.lost_at = story.START + 2.5
    story.history.commands.append(Command(story.START + 5, "DLOCK.EXTEND", "k", "a"))
    story.history.events.append(Event("grant", "k", "a", a.answer, 10))
    story.granted(15.001, b)
    story.ended(25.001, b)
    assert story.problems() == []


def test_a_grant_whose_lease_ended_untold_may_be_answered_with_null(story):
    a, b, c = hand_over(story)
    c.lost_at = story.START + 2.5
    story.passes(3, a, b, told=False, lease=0.05)
    story.told(3.2, b, None)
    story.ended(3.2, b)
    assert story.problems() == []


def test_a_dead_session_may_be_followed(story):
    a, b, c = hand_over(story)
    a.is_session, a.lost_at = True, story.START + 3
    story.granted(3.001, b)
    story.passes(4, b, c)
    story.deleted(5)
    assert story.problems() == []


def test_a_holder_that_died_untold_may_be_followed(story):
    a, b, c = hand_over(story)
    b.lost_at = story.START + 2.9
    story.passes(3, a, b, told=False)
    story.granted(3.001, c)
    story.releases(4, c)
    assert story.problems() == []


def test_a_waiter_that_left_may_be_passed(story):
    a, b, c = hand_over(story)
    b.lost_at = story.START + 2.5
    story.passes(3, a, c)
    story.releases(4, c)
    assert story.problems() == []


def test_a_string_may_be_followed_when_it_was_released(story):
    a = story.asks(0, "a", is_string=True)
    story.string(0, a)
    b = story.asks(1, "b", wait_ms=60_000)
    story.passes(2, a, b)
    story.releases(3, b)
    assert story.problems() == []


# -- bad ones -------------------------------------------------------------------------------------


def the_problem(story):
    [problem] = story.problems()
    return problem


def test_a_fence_that_does_not_grow_is_found(story):
    a, b, c = hand_over(story)
    story.passes(3, a, b)
    story.passes(4, b, c, fence=b.answer - 1)
    story.releases(5, c)
    assert "is not above" in story.problems()[0]


def test_a_fence_with_two_tokens_is_found(story):
    a, b = story.asks(0, "a"), story.asks(0, "b")
    story.granted(0, a)
    story.granted(0, b, told=False, fence=a.answer)
    story.told(0, b, None)
    story.releases(1, a)
    assert "has two tokens" in the_problem(story)


def test_a_second_holder_is_found(story):
    a, b, c = hand_over(story)
    b.wait_ms = c.wait_ms = 500
    story.told(1.5, b, None)
    story.granted(2.1, c)  # nobody released
    story.releases(3, c)
    assert "k: a lost it by hand-over before its lease ended" in the_problem(story)


def test_a_holder_that_outlived_its_connection_may_not_be_followed(story):
    """It had its answer, and asked for no session."""
    a, b, c = hand_over(story)
    a.lost_at = b.lost_at = story.START + 2.5
    story.granted(3, c)
    story.releases(4, c)
    assert "neither released it nor died" in the_problem(story)


def test_a_release_that_came_later_is_no_reason(story):
    a, b, c = hand_over(story)
    c.lost_at = story.START + 2.5
    story.granted(3, b)
    story.releases(4, b)
    story.releases(5, a, event=False)
    assert "k: a lost it by hand-over before its lease ended" in story.problems()[0]


def test_a_release_that_was_refused_is_no_reason(story):
    a, b, c = hand_over(story)
    c.lost_at = story.START + 2.5
    story.releases(3, a, answer=0, event=False)
    story.granted(3, b)
    story.releases(4, b)
    assert "neither released it nor died" in the_problem(story)


def test_a_release_by_a_stranger_is_found(story):
    a, b = story.asks(0, "a"), story.asks(1, "b")
    story.granted(0, a)
    story.told(1, b, None)
    story.releases(2, b)
    story.releases(3, a)
    assert "k: b released what a held" in story.problems()
    assert "k: b was told that it released the lock, but it did not hold it" in story.problems()


def test_a_plain_set_over_a_lock_is_found(story):
    a, b = story.asks(0, "a"), story.asks(1, "b", is_string=True)
    story.granted(0, a)
    story.string(1, b)
    story.gone()
    assert "k: b took it while a held it" in story.problems()


def test_a_lease_cut_short_is_found(story):
    a, b, c = hand_over(story)
    story.gone()
    story.granted(3, b)
    story.passes(4, b, c)
    story.releases(5, c)
    assert the_problem(story) == "k: a lost it before its lease ended, and nobody deleted it"


def test_a_lease_that_was_removed_too_early_is_found(story):
    a = story.asks(0, "a")
    story.granted(0, a)
    story.ended(5, a)
    assert "k: a lost it by release before its lease ended" in the_problem(story)


def test_a_grant_nobody_asked_for_is_found(story):
    story.granted(1, Claim("k", "ghost"))
    story.gone()
    assert the_problem(story) == "k: ghost got it without asking"


def test_a_waiter_that_is_overtaken_is_found(story):
    a, b, c = hand_over(story)
    story.passes(3, a, c)
    story.passes(4, c, b)
    story.releases(5, b)
    assert the_problem(story) == "k: c overtook b"


def test_a_waiter_that_is_overtaken_and_never_served_is_found(story):
    a, b, c = hand_over(story)
    b.wait_ms = 4_000
    story.passes(3, a, c)
    story.told(5.1, b, None)
    story.releases(6, c)
    assert the_problem(story) == "k: c overtook b"


def test_a_plain_acquire_that_overtakes_is_found(story):
    a, b, c = hand_over(story)
    c.lost_at = story.START + 2.5
    thief = story.asks(3, "thief")
    story.deleted(3)
    story.granted(3, thief)
    story.passes(4, thief, b)
    story.releases(5, b)
    assert the_problem(story) == "k: thief overtook b"


def test_a_fence_that_was_never_granted_is_found(story):
    a = story.asks(0, "a")
    story.told(0, a, 7)
    assert the_problem(story) == "k: a was told fence 7, which was not granted to it"


def test_a_holder_that_was_told_an_error_may_be_followed(story):
    """CLIENT UNBLOCK ERROR came between grant and answer."""
    a, b, c = hand_over(story)
    story.releases(3, a, event=False)
    b.unblocked_at = story.START + 3
    story.granted(3, b, told=False)
    story.told(3, b, UNBLOCKED)
    story.granted(3.001, c)
    story.releases(4, c)
    assert story.problems() == []


def test_a_holder_that_was_told_an_error_may_lose_a_brief_lease(story):
    a = story.asks(0, "a", wait_ms=10, unblocked_at=Story.START)
    story.granted(0, a, lease=0.005)
    story.told(0, a, UNBLOCKED)
    story.gone()
    assert story.problems() == []


@pytest.mark.parametrize("answer", [None, UNBLOCKED])
def test_a_holder_that_is_told_no_is_found(story, answer):
    a = story.asks(0, "a", wait_ms=10, unblocked_at=Story.START)
    story.granted(0, a)
    story.told(0, a, answer)
    story.ended(10.001, a)
    assert "but it was granted the lock" in the_problem(story)


def test_a_wait_cut_short_is_found(story):
    a, b, c = hand_over(story)
    story.extended(99, a)
    story.told(30, b, None)
    story.told(62, c, None)
    story.gone()
    assert the_problem(story) == "k: b was told no after 29000 of 60000 ms"


@pytest.mark.parametrize("is_granted", [True, False])
def test_a_wait_that_lasts_too_long_is_found(story, is_granted):
    a, b, c = hand_over(story)
    c.lost_at = story.START + 3
    story.extended(70, a)
    if is_granted:
        story.releases(63, a, event=False)
        story.granted(63, b)
    else:
        story.told(63, b, None)
    story.gone()
    assert the_problem(story) == "k: b waited 2.0 s longer than it asked for"


def test_a_waiter_without_an_answer_is_found(story):
    a, b, c = hand_over(story)
    c.lost_at = story.START + 3
    story.extended(900, a)
    story.gone()
    assert the_problem(story) == "k: b was never answered"


def test_a_session_lock_that_outlives_its_connection_is_found(story):
    a = story.asks(0, "a", is_session=True)
    story.granted(0, a)
    a.lost_at = story.START + 2
    story.gone()  # its lease, 8 s later
    assert the_problem(story) == "k: a kept it after its connection had ended"


def test_a_lock_left_over_is_found(story):
    story.granted(0, story.asks(0, "a"))
    assert the_problem(story) == "k: a still holds it"


def test_a_release_refused_to_the_holder_is_found(story):
    a = story.asks(0, "a")
    story.granted(0, a)
    story.releases(1, a, answer=0, event=False)
    assert "k: a was told that it does not hold the lock, but it does" in story.problems()


@pytest.mark.parametrize("is_served", [True, False])
def test_a_waiter_beside_a_free_lock_is_found(story, is_served):
    a, b, c = hand_over(story)
    c.lost_at = story.START + 2.5
    story.releases(3, a)
    if is_served:
        story.granted(5, b)
        story.releases(6, b)
    else:
        story.told(61.1, b, None)
    assert "waited" in the_problem(story) and "beside a free lock" in the_problem(story)


def test_a_waiter_beside_a_lock_whose_lease_ended_is_found(story):
    a, b, c = hand_over(story)
    c.lost_at = story.START + 2.5
    story.gone()
    story.granted(12, b)
    story.releases(13, b)
    assert the_problem(story) == "k: b waited 2000 ms beside a free lock"


def test_during_a_pause_nobody_can_be_served(story):
    a, b, c = hand_over(story)
    c.lost_at = story.START + 2.5
    story.gone()
    story.granted(12, b)
    story.releases(13, b)
    story.history.pauses.append((story.START + 9, story.START + 11.9))
    assert story.problems() == []


def test_the_delays_of_hand_overs_are_told_apart(story):
    a, b, c = hand_over(story)
    story.gone()
    story.granted(10.002, b, lease=1000)  # a's lease ended at 10
    story.deleted(11)
    story.granted(11.003, c)
    story.releases(12, c)
    story.string(13, story.asks(13, "s", is_string=True))
    d = story.asks(14, "d", wait_ms=60_000)
    story.gone()
    story.granted(23.007, d)
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


# -- shared holders -------------------------------------------------------------------------------


def readers(story, *limits):
    """Claims that are granted one after the other and not given back."""
    claims = [story.asks(i, f"reader:{i}", is_shared=True, max_holders=limit)
              for i, limit in enumerate(limits)]
    for i, claim in enumerate(claims):
        story.granted(i, claim)
    return claims


def test_readers_may_hold_it_together(story):
    claims = readers(story, None, None, 3)
    for i, claim in enumerate(claims):
        story.releases(5 + i, claim)
    assert check(story.history) == []


def test_a_permit_too_many_is_noticed(story):
    for i, claim in enumerate(readers(story, 2, 2, 2)):
        story.releases(5 + i, claim)
    [problem] = check(story.history)
    assert "reader:2 got permit 3 of 2" in problem


def test_a_writer_beside_readers_is_noticed(story):
    readers(story, None, None)
    writer = story.asks(3, "writer")
    story.granted(3, writer)
    story.releases(4, writer)
    assert any("writer took it while reader:0 and reader:1 held it" in problem
               for problem in check(story.history))


def test_a_reader_that_replaces_a_writer_before_its_release_is_noticed(story):
    writer = story.asks(0, "writer")
    story.granted(0, writer)
    reader = story.asks(1, "reader", is_shared=True)
    story.granted(1, reader)
    story.releases(2, reader)
    assert any("writer lost it by hand-over" in problem for problem in check(story.history))


def test_a_reader_that_overtakes_a_waiting_writer_is_noticed(story):
    [first] = readers(story, None)
    writer = story.asks(1, "writer", wait_ms=20_000)
    late = story.asks(2, "late", is_shared=True)
    story.granted(2, late)
    story.releases(3, first)
    story.releases(4, late, event=False)
    story.history.events.append(Event("release", "k", "late"))
    story.granted(4, writer)
    story.releases(5, writer)
    assert check(story.history) == ["k: late overtook writer"]


def test_a_writer_does_not_wait_beside_a_free_lock_while_a_reader_is_left(story):
    one, other = readers(story, None, None)
    writer = story.asks(2, "writer", wait_ms=20_000)
    story.releases(3, one)
    story.passes(8, other, writer)
    story.releases(9, writer)
    assert check(story.history) == []


# -- sessions that are cut off --------------------------------------------------------------------


@pytest.mark.parametrize("cuts, problems", [([3.5], []), ([], ["k: c overtook b"])],
                         ids=["cut off", "not cut off"])
def test_only_a_waiter_whose_session_was_cut_off_may_be_passed_over(story, cuts, problems):
    a, b, c = hand_over(story)
    b.cuts = [story.START + cut for cut in cuts]
    story.passes(4, a, c)
    story.passes(5, c, b)
    story.releases(6, b)
    assert story.problems() == problems


@pytest.mark.parametrize("cuts, is_right", [([3.05], True), ([], False)],
                         ids=["cut off", "not cut off"])
def test_only_a_grant_to_a_session_that_was_cut_off_is_taken_back(story, cuts, is_right):
    a, b, c = hand_over(story)
    b.cuts = [story.START + cut for cut in cuts]
    story.passes(3, a, b, told=False)
    story.granted(3.1, c)
    story.passes(4, c, b)
    story.releases(5, b)
    assert (story.problems() == []) == is_right


@pytest.mark.parametrize("cut, stall, is_right", [
    (1.0, (0.9, 3.0), True), (1.0, None, False), (1.0, (3.5, 4.0), False)])
def test_a_cut_counts_until_the_server_had_time_to_notice_it(story, cut, stall, is_right):
    """A server that stood still grants the lock first, and takes it back then."""
    b = story.asks(0.5, "b", wait_ms=5000)
    b.cuts = [story.START + cut]
    story.history.pauses = [tuple(story.START + at for at in stall)] if stall else []
    story.granted(3.0, b, told=False)
    story.told(3.2, b, None)
    story.ended(3.1, b)
    assert (story.problems() == []) == is_right


@pytest.mark.parametrize("stall, is_right", [((2.0, 4.1), True), (None, False)])
def test_a_line_of_a_release_may_be_late_by_a_stall(story, stall, is_right):
    """The line is written after the release, and the next holder has its fence from within."""
    a, b = story.asks(1, "a"), story.asks(1.5, "b", wait_ms=9000)
    story.granted(1, a)
    story.history.pauses = [tuple(story.START + at for at in stall)] if stall else []
    story.granted(2, b)
    story.releases(4.1, a, event=False)
    story.releases(4.2, b)
    assert (story.problems() == []) == is_right


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
