"""Between a client and a server: passes on what is said, holds it back, or cuts it off.

    Proxy(port)                              hold_back(), let_go(), cut() all connections
    Proxy(port, gates={1: Gate(...)})        the second connection is held up on its own
    delay(b"DLOCK.EXTEND")                   a connection that says this is late from there on, as
                                             after a lost segment; other connections go on
"""

import socket
import threading


class Gate:
    """What is asked, or what is answered, waits until it is opened; but so many messages pass
    before. is_kept: the server does not hear of it when our side ends."""

    def __init__(self, asked=False, answered=False, is_kept=False, passing=0):
        self.is_open = threading.Event()
        self.asked, self.answered, self.is_kept = asked, answered, is_kept
        self.passing = passing

    def open(self):
        self.is_open.set()


class Proxy:
    def __init__(self, to_port, gates=None):
        self.to_port = to_port
        self.gates = gates or {}
        self.count = 0
        self.is_open = threading.Event()
        self.is_open.set()
        self.delayed_word = None
        self.delayed_count = 0
        self.is_delay_over = threading.Event()
        self.pairs = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.to_port))
            except OSError:
                if self.listener.fileno() < 0:
                    return
                near.close()
                continue
            self.pairs.append((near, far))
            gate = self.gates.get(self.count) or self.gates.get("others") or Gate()
            self.count += 1
            for one, other, is_gated in ((near, far, gate.asked), (far, near, gate.answered)):
                threading.Thread(target=self._pass_on, daemon=True,
                                 args=(one, other, gate, is_gated, one is near)).start()

    def _pass_on(self, one, other, gate, is_gated, is_request):
        passed = 0
        try:
            while data := one.recv(65536):
                self.is_open.wait()
                if is_request and self.delayed_word and self.delayed_word in data:
                    self.delayed_count += 1
                    self.is_delay_over.wait()
                if is_gated and passed >= gate.passing:
                    gate.is_open.wait()
                passed += 1
                other.sendall(data)
            if is_gated:
                gate.is_open.wait()
        except OSError:
            pass
        if not gate.is_kept:
            _cut(one)
            _cut(other)

    def hold_back(self):
        """Nothing gets through until let_go()."""
        self.is_open.clear()

    def let_go(self):
        self.is_open.set()

    def delay(self, word):
        """What a connection says, from this word on, arrives with deliver(): even if our side has
        ended by then, as the network delivers what it has once accepted."""
        self.is_delay_over.clear()
        self.delayed_word = word

    def delay_no_more(self):
        """What is late stays late; connections that say the word from now on are not."""
        self.delayed_word = None

    def deliver(self):
        """What is late arrives."""
        self.delayed_word = None
        self.is_delay_over.set()

    def cut(self):
        """All connections there are."""
        pairs, self.pairs = self.pairs, []
        for near, far in pairs:
            _cut(near)
            _cut(far)

    def cut_near(self, which):
        """Only our side of it."""
        _cut(self.pairs[which][0])

    def close(self):
        self.listener.close()
        self.let_go()
        self.deliver()
        for gate in self.gates.values():
            gate.open()
        self.cut()


def _cut(connection):
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
