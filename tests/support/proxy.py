"""Between a client and a server: passes on what is said, holds it back, or cuts it off.

    hold_back(), let_go()    all connections
    delay(word)              a connection that says this word is late from there on, as after a lost
                             segment; other connections go on
    mute(word)               a connection that says this word gets no more replies; the server has
                             heard it
    tear()                   only the first byte of a reply gets through
    cut(), cut_near()        all connections, or our side of them
"""

import socket
import threading


class Rule:
    """Connections that say this word are held up until end() or for ever. count: how many."""

    def __init__(self):
        self.word, self.count, self.is_over = None, 0, threading.Event()
        self.is_once = False

    def begin(self, word, is_once=False):
        self.word, self.is_once, self.is_over = word, is_once, threading.Event()

    def concerns(self, data):
        does = self.word is not None and self.word in data
        self.count += does
        if does and self.is_once:
            self.spare_others()
        return does

    def spare_others(self):
        """Those who say the word from now on are not concerned."""
        self.word = None

    def end(self):
        self.word = None
        self.is_over.set()


class Pair:
    """The two sides of a connection."""

    def __init__(self, near, far):
        self.near, self.far = near, far
        for side in near, far:  # nothing is held back that was not told to be
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.is_muted = self.is_kept = False

    def cut(self):
        cut(self.near)
        cut(self.far)


class Proxy:
    def __init__(self, to_port):
        self.to_port = to_port
        self.count = 0
        self.is_open, self.is_whole = threading.Event(), threading.Event()
        self.is_open.set()
        self.is_whole.set()
        self.late, self.muted = Rule(), Rule()
        self.pairs = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                pair = Pair(near, socket.create_connection(("127.0.0.1", self.to_port)))
            except OSError:
                near.close()
                continue
            self.pairs.append(pair)
            self.count += 1
            for pass_on in self._requests, self._replies:
                threading.Thread(target=self._serve, args=(pass_on, pair), daemon=True).start()

    @staticmethod
    def _serve(pass_on, pair):
        try:
            pass_on(pair)
        except OSError:
            pass
        if not pair.is_kept:
            pair.cut()

    def _requests(self, pair):
        while data := pair.near.recv(65536):
            self.is_open.wait()
            word = self.late.word
            if word is not None and word in data:  # what was said before it is not late
                pair.far.sendall(data[:data.index(word)])
                data = data[data.index(word):]
            if self.late.concerns(data):
                self.late.is_over.wait()
            pair.is_muted = self.muted.concerns(data) or pair.is_muted
            pair.far.sendall(data)

    def _replies(self, pair):
        while data := pair.far.recv(65536):
            self.is_open.wait()
            if pair.is_muted:
                self.muted.is_over.wait()
            if not self.is_whole.is_set():
                pair.near.sendall(data[:1])
                self.is_whole.wait()
                data = data[1:]
            pair.near.sendall(data)

    def hold_back(self):
        """Nothing gets through until let_go()."""
        self.is_open.clear()

    def let_go(self):
        self.is_open.set()

    @property
    def delayed_count(self):
        return self.late.count

    def delay(self, word, is_once=False):
        """What a connection says, from this word on, arrives with deliver(): even if our side has
        ended by then, as the network delivers what it has once accepted. is_once: only that of the
        first connection that says the word."""
        self.late.begin(word, is_once)

    def delay_no_more(self):
        """What is late stays late; connections that say the word from now on are not."""
        self.late.spare_others()

    def deliver(self):
        """What is late arrives."""
        self.late.end()

    def mute(self, word):
        self.muted.begin(word)

    def mute_no_more(self):
        """Those that are muted stay so."""
        self.muted.spare_others()

    def unmute(self):
        self.muted.end()

    def tear(self):
        """Of the next reply on a connection, one byte gets through until the end of the test."""
        self.is_whole.clear()

    def cut(self):
        """All connections there are."""
        pairs, self.pairs = self.pairs, []
        for pair in pairs:
            pair.cut()

    def cut_near(self):
        """Our side of all connections there are. The server does not hear of it."""
        for pair in self.pairs:
            pair.is_kept = True
            cut(pair.near)

    def relent(self):
        """Everything gets through from now on."""
        self.let_go()
        self.is_whole.set()
        self.deliver()
        self.unmute()

    def close(self):
        cut(self.listener)
        self.listener.close()
        self.relent()
        self.cut()


def cut(connection):
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
