"""A terminal with a program in it, and somebody who types."""

import fcntl
import os
import pty
import struct
import termios
import time

from support.server import is_readable
from support.tool import heed_the_keyboard


class Terminal:
    def __init__(self, words, env, rows=24, columns=80):
        self.shown = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                heed_the_keyboard()
                os.execvpe(words[0], [str(word) for word in words], env)
            finally:
                os._exit(127)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.status = None

    def type(self, text):
        os.write(self.fd, text.encode())

    def _read(self, seconds):
        if not is_readable(self.fd, seconds):
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # the last program has left
            data = b""
        self.shown += data.decode(errors="replace")
        return bool(data)

    def wait_for(self, text, timeout=50, after=0):
        """Until it was shown; the result is where it ends."""
        deadline = time.monotonic() + timeout
        while text not in self.shown[after:]:
            assert time.monotonic() < deadline, f"no {text!r} in {self.shown[after:]!r}"
            if not self._read(0.1) and self.is_over():
                assert text in self.shown[after:], self.shown[after:]
        return self.shown.index(text, after) + len(text)

    def is_over(self):
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is not None

    def wait(self, timeout=50):
        """Exit code; negative: the signal it died of."""
        deadline = time.monotonic() + timeout
        while not self.is_over():
            assert time.monotonic() < deadline, f"it does not end: {self.shown!r}"
            self._read(0.05)
        while self._read(0):
            pass
        return self.status

    def modes(self):
        return termios.tcgetattr(self.fd)

    def foreground(self):
        return os.tcgetpgrp(self.fd)

    def close(self):
        if not self.is_over():
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)
        os.close(self.fd)
