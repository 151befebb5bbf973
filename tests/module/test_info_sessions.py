"""The list of sessions in INFO dlock: who is present, what hangs on each, names of all kinds."""

import urllib.parse

import pytest
import redis

from support.commands import Lock, plain, stats
from support.server import free_port
from support.session import Session

LIMIT = 100


def lines(client, section="dlock"):
    """The list as the server sends it: of each line the number and the rest."""
    text = plain(client, "INFO", section).decode()
    found = [line.split(":", 1) for line in text.split("\r\n") if line.startswith("dlock_session_")]
    return [(field.rsplit("_", 1)[1], rest) for field, rest in found
            if field.rsplit("_", 1)[1].isdigit()]


def listed(client):
    """By a strict reading: nothing but fields that are known, each of them once."""
    found = []
    for number, (shown, rest) in enumerate(lines(client)):
        pairs = [pair.split("=") for pair in rest.split(",")]
        assert shown == str(number) and all(len(pair) == 2 for pair in pairs), rest
        fields = [field for field, _ in pairs]
        assert fields == [each for each in ("id", "state", "left_ms", "user", "locks", "waiters",
                                            "client", "addr", "name") if each in fields]
        found.append({field: urllib.parse.unquote(value) for field, value in pairs})
    return found


def only(client):
    [found] = listed(client)
    return found


def name_connection(session, name):
    session.connection.send_command("CLIENT", "SETNAME", name)
    assert session.connection.read_response() in (b"OK", "OK")


def address(session):
    return "%s:%d" % session.connection._sock.getsockname()


# -- states ----------------------------------------------------------------------------------------


def test_nobody_is_listed_at_first(client):
    assert listed(client) == [] and stats(client)["sessions_unlisted"] == 0


def test_a_session_is_listed_with_its_connection(client, session):
    name_connection(session, "web-3:4711:api")
    found = only(client)
    assert 0 < int(found.pop("left_ms")) <= session.timeout_ms
    assert found == {"id": session.name[:8], "state": "present", "user": "default", "locks": "0",
                     "waiters": "0", "client": str(session.id), "addr": address(session),
                     "name": "web-3:4711:api"}


def test_a_connection_without_a_name_has_no_name(client, session):
    assert "name" not in only(client)


def test_the_path_of_a_unix_socket_is_no_address(start_server, tmp_path):
    server = start_server("--unixsocket", tmp_path / "s")
    with redis.Redis(unix_socket_path=str(tmp_path / "s")) as client:
        client.execute_command("DLOCK.SESSION", "0123456789abcdef", "PX", 60_000)
        assert only(server.observer)["addr"] == "unixsocket"


def test_an_ipv6_address_is_in_brackets(start_server):
    server = start_server("--bind", "127.0.0.1", "::1")
    with redis.Redis("::1", server.port) as client:
        client.execute_command("DLOCK.SESSION", "0123456789abcdef", "PX", 60_000)
        assert only(server.observer)["addr"] == client.client_info()["addr"]
        assert only(server.observer)["addr"].startswith("[::1]:")


def test_an_id_is_never_shown_whole(client, session):
    assert session.name not in plain(client, "INFO", "everything").decode()


def test_a_session_that_is_away_has_no_connection(client, server, session):
    name_connection(session, "web-3")
    session.go_away()
    server.clock.advance(20)
    found = only(client)
    assert int(found.pop("left_ms")) <= 40_000
    assert found == {"id": session.name[:8], "state": "away", "user": "default", "locks": "0",
                     "waiters": "0"}
    session.come_back()
    assert (only(client)["state"], only(client)["client"]) == ("present", str(session.id))


def test_a_session_that_has_ended_is_not_listed(client, server, session, other):
    session.end()
    assert [each["id"] for each in listed(client)] == [other.name[:8]]
    server.clock.advance(61)
    assert listed(client) == []


def test_a_replica_lists_none(client, session):
    client.execute_command("REPLICAOF", "127.0.0.1", free_port())
    assert listed(client) == []
    assert stats(client)["sessions_unlisted"] in (0, 1)  # until the session is worked off


# -- what hangs on a session -----------------------------------------------------------------------


def count_of(client, number=0):
    return tuple(int(listed(client)[number][field]) for field in ("locks", "waiters"))


def test_locks_and_waiters_are_those_of_the_session(client, session, other):
    for key in "a", "b", "c":
        session.hold("me", key=key)
    other.wait("you", key="a")
    other.wait("you", "SESSION", key=["b", "c"])
    assert (count_of(client), count_of(client, 1)) == ((3, 0), (0, 2))
    Lock(client, "a").release("me")  # granted, and tied to no session
    assert (count_of(client), count_of(client, 1)) == ((2, 0), (0, 1))
    for key in "b", "c":
        Lock(client, key).release("me")
    assert (count_of(client), count_of(client, 1)) == ((0, 0), (2, 0))


def test_waiters_of_a_session_that_is_away_count_on(client, session, other):
    other.hold("holder")
    session.wait("me")
    session.go_away()
    assert count_of(client) == (0, 1)
    session.come_back()
    assert count_of(client) == (0, 1)
    other.wait("me")  # the same token takes the place over
    assert (count_of(client), count_of(client, 1)) == ((0, 0), (1, 1))


def test_a_grant_that_was_taken_back_is_a_waiter_again(client, session, other):
    """It was never written to a connection."""
    other.hold("holder")
    session.wait("me", "SESSION")
    Lock(client).release("holder")
    assert count_of(client) == (1, 0)
    session.go_away()
    assert count_of(client) == (0, 1)


# -- connections -----------------------------------------------------------------------------------


def test_a_connection_with_locks_is_a_session_without_an_id(client, server):
    holder = server.client()
    Lock(holder).acquire("me", 60_000, "SESSION")
    found = only(client)
    assert "id" not in found and "user" not in found and "left_ms" not in found
    assert (found["state"], found["locks"]) == ("present", "1")
    assert found["client"] == str(holder.client_id()) and found["addr"].startswith("127.0.0.1:")
    assert stats(client)["sessions"] == 0
    Lock(holder).release("me")
    assert listed(client) == []


def test_one_connection_may_have_both_kinds(client, session):
    session.connection.send_command("DLOCK.ACQUIRE", "k", "me", "PX", 60_000, "SESSION")
    assert session.connection.read_response() > 0
    named, anonymous = listed(client)
    assert "id" in named and "id" not in anonymous
    assert named["client"] == anonymous["client"] == str(session.id)


# -- more than the limit ---------------------------------------------------------------------------


def test_the_oldest_are_listed_and_the_others_are_counted(client, server):
    ids = [f"{number:08}-and-more" for number in range(LIMIT + 30)]
    for name in ids:
        client.execute_command("DLOCK.SESSION", name, "PX", 60_000)
    holder = server.client()
    Lock(holder).acquire("me", 60_000, "SESSION")
    assert [each["id"] for each in listed(client)] == [name[:8] for name in ids[:LIMIT]]
    assert stats(client)["sessions_unlisted"] == 31
    for name in ids[:40]:
        client.execute_command("DLOCK.SESSION", name, "END")
    assert stats(client)["sessions_unlisted"] == 0 and len(listed(client)) == LIMIT - 9
    Lock(holder).release("me")
    for name in ids[40:]:
        client.execute_command("DLOCK.SESSION", name, "END")
    assert listed(client) == [] and stats(client)["sessions_unlisted"] == 0


# -- text from outside -----------------------------------------------------------------------------


HOSTILE = [b"a,state=away,locks=9", b"100%", b"%2C", b"=,=,=,=,", b"...", b"{}[]\"'\\:;",
           b"x" * 160]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_name_cannot_break_the_line(client, session, name):
    name_connection(session, name)
    assert (only(client)["name"], only(client)["locks"]) == (name.decode(), "0")


def test_a_long_name_is_cut(client, session):
    name_connection(session, "," * 5000)
    assert only(client)["name"] == "," * 160 + "..."
    assert max(len(rest) for _, rest in lines(client)) < 2000


@pytest.mark.parametrize("start", [
    b"\r\ndlock_", b"\0\0\0\0\0\0\0\0", b"a=1,b=2,", b"%%%%%%%%", b"\xff\xfe\x80\x81\n\n\n\n"])
def test_an_id_cannot_break_the_line(client, server, start):
    Session(server, name=start + b"held:999\r\n1234")
    fields = dict(pair.split("=") for pair in lines(client)[0][1].split(","))
    assert urllib.parse.unquote_to_bytes(fields["id"]) == start
    assert fields["state"] == "present" and len(listed(client)) == 1
    assert stats(client)["held"] == 0


@pytest.mark.parametrize("user", ["a,b=c", "50%", "u" * 300, "\x01\x7f"])
def test_a_user_cannot_break_the_line(client, server, user):
    client.execute_command("ACL", "SETUSER", user, "on", "nopass", "~*", "+@all")
    Session(server, username=user, password="any")
    assert only(client)["user"] == (user if len(user) <= 160 else user[:160] + "...")


# -- sections --------------------------------------------------------------------------------------


def test_the_list_is_a_section_of_its_own(client, session):
    assert len(lines(client, "dlock_sessions")) == 1
    assert set(client.info("dlock_sessions")) == {"dlock_session_0", "dlock_sessions_unlisted"}
    assert len(lines(client, "everything")) == 1 and not lines(client, "server")


def test_a_crash_report_has_no_list(start_server):
    """A list may be what crashed the server."""
    server = start_server("--crash-memcheck-enabled", "no")
    Session(server)
    with pytest.raises(redis.ConnectionError):
        server.observer.execute_command("DEBUG", "SEGFAULT")
    server.process.wait(60)
    log = (server.dir / "log").read_text(errors="replace")
    server.kill()
    (server.dir / "log").write_text("")  # the crash is no fault
    assert "dlock_sessions:1" in log and "dlock_session_0" not in log
