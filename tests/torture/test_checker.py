"""The checker finds each kind of broken promise in a history into which it was planted, and finds
nothing in the same history without it. The second judge agrees about each of these histories."""

import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import export  # noqa: E402
import records  # noqa: E402
from checker import Rules, check  # noqa: E402
from proxy import end_of_command  # noqa: E402
from records import MS, Process, name_of  # noqa: E402

SECOND = 1000 * MS
SHARED, LIMIT = -1, 3
OK, TIMEOUT = 0, 2
DONE, REFUSED, IN_DOUBT = 0, 1, 2


class History:
    """Of one process; times in ms."""

    def __init__(self, number=0):
        self.number, self.records = number, []

    def add(self, at, kind, name="x0", number=0, other=0, status=0, thread=0):
        self.records.append((int(at * MS), number, other, name_of(name), thread, status, kind))
        return self

    def take(self, asked, begin, fence, until, name="x0", mode=0, thread=0, wait=1000):
        """An acquire that succeeds."""
        self.add(asked, records.ACQUIRE, name, wait, mode, thread=thread)
        return self.add(begin, records.ACQUIRED, name, fence, int(until * MS), thread=thread)

    def give_back(self, at, name="x0", thread=0, until=0, took=1):
        self.add(at - 0.001, records.SAMPLE, name, 0, int(until * MS), thread=thread)
        self.add(at, records.RELEASE, name, thread=thread)
        return self.add(at + took, records.RELEASED, name, thread=thread)

    def hold(self, asked, begin, end, fence, name="x0", mode=0, thread=0):
        """From an acquire to its release, all well."""
        self.take(asked, begin, fence, end + 500, name, mode, thread)
        return self.give_back(end, name, thread, until=end + 500)

    def write(self, at, number, before, result=None, name="g0"):
        self.add(at, records.WRITE, name, number, before)
        if result is not None:
            self.add(at + 1, records.WRITTEN, name, number, status=result)
        return self


def violations(*histories, rules=None, **more):
    rules = rules or Rules()
    for each in histories:
        each.records = [record for record in each.records if record[6] != records.FREED]
        each.add(max(record[0] for record in each.records) / MS, records.FREED)
        each.records.sort(key=lambda record: record[0])
    processes = [Process(each.number, each.records, rules.bounds) for each in histories]
    report = check(processes, rules, **more)
    lines = export.operations([(each.number, each.records) for each in histories], rules, {})
    assert not list(export.compare(report, lines))
    return report.violations


def test_a_good_history_has_no_violation():
    one = History(0).hold(0, 1, 10, 100).hold(30, 31, 40, 102)
    other = History(1).hold(5, 12, 20, 101).hold(5, 6, 50, 100, "w1", SHARED, thread=1)
    assert not violations(one, other, values={})


# -- exclusion ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, modes", [
    ("x0", (0, 0)), ("r0", (0, 0)), ("k0", (0, 0)), ("h0", (0, 0)),
    ("w0", (0, SHARED)), ("w0", (SHARED, 0)), ("p0", (LIMIT, LIMIT, LIMIT, LIMIT))])
def test_holders_that_exclude_each_other_and_overlap_are_found(name, modes):
    histories = [History(i).hold(0, 1 + i, 20, 100 + i, name, mode)
                 for i, mode in enumerate(modes)]
    assert violations(*histories).keys() == {"exclusion"}


@pytest.mark.parametrize("name, modes", [("w0", (SHARED,) * 5), ("p0", (LIMIT,) * LIMIT)])
def test_holders_that_share_may_overlap(name, modes):
    histories = [History(i).hold(0, 1 + i, 20, 100 + i, name, mode)
                 for i, mode in enumerate(modes)]
    assert not violations(*histories)


def test_a_killed_holder_holds_as_long_as_it_was_promised():
    killed = History(0).take(0, 1, 100, until=50)
    assert violations(killed, History(1).hold(2, 40, 60, 101)).keys() == {"exclusion"}
    assert not violations(killed, History(1).hold(2, 51, 60, 101))


def test_a_holder_that_renews_holds_as_long_as_it_was_told_last():
    renewed = History(0).take(0, 1, 100, until=50)
    renewed.add(40, records.SAMPLE, other=90 * MS)
    assert violations(renewed, History(1).hold(2, 70, 80, 101)).keys() == {"exclusion"}


def test_sessions_and_unacknowledged_locks_are_counted_but_not_promised():
    both = [History(i).hold(0, 1 + i, 20, 100 + i, "s0") for i in range(2)]
    assert not violations(*both)
    odd = [History(i).hold(0, 1 + i, 20, 100 + i, "x1") for i in range(2)]
    assert violations(*odd).keys() == {"exclusion"}
    assert not violations(*odd, rules=Rules(unsafe_odd=True))


# -- fences ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fence", [100, 99])
def test_a_fence_that_does_not_rise_is_found(fence):
    histories = History(0).hold(0, 1, 10, 100), History(1).hold(11, 12, 20, fence)
    assert violations(*histories).keys() == {"fences"}
    assert not violations(*histories, rules=Rules(has_fences=False))


def test_fences_of_odd_numbers_may_go_back_where_no_replica_acknowledges_them():
    rules = Rules(unsafe_odd_fences=True)
    for name, found in ("x1", set()), ("x2", {"fences"}):
        histories = History(0).hold(0, 1, 10, 100, name), History(1).hold(11, 12, 20, 99, name)
        assert violations(*histories, rules=rules).keys() == found
        assert violations(*histories).keys() == {"fences"}


def test_fences_of_odd_numbers_may_go_back_while_a_master_does_not_know_that_it_was_replaced():
    stale = Rules(stale=[(0, 5 * MS), (10 * MS, 15 * MS)])
    for name, asked, found in (("x1", 11, set()), ("x1", 16, {"fences"}), ("x2", 11, {"fences"})):
        histories = (History(0).hold(0, 1, 9, 100, name),
                     History(1).hold(asked, asked + 1, 20, 99, name))
        assert violations(*histories, rules=stale).keys() == found


def test_a_fence_may_be_back_by_less_than_the_slack():
    histories = History(0).hold(0, 1, 10, 100), History(1).hold(11, 12, 20, 70)
    assert not violations(*histories, rules=Rules(fence_slack=31))
    assert violations(*histories, rules=Rules(fence_slack=30)).keys() == {"fences"}


def test_a_fence_of_who_asked_before_the_grant_may_be_smaller():
    late = History(0).take(0, 30, 99, until=40)  # granted first, told last
    assert not violations(late, History(1).hold(1, 2, 10, 100))


def test_a_hot_lock_has_a_new_fence_for_each_thread_of_a_process():
    first = History(0).hold(0, 1, 10, 100, "h0")
    assert not violations(first, History(1).hold(11, 12, 20, 101, "h0"))
    handed_on = History(0).hold(0, 1, 10, 100, "h0").hold(11, 12, 20, 100, "h0", thread=1)
    assert violations(handed_on).keys() == {"fences"}


def test_a_writer_has_a_larger_fence_than_the_readers_before():
    readers = [History(i).hold(0, 1, 10, 100 + i, "w0", SHARED) for i in range(2)]
    assert violations(*readers, History(2).hold(11, 12, 20, 100, "w0")).keys() == {"fences"}


# -- losses ---------------------------------------------------------------------------------------


def lost_lock(told_at=None):
    """Certain until 100 ms, over when asked at 400 ms."""
    history = History(0).take(0, 1, 100, until=100, name="r0")
    if told_at is not None:
        history.add(told_at, records.EVENT, "r0", records.EVENT_LOST, status=4)
    return history.give_back(400, "r0")


def test_a_loss_that_is_told_late_or_never_is_found():
    assert not violations(lost_lock(told_at=95))
    assert violations(lost_lock()).keys() == {"told"}
    assert violations(lost_lock(told_at=350)).keys() == {"told"}


def test_a_descriptor_that_does_not_tell_of_a_loss_is_found():
    history = lost_lock(told_at=95).add(390, records.SAMPLE, "r0", status=1)
    assert violations(history).keys() == {"told"}
    assert not violations(lost_lock(told_at=95).add(150, records.SAMPLE, "r0", status=1))


def test_a_process_that_stood_still_could_not_be_told():
    stopped = lost_lock(told_at=350).add(349, records.STALL, number=50 * MS)
    assert not violations(stopped)


# -- calls ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("call, back", [
    (records.ACQUIRE, records.ACQUIRED), (records.EXTEND, records.EXTENDED),
    (records.RELEASE, records.RELEASED)])
def test_a_call_that_returns_after_its_bound_is_found(call, back):
    history = History().add(0, call).add(1000, back, status=TIMEOUT)
    assert violations(history).keys() == {"bounds"}
    assert not violations(History().add(0, call).add(250, back, status=TIMEOUT))
    assert not violations(history.add(900, records.STALL, number=50 * MS))


def test_a_wait_belongs_to_the_bound_of_an_acquire():
    history = History().add(0, records.ACQUIRE, number=800)
    assert not violations(history.add(1000, records.ACQUIRED, status=TIMEOUT))


# -- waits ----------------------------------------------------------------------------------------


def test_a_waiter_behind_one_that_was_stopped_waits_for_its_lease():
    waiter = History(0).add(0, records.ACQUIRE, number=3000)
    waiter.add(3000, records.ACQUIRED, status=TIMEOUT)
    stopped = History(1).add(0, records.ACQUIRE, number=3000)
    stopped.add(2500, records.ACQUIRED, status=TIMEOUT).add(2400, records.STALL, number=300 * MS)
    assert not violations(waiter, stopped)


def waits_for_accounts(names, begin, end, number=0, thread=0):
    history = History(number).add(begin, records.ACQUIRE, names, 10_000, thread=thread)
    return history.add(end, records.ACQUIRED, names, status=TIMEOUT, thread=thread)


def test_a_waiter_beside_two_free_accounts_is_found_while_others_are_held():
    waiter = waits_for_accounts("a0 a1", 0, 6000)
    others = [History(1).hold(0, 1, 5900, 100, "a2 a3"),
              waits_for_accounts("a3 a4", 0, 5900, number=2)]
    assert violations(waiter, *others).keys() == {"stuck"}


def test_a_waiter_may_stand_behind_one_that_waits_for_an_account_that_is_held():
    waiter, holder = waits_for_accounts("a0 a1", 0, 6000), History(1).hold(0, 1, 5900, 100, "a2 a3")
    assert not violations(waiter, holder, waits_for_accounts("a1 a2", 0, 5900, number=2))
    assert violations(waiter, holder,  # which has gone too soon
                      waits_for_accounts("a1 a2", 0, 2000, number=2)).keys() == {"stuck"}


def test_an_outage_explains_a_wait_for_two_accounts():
    waiter, outage = waits_for_accounts("a0 a1", 0, 6000), (500 * MS, 5500 * MS)
    assert not violations(waiter, outages=[outage])


def test_a_waiter_beside_a_lock_that_nobody_has_is_found():
    waiter = History(0).add(0, records.ACQUIRE, number=3000)
    waiter.add(3000, records.ACQUIRED, status=TIMEOUT)
    assert violations(waiter).keys() == {"stuck"}
    holder = History(1).hold(0, 1, 1500, 100)
    assert not violations(waiter, holder)
    assert not violations(waiter, outages=[(500 * MS, 2500 * MS)])


# -- updates --------------------------------------------------------------------------------------


def test_updates_that_follow_each_other_are_all_there():
    history = History().write(0, 1, 0, DONE).write(5, 2, 1, IN_DOUBT).write(9, 3, 2, DONE)
    assert not violations(history, values={"g0": 3})


def test_an_acknowledged_update_that_was_overwritten_is_found():
    history = History().write(0, 1, 0, DONE).write(5, 2, 1, DONE).write(9, 3, 1, DONE)
    assert violations(history, values={"g0": 3}).keys() == {"updates"}


def test_an_update_in_doubt_may_be_lost_or_not():
    lost = History().write(0, 1, 0, DONE).write(5, 2, 1).write(9, 3, 1, DONE)
    assert not violations(lost, values={"g0": 3})


def test_an_update_that_was_refused_and_is_there_is_found():
    history = History().write(0, 1, 0, DONE).write(5, 2, 1, REFUSED)
    assert violations(history, values={"g0": 2}).keys() == {"updates"}
    assert not violations(history, values={"g0": 1})


def test_a_value_that_nobody_wrote_is_found():
    assert violations(History().write(0, 1, 0, DONE), values={"g0": 9})["updates"]


# -- the proxy ------------------------------------------------------------------------------------


def test_the_proxy_knows_where_a_command_ends():
    command = b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n"
    data = command * 2
    assert end_of_command(data, 0) == len(command)
    assert end_of_command(data, len(command)) == len(data)
    assert all(end_of_command(command[:i], 0) is None for i in range(len(command)))


# -- several names --------------------------------------------------------------------------------


def test_locks_that_share_one_of_two_names_exclude_each_other():
    one = History(0).hold(0, 1, 10, 100, "a1 a2")
    assert not violations(one, History(1).hold(0, 2, 12, 101, "a3 a4"))
    for name in ("a2 a3", "a3 a2", "a1 a3", "a2 a1"):
        found = violations(one, History(1).hold(0, 2, 12, 101, name))
        assert list(found) == ["exclusion"], name


def test_fences_of_each_of_two_names_grow():
    one = History(0).hold(0, 1, 10, 100, "a1 a2")
    assert not violations(one, History(1).hold(20, 21, 30, 101, "a2 a3"))
    assert list(violations(one, History(1).hold(20, 21, 30, 99, "a2 a3"))) == ["fences"]
    assert not violations(one, History(1).hold(20, 21, 30, 99, "a3 a4"))


def test_a_lost_update_of_one_account_is_found():
    history = History(0).write(0, 1, 0, DONE, "a1").write(1, 2, 0, DONE, "a2")
    assert not violations(history, values={"a1": 1, "a2": 2})
    assert list(violations(history, values={"a1": 1, "a2": 0})) == ["updates"]


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1 << 20], ids=["no room yet", "room for records"])
def test_a_process_that_was_killed_at_once_has_left_nothing(tmp_path, size):
    path = tmp_path / "worker-0.history"
    path.touch()
    os.truncate(path, size)
    nobody = Process(0, records.read_file(path), Rules().bounds)
    one = Process(1, History(1).hold(0, 1, 10, 100).records, Rules().bounds)
    assert not check([nobody, one], Rules(), [], {}).violations
