"""One server for many tests, as good as new for each of them."""

import contextlib
import os
import signal
import time

import redis

from support.commands import count_from_now, plain, stats
from support.server import Server, wait_until
from support.waiting import end_sessions, flush_until_quiet

KINDS = ["normal", "pubsub", "replica", "master"]  # of clients


class SharedServer:
    """take() is a clean server. It is another one if the test before has stopped it, or has lifted
    its fences: nothing but a restart makes them small again. may_be_ahead: lifted fences may
    stay."""

    def __init__(self, *options, may_be_ahead=False):
        self.options, self.may_be_ahead = options, may_be_ahead
        self.server = self.process = None
        self.settings = {}

    def take(self):
        if self.server is None:
            self.server = Server(*self.options, has_clock=True).start()
            self.process = self.server.process
            self.settings = self.server.observer.config_get("*")
        count_from_now(self.server.observer)
        return self.server

    def give_back(self):
        """After a test: no sign of a crash, and nothing is left of it."""
        is_clean = False
        try:
            self.server.check_log()
            with contextlib.suppress(redis.AuthenticationError):  # it has a password now
                is_clean = self._clean()
            os.truncate(self.server.dir / "log", 0)
        finally:
            if not is_clean:
                self.destroy()

    def destroy(self):
        server, self.server = self.server, None
        if server is not None:
            server.destroy()

    def _clean(self):
        """False: it takes another server."""
        server = self.server
        server.disconnect()
        if server.process is not self.process or server.process.poll() is not None:
            return False
        server.process.send_signal(signal.SIGCONT)
        server.clock.step(-server.clock.ahead_s)
        client = server.observer
        client.execute_command("REPLICAOF", "NO", "ONE")
        self._restore_settings(client)
        self._clear(client)
        end_sessions(server)
        server.kept.clear()
        wait_until(lambda: client.info("clients")["connected_clients"] == 1, "all others to go")
        flush_until_quiet(client)
        return self.may_be_ahead or stats(client)["last_fence"] <= time.time_ns() // 1000

    @staticmethod
    def _clear(client):
        users = [user for user in client.acl_users() if user != "default"]
        pipe = client.pipeline(transaction=False)
        for words in (("CLIENT", "UNPAUSE"),
                      *(("CLIENT", "KILL", "TYPE", kind) for kind in KINDS),
                      *(("ACL", "DELUSER", user) for user in users),
                      ("FUNCTION", "FLUSH"), ("SLOWLOG", "RESET"), ("CONFIG", "RESETSTAT"),
                      ("DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", 0),
                      ("DEBUG", "SET-ACTIVE-EXPIRE", 1)):
            pipe.execute_command(*words)
        pipe.execute()

    def _restore_settings(self, client):
        now = client.config_get("*")
        for name, value in self.settings.items():
            if now[name] != value:
                plain(client, "CONFIG", "SET", name, value)
