"""Scenario: one client renews ten thousand locks with a lease of ten seconds.

What is measured is the processor time of the client while it does nothing else, from when each was
renewed once, and whether a lock was lost.
"""

import subprocess

import driver
import ways
from report import Bar, Sheet

NAME = "renewal"
LOCKS = 10_000
LEASE_MS = 10_000


def run(quick, progress):
    run_ms = 4_000 if quick else 30_000
    program = driver.build("renewal", uses_libdlock=True)
    server = ways.DLOCK.server(wrapper=driver.pinned_to(0)).start()
    try:
        progress(f"{LOCKS:,} locks, {run_ms // 1000} s")
        output = subprocess.run(
            [*driver.pinned_to(-1), program, str(server.port), str(LOCKS), str(LEASE_MS),
             str(run_ms)], check=True, stdout=subprocess.PIPE, text=True, timeout=300).stdout
    finally:
        server.destroy()
    renewed, lost, used_us = map(int, output.split())
    share = used_us / 1000 / run_ms
    sheet = Sheet(f"{LOCKS:,} locks with a lease of {LEASE_MS // 1000} s, renewed by one client",
                  f"one run of {run_ms // 1000} s; processor time of the client as a share of one "
                  "core", {"renewed": ",.0f", "lost": ".0f", "share": ".3f"})
    sheet.add("libdlock", [renewed, lost, share])
    sheet.promise("lost", lost, Bar("<=", 0))
    sheet.promise("processor time of the client, share of a core", share, Bar("<=", 0.02))
    return [sheet]
