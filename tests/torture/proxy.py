"""proxy.py PORT LISTEN_PORT SEED FAULTS_FILE: a network that loses, cuts and delays, by dice.

A process of its own between the workers and one server. It reads the commands of the Redis
protocol, so that a fault falls exactly before, into or behind a command:

    cut before     the command never arrives
    cut inside     half of the command arrives
    cut behind     the command is executed, its reply never arrives
    late           our side ends, and the command arrives a while later all the same, as a segment
                   that the network has accepted
    delay          the connection stands still for a while; others go on
    half open      nothing passes any more in either direction, and neither side hears of an end

SIGUSR1 ends the faults: none begins any more.
"""

import collections
import heapq
import itertools
import json
import random
import selectors
import signal
import socket
import sys
import time

EVERY = 150         # commands, about, from one fault to the next
HALF_OPEN_S = 2.0   # then our side is reset
FAULTS = ("cut before", "cut inside", "cut behind", "late", "delay", "half open")
RESET = b"\1\0\0\0\0\0\0\0"  # struct linger: RST instead of FIN


def end_of_command(data, start):
    """Where the command that begins at start ends, or None if it is not whole yet."""
    head = data.find(b"\r\n", start)
    if head < 0:
        return None
    at = head + 2
    for _ in range(int(data[start + 1:head])):
        head = data.find(b"\r\n", at)
        if head < 0:
            return None
        at = head + 2 + int(data[at + 1:head]) + 2
    return at if at <= len(data) else None


class Pair:
    """A client's connection and ours to the server."""

    def __init__(self, proxy, near):
        self.proxy, self.near = proxy, near
        self.far = socket.create_connection(("127.0.0.1", proxy.port), timeout=1)
        self.unread = b""        # of the client: less than a command
        self.is_mute = False     # half open: whatever comes is thrown away
        self.held = None         # delayed: what came meanwhile, (is_request, data)
        self.is_over = False
        for one in self.near, self.far:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.settimeout(5)

    def on_near(self):
        data = self._receive(self.near)
        if data is not None:
            self.take_request(data)

    def on_far(self):
        data = self._receive(self.far)
        if data is not None:
            self.take_reply(data)

    def _receive(self, one):
        try:
            data = one.recv(65536)
        except OSError:
            data = b""
        if not data:
            self.end()
            return None
        return data

    def take_request(self, data):
        if self.is_mute or self._hold(True, data):
            return
        data, self.unread = self.unread + data, b""
        start = 0
        while (end := end_of_command(data, start)) is not None:
            command, start = data[start:end], end
            self._pass(command)
            if self.is_over or self.is_mute:
                return
            if self.held is not None:
                self.held.append((True, data[start:]))
                return
        self.unread = data[start:]

    def _pass(self, command):
        fault = self.proxy.roll()
        if fault is None:
            self._send(self.far, command)
        else:
            self.proxy.note(fault)
            getattr(self, fault.replace(" ", "_"))(command)

    def take_reply(self, data):
        if not self.is_mute and not self._hold(False, data):
            self._send(self.near, data)

    def _hold(self, is_request, data):
        if self.held is None:
            return False
        self.held.append((is_request, data))
        return True

    def _send(self, one, data):
        try:
            one.sendall(data)
        except OSError:
            self.end()

    # -- the faults ------------------------------------------------------------------------------

    def cut_before(self, command):
        self.end(is_reset=True)

    def cut_inside(self, command):
        self._send(self.far, command[:len(command) // 2])
        self.end()

    def cut_behind(self, command):
        self._send(self.far, command)
        self.is_mute = True
        self.proxy.after(0.005, self.end)

    def late(self, command):
        """The client hears of the end at once; the server gets the command, and then the end."""
        self.is_mute = True
        self.proxy.forget(self.near)
        self.near.close()

        def arrive():
            self._send(self.far, command)
            self.proxy.after(0.01, self.end)
        self.proxy.after(self.proxy.dice.uniform(0.01, 1.5), arrive)

    def delay(self, command):
        self.held = [(True, command)]

        def go_on():
            held, self.held = self.held, None
            for number, (is_request, data) in enumerate(held):
                if self.is_over:
                    return
                if number == 0:
                    self._send(self.far, data)
                else:
                    (self.take_request if is_request else self.take_reply)(data)
        self.proxy.after(self.proxy.dice.uniform(0.001, 0.5), go_on)

    def half_open(self, command):
        self.is_mute = True
        self.proxy.after(HALF_OPEN_S, lambda: self.end(is_reset=True))

    def end(self, is_reset=False):
        if self.is_over:
            return
        self.is_over = True
        for one in self.near, self.far:
            self.proxy.forget(one)
            if is_reset and one.fileno() >= 0:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            one.close()


class Proxy:
    def __init__(self, port, listen_port, seed, file):
        self.port, self.file = port, file
        self.dice = random.Random(f"{seed}.proxy")
        self.selector = selectors.DefaultSelector()
        self.timers, self.count = [], itertools.count()
        self.counts = collections.Counter()
        self.is_calm = False
        self.listener = socket.create_server(("127.0.0.1", listen_port), backlog=512)
        self.selector.register(self.listener, selectors.EVENT_READ, self.accept)

    def accept(self):
        near, _ = self.listener.accept()
        try:
            pair = Pair(self, near)
        except OSError:
            near.close()
            return
        self.selector.register(near, selectors.EVENT_READ, pair.on_near)
        self.selector.register(pair.far, selectors.EVENT_READ, pair.on_far)

    def forget(self, one):
        try:
            self.selector.unregister(one)
        except (KeyError, ValueError):
            pass

    def roll(self):
        is_due = not self.is_calm and self.dice.randrange(EVERY) == 0
        return self.dice.choice(FAULTS) if is_due else None

    def calm_down(self, *_):
        self.is_calm = True

    def note(self, fault):
        at = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        self.file.write(json.dumps({"at": at, "to": at, "kind": f"connection: {fault}",
                                    "target": 0, "outage": False}) + "\n")
        self.file.flush()

    def after(self, seconds, action):
        heapq.heappush(self.timers, (time.monotonic() + seconds, next(self.count), action))

    def run(self):
        while True:
            wait = self.timers[0][0] - time.monotonic() if self.timers else 1
            for ready, _ in self.selector.select(max(0, wait)):
                ready.data()
            while self.timers and self.timers[0][0] <= time.monotonic():
                heapq.heappop(self.timers)[2]()


def main():
    port, listen_port, seed, path = sys.argv[1:]
    with open(path, "w") as file:
        proxy = Proxy(int(port), int(listen_port), seed, file)
        signal.signal(signal.SIGUSR1, proxy.calm_down)
        proxy.run()


if __name__ == "__main__":
    main()
