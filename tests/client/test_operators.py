"""What operators use: locks by their token, whichever process holds them; who waits; counters of
the servers; and what a status means."""

import ctypes
import os
import re
import socket
import subprocess
import time

import pytest

from support.commands import Lock as Commands
from support.libdlock import EXCLUSIVE, INFO_FN, PLACE_FN, SHARED, Status, lib
from support.server import ROOT, free_port
from support.waiting import queue_up

HEADER = (ROOT / "client/include/dlock.h").read_text()
LEASE_MS = 60_000


def address(server):
    return f"127.0.0.1:{server.port}"


# -- by token -------------------------------------------------------------------------------------


def test_a_token_is_enough_to_extend_and_release_a_lock(dlock, client):
    Commands(client).acquire("job", 5000)
    assert dlock.extend_token(b"job", LEASE_MS) == (Status.OK, "")
    assert Commands(client).ttl() > LEASE_MS / 2
    assert dlock.release_token(b"job") == (Status.OK, "")
    assert Commands(client).info() is None


def test_a_token_that_does_not_hold_the_lock_changes_nothing(dlock, client):
    Commands(client).acquire("job", 5000)
    assert dlock.extend_token(b"another", LEASE_MS)[0] == Status.NOT_HELD
    assert dlock.release_token(b"another")[0] == Status.NOT_HELD
    info = Commands(client).info()
    assert info["token"] == b"job" and info["ttl"] <= 5000


def test_a_token_is_about_the_name_with_the_prefix(connect, server, client):
    Commands(client, "app:lock").acquire("job", 5000)
    assert connect(server).release_token(b"job")[0] == Status.NOT_HELD
    assert connect(server, prefix="app:").release_token(b"job")[0] == Status.OK


def test_the_lock_of_a_handle_can_be_extended_and_released_by_its_token(connect, server, dlock):
    lock = dlock.hold(lease_ms=5000)
    operator = connect(server)
    assert operator.extend_token(lock.token, LEASE_MS)[0] == Status.OK
    assert lock.extend() == Status.OK
    assert operator.release_token(lock.token)[0] == Status.OK
    assert lock.release() == Status.LOST


def test_a_majority_decides_about_a_token(connect, lend):
    servers = lend(3)
    dlock = connect(servers)
    for each in servers[:2]:
        Commands(each.observer).acquire("job", 5000)
    assert dlock.extend_token(b"job", LEASE_MS)[0] == Status.OK
    servers[0].observer.delete("lock")
    assert dlock.extend_token(b"job", LEASE_MS)[0] == Status.NOT_HELD


def test_an_extension_by_token_that_makes_no_sense_is_refused_in_words(dlock, client):
    Commands(client).acquire("job", 5000)
    for token, lease_ms in (b"job", 0), (b"", LEASE_MS):
        status, why = dlock.extend_token(token, lease_ms)
        assert status == Status.INVALID and why
    assert Commands(client).ttl() <= 5000


def test_a_server_that_is_away_is_named(connect):
    port = free_port()
    dlock = connect(f"redis://127.0.0.1:{port}", io_timeout_ms=100)
    for status, why in dlock.extend_token(b"job", LEASE_MS), dlock.release_token(b"job"):
        assert status == Status.UNREACHABLE and f"127.0.0.1:{port}" in why


# -- who waits ------------------------------------------------------------------------------------


def test_waiters_are_told_in_their_order(dlock, server, client):
    Commands(client).acquire("holder", LEASE_MS)
    waiting = queue_up(server, ["first", "second"], wait_ms=LEASE_MS)
    waiting += queue_up(server, ["third"], wait_ms=LEASE_MS, options=["SHARED"])
    status, told, why = dlock.list_waiters()
    assert (status, why) == (Status.OK, "")
    assert [(token, client, mode) for _, token, _, _, client, mode in told] == \
        [(each.token.encode(), each.id, mode)
         for each, mode in zip(waiting, [EXCLUSIVE, EXCLUSIVE, SHARED])]
    for where, _, waited_ms, left_ms, _, _ in told:
        assert where == address(server)
        assert waited_ms >= 0 and 0 < left_ms and waited_ms + left_ms <= LEASE_MS + 1


def test_no_more_waiters_are_told_than_asked_for(dlock, server, client):
    Commands(client).acquire("holder", LEASE_MS)
    queue_up(server, ["first", "second", "third"])
    tokens = [token for _, token, *_ in dlock.list_waiters(count=2)[1]]
    assert tokens == [b"first", b"second"]
    assert len(dlock.list_waiters(enough=1)[1]) == 1


def test_nobody_waits_for_a_lock_that_is_held_or_free(dlock, client):
    assert dlock.list_waiters()[:2] == (Status.OK, [])
    Commands(client).acquire("holder", LEASE_MS)
    assert dlock.list_waiters()[:2] == (Status.OK, [])


def test_waiters_of_several_servers_are_told_with_their_server(connect, lend):
    servers = lend(3)
    for i, each in enumerate(servers):
        Commands(each.observer).acquire("holder", LEASE_MS)
        queue_up(each, [f"waiter {i}"])
    status, told, _ = connect(servers).list_waiters()
    assert status == Status.OK
    assert {(where, token) for where, token, *_ in told} == \
        {(address(each), b"waiter %d" % i) for i, each in enumerate(servers)}


@pytest.mark.parametrize("count", [0, 10_001])
def test_a_number_of_waiters_out_of_bounds_is_refused(dlock, count):
    status, told, why = dlock.list_waiters(count=count)
    assert (status, told) == (Status.INVALID, []) and why


def test_nobody_to_tell_is_refused(dlock):
    status = lib.dlock_list_waiters(dlock.handle, b"lock", 1, 1000, PLACE_FN(), None, None, 0)
    assert status == Status.INVALID


# -- the servers ----------------------------------------------------------------------------------


def test_every_field_of_info_is_told_of_every_server(connect, lend):
    servers = lend(3)
    Commands(servers[0].observer).acquire("holder", LEASE_MS)
    status, told, why = connect(servers).server_info()
    assert (status, why) == (Status.OK, "")
    assert set(told) == {address(each) for each in servers}
    for each in servers:
        fields = told[address(each)]
        assert set(each.observer.info("dlock")) == set(fields)
        assert fields["dlock_held"] == ("1" if each is servers[0] else "0")


def test_a_program_that_takes_its_time_when_told_does_not_make_others_late(connect, lend,
                                                                            start_proxy):
    near, far = lend(2)
    proxy = start_proxy(far)
    dlock = connect([f"redis://{address(near)}", proxy.url], io_timeout_ms=2500)
    assert dlock.server_info()[0] == Status.OK
    proxy.hold_back()
    told, why = set(), ctypes.create_string_buffer(256)

    def tell(_, server, field, value):
        if not told:
            proxy.let_go()
            time.sleep(3)
        told.add(server)

    status = lib.dlock_server_info(dlock.handle, 20_000, INFO_FN(tell), None, why, len(why))
    assert (Status(status), why.value, len(told)) == (Status.OK, b"", 2)


def test_a_server_that_gives_no_information_is_named(connect, start_server):
    server = start_server(module=None)
    status, told, why = connect(server).server_info()
    assert status != Status.OK and told == {}
    assert address(server) in why


# -- what a status means --------------------------------------------------------------------------


def test_every_status_has_its_name_and_a_text_of_its_own():
    lib.dlock_status_name.argtypes = lib.dlock_status_text.argtypes = [ctypes.c_int]
    for status in Status:
        assert lib.dlock_status_name(status) == f"DLOCK_{status.name}".encode()
    texts = {lib.dlock_status_text(status) for status in Status}
    assert len(texts) == len(Status) and all(texts)
    assert lib.dlock_status_name(99) == b"DLOCK_?" and lib.dlock_status_text(99)


def test_these_are_all_statuses_of_the_header_with_their_numbers():
    declared = dict(re.findall(r"^ +DLOCK_(\w+) = (\d+)\b", HEADER, re.M))
    statuses = {status.name: str(status.value) for status in Status}
    assert statuses.items() <= declared.items()


def test_failures_are_those_that_do_not_tell_who_holds_the_lock(tmp_path):
    """The function is in the header, so a program is compiled with it."""
    source = "#include <stdio.h>\n#include <dlock.h>\nint main(void) {\n"
    source += "".join(f'    if (dlock_is_failure(DLOCK_{status.name})) puts("{status.name}");\n'
                      for status in Status) + "}\n"
    subprocess.run(["cc", "-x", "c", f"-I{ROOT}/client/include", "-o", tmp_path / "it", "-"],
                   input=source, text=True, check=True)
    told = subprocess.run([tmp_path / "it"], text=True, stdout=subprocess.PIPE, check=True).stdout
    assert set(told.split()) == {"IN_DOUBT", "UNREACHABLE", "REFUSED", "PROTOCOL", "INVALID",
                                 "NO_MEMORY", "NO_MODULE"}


# -- names of connections -------------------------------------------------------------------------


def names(client):
    return sorted(each["name"] for each in client.client_list() if each["name"])


@pytest.mark.parametrize("way", ["?owner=billing", "lock_defaults"])
def test_the_connections_of_a_client_with_an_owner_have_a_name(connect, server, client, way):
    url = f"redis://127.0.0.1:{server.port}"
    dlock = (connect(url + way) if way[0] == "?" else
             connect(url, lock_defaults={"owner": "billing"}))
    lock = dlock.hold(renew=True)
    of_commands, of_session = names(client)
    assert of_commands == of_session == f"{socket.gethostname()}:{os.getpid()}:billing"
    assert lock.token.decode().startswith(of_session + ":")


def test_without_an_owner_they_have_none(dlock, client):
    dlock.hold(owner="billing")
    assert names(client) == []
