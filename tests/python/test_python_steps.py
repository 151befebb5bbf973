"""The steps of client/python without a server: the test plays the server and the clock."""

import threading

import pytest
from redis.exceptions import ResponseError

import dlock
from dlock._claim import Claim
from dlock._session import Session
from dlock._wire import Call, Find, NoReply, Pause, Relocate, Send, Wait

T, IO = 10.0, 2.0  # of the session, of a reply
NO_EVENTS = [[]]


class World:
    """A clock that stands still, one session, and the heartbeat that keeps it."""

    def __init__(self):
        self.now = 1000.0
        self.session = Session("s" * 16, T, IO, lambda: self.now)
        self.keeping = self.session.keep()
        self.call = next(self.keeping)

    def reply(self, born, *events, after=0.0):
        """To the heartbeat under way. call is what the session wants next."""
        assert isinstance(self.call, Call) and self.call.commands[0][0] == "DLOCK.SESSION"
        self.now += after
        self.call = self.keeping.send([[born, list(events)]])

    def answer(self, *replies):
        """To other commands over the connection of the session."""
        self.call = self.keeping.send(list(replies))

    def silence(self):
        """Until the time of the call is over."""
        self.now = self.call.until
        if isinstance(self.call, Call):
            self.call = self.keeping.throw(NoReply("no reply", was_sent=True))
        else:
            self.call = self.keeping.send(None)

    def claim(self, **options):
        return Claim(IO, lambda: self.now, threading.Event(), threading.Event(), ("lock",),
                     **options)

    def acquire(self, claim, wait=None):
        return Asking(self, claim._acquire(wait))

    def kept(self):
        """A lock that is ours."""
        claim = self.claim()
        asking = self.acquire(claim)
        asking.answer(7)
        assert asking.result == 7
        return claim


class Asking:
    """Steps of a claim, which stop at what they send, and at waits."""

    def __init__(self, world, steps):
        self.world, self.steps, self.result, self.error = world, steps, None, None
        self._go(lambda: next(steps))

    def _go(self, step):
        try:
            self.request = step()
            while isinstance(self.request, Find):
                self.request = self.steps.send(self.world.session)
        except StopIteration as stop:
            self.result, self.request = stop.value, None
        except dlock.Error as error:
            self.error, self.request = error, None

    @property
    def words(self):
        assert isinstance(self.request, Send)
        return self.request.commands[0]

    def answer(self, *replies):
        assert isinstance(self.request, Send)
        self._go(lambda: self.steps.send(list(replies)))

    def fail(self, was_sent):
        assert isinstance(self.request, Send)
        self._go(lambda: self.steps.throw(NoReply("broken", was_sent)))

    def wake(self):
        assert isinstance(self.request, Wait)
        self._go(lambda: self.steps.send(None))

    def sleep(self):
        """To the end of a wait."""
        self.world.now = max(self.world.now, self.request.until)
        self.wake()


@pytest.fixture
def world():
    made = World()
    made.reply(1)
    return made


def test_the_first_heartbeat_is_awaited_for_an_io_timeout_and_a_later_one_for_longer():
    world = World()
    assert world.call.until == world.now + IO
    world.reply(1)
    assert world.call.until == world.now + IO + T / 3


def test_a_kept_lock_is_certain_from_before_its_heartbeat_was_sent(world):
    claim = world.kept()
    assert claim.remaining() == pytest.approx(0.99 * T)
    world.reply(1, after=3.0)
    assert claim.remaining() == pytest.approx(0.99 * T - 3.0), "the call was sent 3 s ago"
    world.reply(1)
    assert claim.remaining() == pytest.approx(0.99 * T)


def test_a_kept_lock_is_lost_when_its_time_is_over_and_not_later(world):
    claim = world.kept()
    end = world.now + 0.99 * T
    while not claim.lost.is_set():
        assert world.now < end
        world.silence()
    assert world.now == pytest.approx(end)
    assert "heartbeat" in claim.why_lost and claim._token in world.session.withdrawn


def test_a_broken_connection_is_replaced_after_a_pause_that_grows(world):
    pauses = []
    for _ in range(9):
        before = world.now
        world.call = world.keeping.throw(NoReply("broken", was_sent=True))
        assert isinstance(world.call, Pause)
        pauses.append(world.call.until - before)
        world.silence()
    assert pauses == pytest.approx([0, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1, 1])


def test_another_life_asks_for_kept_locks_again_and_keeps_those_with_the_same_fence(world):
    claim = world.kept()
    world.reply(2)
    assert world.call.commands == [claim._acquire_words(world.session.id)]
    world.answer(7)
    assert claim._life is world.session.life and not claim.why_lost
    world.reply(2, after=3)
    world.reply(2)
    assert claim.remaining() == pytest.approx(0.99 * T)


@pytest.mark.parametrize("reply", [None, 8])
def test_another_fence_in_another_life_is_a_loss(world, reply):
    claim = world.kept()
    world.reply(2)
    world.answer(reply)
    assert claim.lost.is_set()
    assert world.call.commands == [claim._release_words()], "a lock that nobody uses goes back"


def test_a_release_does_not_overtake_a_request_that_takes_the_lock_again(world):
    claim = world.kept()
    world.reply(2)
    releasing = Asking(world, claim._release())
    releasing.wake()
    assert isinstance(releasing.request, Wait), "the request of the session is under way"
    world.answer(7)
    assert world.call.commands[0][0] == "DLOCK.SESSION"
    releasing.wake()
    assert releasing.words == claim._release_words()
    releasing.answer(1)
    assert releasing.error is None and not world.session.withdrawn


def test_a_lock_that_is_being_released_is_not_asked_for_again(world):
    claim = world.kept()
    releasing = Asking(world, claim._release())
    world.reply(2)
    assert world.call.commands[0][0] == "DLOCK.SESSION"
    releasing.answer(1)
    assert not world.session.withdrawn


def test_a_release_waits_no_longer_than_for_a_reply_and_then_the_lock_goes_back(world):
    claim = world.kept()
    world.reply(2)
    releasing = Asking(world, claim._release())
    releasing.sleep()
    assert isinstance(releasing.error, dlock.InDoubt) and not claim.held
    world.answer(7)
    assert world.call.commands == [claim._release_words()], "behind the request"


def test_a_reply_about_an_earlier_lock_leaves_the_next_one_alone(world):
    claim = world.kept()
    old = claim._release_words()
    world.reply(2)
    Asking(world, claim._release()).sleep()
    world.acquire(claim).answer(9)
    world.answer(7)
    assert claim.held and claim.fence == 9 and claim._token not in world.session.withdrawn
    assert world.call.commands == [old]


def test_a_lock_may_be_released_where_its_loss_is_told(world):
    releasing = []
    claim = world.claim(on_lost=lambda lock: releasing.append(Asking(world, lock._release())))
    world.acquire(claim).answer(7)
    world.reply(2)
    world.answer(8)
    assert claim.lost.is_set()
    assert [type(each.error) for each in releasing] == [dlock.Lost], "it waits for nothing"


def test_a_lock_that_is_not_served_is_asked_for_again(world):
    claim = world.kept()
    world.reply(2)
    world.answer(ResponseError("LOADING the data"))
    assert isinstance(world.call, Pause) and not claim.why_lost
    world.silence()
    world.answer(7)
    assert claim._life is world.session.life


def test_in_a_cluster_a_lock_that_is_not_served_is_looked_for_at_once(world):
    world.session.is_cluster = True
    claim = world.kept()
    world.reply(2)
    world.answer(ResponseError("TRYAGAIN the slot moves"))
    assert isinstance(world.call, Relocate) and world.call.claims == [claim]


def test_events_are_acknowledged_and_told_once(world):
    claim = world.claim()
    asking = world.acquire(claim, wait=30)
    asking.answer(b"QUEUED")
    granted = [1, b"granted", b"lock", claim._token, 9, 500]
    world.reply(1, granted)
    assert world.call.commands[0][-1] == 1
    claim._outcome = None
    world.reply(1, granted)
    assert claim._outcome is None


def test_a_grant_that_nobody_waits_for_goes_back(world):
    world.reply(1, [1, b"granted", b"lock", b"unknown", 9, 0])
    assert world.call.commands == [("DLOCK.RELEASE", b"lock", b"unknown")]


def test_a_lease_is_counted_from_the_grant_and_prolonged_if_it_is_old(world):
    claim = world.claim(lease=20.0)
    asking = world.acquire(claim, wait=30)
    asking.answer(b"QUEUED")
    world.reply(1, [1, b"granted", b"lock", claim._token, 9, 500], after=3.0)
    asking.wake()
    assert asking.words[0] == "DLOCK.EXTEND"
    world.now += 1
    asking.answer(1)
    assert asking.result == 9
    assert claim.remaining() == pytest.approx(0.99 * 20 - 1)


def test_a_wait_of_a_session_that_has_begun_again_asks_again_with_the_same_token(world):
    asking = world.acquire(world.claim(), wait=30)
    first = asking.words
    asking.answer(b"QUEUED")
    world.reply(2, after=3.0)
    asking.wake()
    asking.sleep()
    again = list(asking.words)
    place = again.index("WAIT") + 1
    assert again[:place] == list(first[:place]) and again[place] < first[place]


def test_a_grant_of_an_earlier_life_asks_again(world):
    claim = world.claim()
    asking = world.acquire(claim)
    world.reply(2)
    asking.answer(7)
    assert asking.result is None, "the server may have forgotten it since"
    asking.sleep()
    asking.answer(7)
    assert asking.result == 7 and claim._life is world.session.life


def test_a_loss_before_the_grant_is_known_asks_again(world):
    claim = world.claim()
    asking = world.acquire(claim)
    world.reply(1, [1, b"lost", b"lock", claim._token, b"deleted"])
    asking.answer(7)
    assert asking.result is None
    asking.sleep()
    asking.answer(8)
    assert asking.result == claim.fence == 8 and not claim.why_lost


def test_a_failure_is_tried_again_until_the_wait_is_over_and_not_for_longer(world):
    begin = world.now
    asking = world.acquire(world.claim(lease=60.0), wait=5)
    count = 0
    while asking.error is None:
        if isinstance(asking.request, Send):
            count += 1
            asking.fail(was_sent=False)
        else:
            asking.sleep()
    assert isinstance(asking.error, dlock.Unreachable)
    assert 5 < count < 20 and 3.9 <= world.now - begin <= 5


def test_an_attempt_in_doubt_is_released_at_once_and_later(world):
    claim = world.claim()
    asking = world.acquire(claim)
    asking.fail(was_sent=True)
    assert asking.words == claim._release_words()
    asking.answer(1)
    assert isinstance(asking.error, dlock.InDoubt)
    released = []
    for _ in range(70):
        world.reply(1, after=3)
        if world.call.commands == [claim._release_words()]:
            released.append(world.now - 1000.0)
            world.answer(0)
    assert released == [3, 6, 12, 24, 48, 96, 192]
    assert not world.session.withdrawn


def test_a_late_copy_of_a_repeated_request_does_not_outlive_the_release(world):
    claim = world.claim()
    asking = world.acquire(claim, wait=30)
    asking.fail(was_sent=True)
    asking.sleep()
    asking.answer(7)
    assert asking.result == 7
    Asking(world, claim._release()).answer(1)
    world.reply(1, after=3)
    assert world.call.commands == [claim._release_words()], "the first request may arrive yet"


def test_a_release_without_any_doubt_is_one_command(world):
    claim = world.kept()
    Asking(world, claim._release()).answer(1)
    assert not world.session.withdrawn


def test_without_a_reply_to_its_end_a_wait_is_over_an_io_timeout_later(world):
    begin = world.now
    claim = world.claim()
    asking = world.acquire(claim, wait=5)
    asking.answer(b"QUEUED")
    asking.sleep()
    assert isinstance(asking.error, dlock.Timeout) and world.now == begin + 5 + IO
    assert claim._token in world.session.withdrawn


def test_an_endless_wait_asks_for_a_day_at_a_time(world):
    asking = world.acquire(world.claim(), wait=float("inf"))
    assert 86_400_000 in asking.words


def test_a_garbled_heartbeat_does_not_end_the_session(world):
    world.call = world.keeping.send([b"nonsense"])
    assert isinstance(world.call, Pause) and not world.session.is_open


def test_a_block_whose_lock_was_lost_says_so_without_a_server(world):
    claim = world.kept()
    while not claim.lost.is_set():
        world.silence()
    leaving = Asking(world, claim._leave(None))
    assert isinstance(leaving.error, dlock.Lost) and "heartbeat" in str(leaving.error)


def test_a_block_whose_lease_is_over_says_so_without_a_server(world):
    claim = world.claim(lease=5.0)
    world.acquire(claim).answer(7)
    world.now += 6
    leaving = Asking(world, claim._leave(None))
    leaving.fail(was_sent=True)
    assert isinstance(leaving.error, dlock.InDoubt)


def test_a_block_whose_lock_is_certain_ends_without_a_reply(world):
    leaving = Asking(world, world.kept()._leave(None))
    leaving.fail(was_sent=True)
    assert leaving.error is None


def test_a_refused_guard_gives_back_the_other_names(world):
    claim = world.kept()
    Asking(world, claim._guarded(["SET", "items", 1])).answer(ResponseError("NOTHELD nothing run"))
    world.reply(1)
    assert world.call.commands == [claim._release_words()]


def test_a_heartbeat_that_is_canceled_tells_a_loss(world):
    claim = world.kept()
    waiting = world.claim()
    world.acquire(waiting, wait=30).answer(b"QUEUED")
    waiting._wakeup.clear()
    world.keeping.close()
    assert claim.lost.is_set() and "canceled" in claim.why_lost
    assert waiting._wakeup.is_set() and not world.session.is_open


def test_a_server_that_cannot_be_found_is_unreachable(world):
    steps = world.claim(lease=60.0)._acquire(None)
    with pytest.raises(dlock.Unreachable):
        next(steps)
        steps.throw(NoReply("no node", was_sent=False))
    steps = world.claim()._acquire(None)
    assert isinstance(next(steps), Find)
    with pytest.raises(dlock.Unreachable):
        steps.throw(NoReply("no node", was_sent=False))
