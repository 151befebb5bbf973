"""A server that does what it is told with each request, for what no real one does on demand.

    FakeServer(lambda words: b":1\\r\\n")     answers everything alike
    SILENCE                                  takes the request, and says nothing on that
                                             connection from now on: replies come in order
    CUT                                      takes the request and closes the connection
    Cut(b":1")                               sends these bytes, then closes it

DLOCK.SESSION is answered as a server does that knows the session and has no events, unless
has_sessions is False.
"""

import contextlib
import socket
import threading

SILENCE = object()
OPEN_SESSION = b"*2\r\n:1\r\n*0\r\n"


class Cut:
    def __init__(self, bytes_before=b""):
        self.bytes_before = bytes_before


CUT = Cut()


class FakeServer:
    def __init__(self, answer):
        """answer(words): what to do with a request, of which the words are bytes."""
        self.answer = answer
        self.has_sessions = True
        self.answers_ping = True
        self.requests = []  # without those of sessions
        self.connection_count = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"
        self.connections = []
        self.silent = []  # connections on which it says nothing any more, but those of sessions
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as a server does
            self.connection_count += 1
            self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        try:
            with connection, connection.makefile("rb") as stream:
                is_mute = is_open = False
                while (action := self._take_one(stream, is_open)) is not None:
                    is_open = is_open or action is OPEN_SESSION
                    if action is SILENCE and not is_mute and not is_open:
                        self.silent.append(connection)
                    is_mute = is_mute or action is SILENCE
                    if is_mute:
                        continue
                    is_cut = isinstance(action, Cut)
                    connection.sendall(action.bytes_before if is_cut else action)
                    if is_cut:
                        break
        except OSError:
            pass

    def _take_one(self, stream, is_open):
        if stream.read(1) != b"*":  # the end, or no RESP but TLS
            return None
        try:
            words = [stream.read(int(stream.readline()[1:]) + 2)[:-2]
                     for _ in range(int(stream.readline()))]
        except ValueError:  # the end, within a request
            return None
        if self.has_sessions and words[0] == b"DLOCK.SESSION":
            return b":1\r\n" if b"END" in words else SILENCE if is_open else OPEN_SESSION
        if words == [b"PING"]:  # after a reply that was not given in time: is the server alive?
            return b"+PONG\r\n" if self.answers_ping else SILENCE
        self.requests.append(words)
        return self.answer(words)

    def asked(self, command):
        """The requests with this first word."""
        return [words for words in list(self.requests) if words[0] == command.encode()]

    def break_connections(self):
        for connection in list(self.connections):
            with contextlib.suppress(OSError):  # the client has closed the connection before
                connection.shutdown(socket.SHUT_RDWR)

    def relent(self):
        """Every request is answered from now on, so that clients end without a timeout."""
        self.answer = lambda words: b":1\r\n"
        self.break_connections()

    def close(self):
        with contextlib.suppress(OSError):  # a test has closed it before
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.break_connections()


def granting(fence=7, **others):
    """An answer of a server that grants what it is asked for. others: what is done with a command
    instead, or a function of its words that returns that; None is as ever."""
    def answer(words):
        other = others.get(words[0].decode().removeprefix("DLOCK."))
        if callable(other):
            other = other(words)
        if other is not None:
            return other
        return b":%d\r\n" % (fence if words[0] == b"DLOCK.ACQUIRE" else 1)
    return answer


def naming(port):
    """An answer of a sentinel that names the master at this port of this machine, or "host port",
    with the epoch 1."""
    host, _, number = str(port).rpartition(" ")

    def answer(words):
        if words[0] != b"SENTINEL":
            return b"+OK\r\n"
        if words[1] == b"MASTER":
            return resp(["name", "locks", "config-epoch", "1"])
        return resp([host or "127.0.0.1", number])
    return answer


def resp(value):
    """A reply: None, numbers, texts, lists of them; an Exception is an error."""
    if value is None:
        return b"$-1\r\n"
    if isinstance(value, Exception):
        return b"-%s\r\n" % str(value).encode()
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, str):
        return b"$%d\r\n%s\r\n" % (len(value.encode()), value.encode())
    return b"*%d\r\n" % len(value) + b"".join(map(resp, value))
