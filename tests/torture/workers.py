"""The worker processes of a run: start, borrow for a fault, replace, end in good order."""

import contextlib
import subprocess
import threading

from support.server import DIE_WITH_PARENT, wait_until

END_PATIENCE_S = 40


class Worker:
    def __init__(self, number, process, history):
        self.number, self.process, self.history = number, process, history
        self.mutex = threading.Lock()

    def terminate(self):
        """In good order: it hears the signal from when its history is there."""
        wait_until(lambda: self.history.exists() or self.process.poll() is not None, "a worker")
        self.process.terminate()


class Workers:
    def __init__(self, command, folder, count):
        """command(number, history): the words of worker number."""
        self.command, self.folder = command, folder
        self.started = 0
        self.mutex = threading.Lock()
        self.alive = []
        self.troubles = []
        for _ in range(count):
            self.alive.append(self._start())

    def _start(self):
        with self.mutex:
            number, self.started = self.started, self.started + 1
        history = self.folder / f"worker-{number}.history"
        words = self.command(number, history)
        with open(self.folder / "workers.log", "ab") as log:
            process = subprocess.Popen([*DIE_WITH_PARENT, *words], stdin=subprocess.DEVNULL,
                                       stdout=log, stderr=log)
        return Worker(number, process, history)

    @contextlib.contextmanager
    def borrowed(self, dice):
        """One of them, that no other fault has at the moment."""
        while True:
            worker = dice.choice(self.alive)
            with worker.mutex:
                if worker in self.alive:
                    yield worker
                    return

    def replace(self, worker):
        """Another one takes the place of one that was killed."""
        place = self.alive.index(worker)
        self.alive[place] = self._start()

    def end(self):
        for worker in self.alive:
            if worker.process.poll() is not None:
                self.troubles.append(f"worker {worker.number} ended by itself with "
                                     f"{worker.process.returncode}, see workers.log")
            worker.terminate()
        for worker in self.alive:
            try:
                status = worker.process.wait(END_PATIENCE_S)
                if status != 0:
                    self.troubles.append(f"worker {worker.number} ended with {status}")
            except subprocess.TimeoutExpired:
                self.troubles.append(f"worker {worker.number} hangs")
                worker.process.kill()
                worker.process.wait()

    def kill(self):
        """Whatever is left of them, when a run breaks off."""
        for worker in self.alive:
            worker.process.kill()
            worker.process.wait()
