"""A program that loads the library with dlopen(3) may close it again at any time."""

import subprocess
import sys

from support.tool import BUILD

# The thread ends after dlclose(3), when OpenSSL frees what it has kept for the thread.
PROGRAM = """
import ctypes, _ctypes, sys, threading
library = ctypes.CDLL(sys.argv[1])
is_used, is_closed = threading.Event(), threading.Event()

def use():
    client = ctypes.c_void_p()
    assert library.dlock_client_new_url(ctypes.byref(client), b"rediss://127.0.0.1:1") == 0
    library.dlock_client_ping(client, ctypes.c_int64(10_000))
    library.dlock_client_free(client)
    is_used.set()
    is_closed.wait()

thread = threading.Thread(target=use)
thread.start()
is_used.wait()
_ctypes.dlclose(library._handle)
is_closed.set()
thread.join()
assert any("libdlock" in line for line in open("/proc/self/maps")), "unloaded"
"""


def test_code_that_threads_may_still_need_stays_loaded_after_dlclose():
    done = subprocess.run([sys.executable, "-c", PROGRAM, BUILD / "libdlock.so"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout}"
