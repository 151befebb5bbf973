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


def test_a_lock_that_was_taken_during_a_heartbeat_is_lost_when_its_time_is_over(world):
    """No lock was kept when the heartbeat was sent, and the one before had been answered late."""
    world.reply(1, after=T / 3 + IO)
    end = world.now - T / 3 - IO + 0.99 * T
    claim = world.kept()
    while not claim.lost.is_set():
        assert world.now < end
        world.silence()
    assert world.now == pytest.approx(end)


def test_a_lock_that_arrives_when_its_time_is_over_is_not_held(world):
    claim = world.claim()
    asking = world.acquire(claim)
    world.now += 0.99 * T
    asking.answer(7)
    assert asking.result is None, "the session may have ended"


def test_a_lock_that_arrives_after_the_client_was_closed_is_not_held(world):
    claim = world.claim()
    asking = world.acquire(claim)
    world.session.end()
    asking.answer(7)
    assert asking.result is None and not claim.held


def test_an_acquire_whose_session_ends_before_it_can_be_woken_looks_for_another(world):
    steps = world.claim()._acquire(30)
    assert isinstance(next(steps), Find)
    world.session.end()
    assert isinstance(steps.send(world.session), Find), "the client is closed, and says so"


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


def test_a_failure_while_a_lock_is_looked_for_does_not_end_the_session(world):
    world.session.is_cluster = True
    claim = world.kept()
    world.call = world.keeping.throw(NoReply("broken", was_sent=True))
    assert isinstance(world.call, Relocate)
    world.call = world.keeping.throw(RuntimeError("can't start new thread"))
    assert isinstance(world.call, Pause) and not claim.why_lost


def test_a_session_that_is_certain_again_wakes_who_waits_for_it(world):
    """As after a pause of the whole program: the time is over, and the reply is there."""
    world.reply(1, after=T / 3)
    world.now += 0.99 * T - T / 3
    claim = world.claim()
    asking = world.acquire(claim, wait=60)
    assert isinstance(asking.request, Wait)
    world.reply(1)
    assert world.session.is_usable() and claim._wakeup.is_set()


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


def test_a_grant_that_nobody_waits_for_any_more_goes_back(world):
    claim = world.claim(lease=60.0)
    asking = world.acquire(claim, wait=1.0)
    while asking.error is None:
        asking.fail(was_sent=True) if isinstance(asking.request, Send) else asking.sleep()
    world.reply(1)
    assert world.call.commands == [claim._release_words()]
    world.answer(0)
    world.reply(1, [1, b"granted", b"lock", claim._token, 9, 0])
    assert world.call.commands == [claim._release_words()], "the request was late"


def test_a_lock_that_was_granted_by_a_reply_and_by_an_event_stays(world):
    """The first request was queued without a reply. Then both the lock became free, and the second
    request arrived."""
    claim = world.claim(lease=60.0)
    asking = world.acquire(claim, wait=30.0)
    asking.fail(was_sent=True)
    asking.sleep()
    asking.answer(7)
    assert asking.result == 7
    world.reply(1, [1, b"granted", b"lock", claim._token, 7, 0])
    assert world.call.commands[0][0] == "DLOCK.SESSION", "nothing is released"


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


def test_an_extension_by_less_shortens_nothing(world):
    claim = world.claim(lease=60.0)
    world.acquire(claim).answer(7)
    extending = Asking(world, claim._extend(20.0))
    assert extending.words[0] == "DLOCK.EXTEND"
    extending.answer(1)
    assert extending.error is None and claim.remaining() == pytest.approx(0.99 * 60)


@pytest.mark.parametrize("lease, sent", [(0.0019, 2), (0.0155, 16), (0.07, 70), (0.57, 570),
                                         (60.0, 60_000)])
def test_a_lease_of_the_server_is_not_shorter_than_what_was_asked_for(world, lease, sent):
    words = world.acquire(world.claim(lease=lease)).words
    assert words[words.index("PX") + 1] == sent


def test_a_lock_whose_lease_is_over_may_be_taken_again(world):
    claim = world.claim(lease=5.0)
    world.acquire(claim).answer(7)
    with pytest.raises(RuntimeError, match="held already"):
        world.acquire(claim)
    world.now += 5
    asking = world.acquire(claim)
    assert asking.words[0] == "DLOCK.RELEASE", "the server may have prolonged the old one"
    asking.answer(0)
    asking.answer(8)
    assert asking.result == 8 and claim.remaining() == pytest.approx(0.99 * 5)


def test_a_server_that_does_not_take_the_old_lock_back_is_asked_for_the_new_one_all_the_same(world):
    claim = world.claim(lease=5.0)
    world.acquire(claim).answer(7)
    world.now += 5
    old, asking = claim.token, world.acquire(claim)
    asking.fail(was_sent=True)
    assert asking.words[0] == "DLOCK.ACQUIRE" and claim.token != old


class Interrupting:
    """A signal handler raises an exception when this reply is looked at."""
    @property
    def __class__(self):
        raise TimeoutError


def test_a_lock_is_not_taken_anew_while_it_is_released(world):
    claim = world.kept()
    releasing = Asking(world, claim._release())
    with pytest.raises(RuntimeError, match="another thread or task"):
        world.acquire(claim)
    releasing.answer(1)
    assert world.acquire(claim).words[0] == "DLOCK.ACQUIRE"


def test_what_a_signal_handler_raises_is_no_answer(world):
    asking = world.acquire(world.claim(lease=60.0))
    token = asking.words[2]
    asking.answer(Interrupting())
    assert asking.words == ["DLOCK.RELEASE", b"lock", token]
    with pytest.raises(TimeoutError):
        asking.answer(1)


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


@pytest.mark.parametrize("outcome", [dlock.Refused, dlock.Unreachable])
def test_a_grant_that_cannot_be_prolonged_goes_back(world, outcome):
    """Most of its lease was over when the lock arrived."""
    claim = world.claim(lease=5.0)
    asking = world.acquire(claim, wait=10)
    asking.answer(b"QUEUED")
    world.reply(1, [1, b"granted", b"lock", claim._token, 7, 1500], after=9.99)
    asking.wake()
    assert asking.words[0] == "DLOCK.EXTEND"
    if outcome is dlock.Refused:
        asking.answer(ResponseError("NOPERM no permission"))
    else:
        asking.fail(was_sent=False)
    assert asking.words == claim._release_words()
    asking.answer(1)
    assert isinstance(asking.error, outcome) and not claim.fence


@pytest.mark.parametrize("is_queued", [False, True])
def test_an_acquire_that_is_interrupted_goes_back_in_the_background(world, is_queued):
    """The interrupt came where nobody can send anything any more: between two steps."""
    claim = world.claim()
    asking = world.acquire(claim, wait=30)
    if is_queued:
        asking.answer(b"QUEUED")
    asking.steps.close()
    assert claim._token in world.session.withdrawn and not world.session.claims


def test_an_attempt_in_doubt_goes_back_although_it_is_interrupted(world, monkeypatch):
    def interrupt(claim):
        raise KeyboardInterrupt
    claim = world.claim()
    asking = world.acquire(claim)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(world.session, "leave", interrupt)
        asking.fail(was_sent=True)
    assert claim._token in world.session.withdrawn


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


def test_a_late_copy_of_a_request_of_the_session_does_not_outlive_the_release(world):
    claim = world.kept()
    world.reply(2)
    assert world.call.commands == [claim._acquire_words(world.session.id)]
    world.silence()
    world.silence()
    world.reply(2)
    world.answer(7)
    assert claim.held
    Asking(world, claim._release()).answer(1)
    assert claim._token in world.session.withdrawn, "the first request may arrive yet"


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
    asking = world.acquire(waiting, wait=30)
    asking.answer(b"QUEUED")
    waiting._wakeup.clear()
    world.keeping.close()
    assert claim.lost.is_set() and "canceled" in claim.why_lost
    assert waiting._wakeup.is_set() and not world.session.is_open
    assert isinstance(asking.request, Wait)


def test_a_grant_is_prolonged_for_no_longer_than_a_reply_may_take(world):
    claim = world.claim(lease=3.0)
    begin, asking = world.now, world.acquire(claim)
    world.now += 0.9 * IO
    asking.answer(7)
    assert asking.words[0] == "DLOCK.EXTEND" and asking.request.until == begin + IO


def test_a_session_is_unused_when_nothing_hangs_on_it(world):
    assert world.session.is_unused()
    claim = world.kept()
    assert not world.session.is_unused()
    releasing = Asking(world, claim._release())
    assert world.session.is_unused()
    releasing.fail(was_sent=True)
    assert not world.session.is_unused(), "it has to be released"
    world.now += T
    assert world.session.is_unused(), "the server has ended it"


def test_a_server_that_cannot_be_found_is_unreachable(world):
    steps = world.claim(lease=60.0)._acquire(None)
    with pytest.raises(dlock.Unreachable):
        next(steps)
        steps.throw(NoReply("no node", was_sent=False))
    steps = world.claim()._acquire(None)
    assert isinstance(next(steps), Find)
    with pytest.raises(dlock.Unreachable):
        steps.throw(NoReply("no node", was_sent=False))


def test_a_lock_that_is_lost_while_it_is_looked_for_is_not_asked_for_again(world):
    """Another thread has been told, by the reply to a guarded command."""
    claim = world.kept()
    moved = Session("s" * 16, T, IO, lambda: world.now, is_cluster=True)
    world.session._lose(claim, "the server had ended it")
    moved.adopt(claim)
    assert not moved.begin_asking([claim]) and not moved.claims


def test_a_lock_that_is_lost_while_it_is_asked_for_goes_back_behind_the_request(world):
    """Over another connection than that of the session, as a lock that has moved is asked for."""
    claim = world.kept()
    asked = world.session.begin_asking([claim])
    world.session._lose(claim, "the server had ended it")
    world.reply(1, after=3)
    assert world.call.commands == [claim._release_words()]
    world.answer(0)
    world.session.end_asking(asked, [7], world.session.life)
    world.reply(1)
    assert world.call.commands == [claim._release_words()], "the request has taken it again"
