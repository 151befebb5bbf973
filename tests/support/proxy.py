"""Between a client and a server: passes on what is said, holds it back, or cuts it off."""

import socket
import threading


class Proxy:
    def __init__(self, to_port):
        self.to_port = to_port
        self.is_open = threading.Event()
        self.is_open.set()
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
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one, other):
        try:
            while data := one.recv(65536):
                self.is_open.wait()
                other.sendall(data)
        except OSError:
            pass
        _cut(one)
        _cut(other)

    def hold_back(self):
        """Nothing gets through until let_go()."""
        self.is_open.clear()

    def let_go(self):
        self.is_open.set()

    def cut(self):
        """All connections there are."""
        pairs, self.pairs = self.pairs, []
        for near, far in pairs:
            _cut(near)
            _cut(far)

    def close(self):
        self.listener.close()
        self.let_go()
        self.cut()


def _cut(connection):
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
