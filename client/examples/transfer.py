#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Move money between two accounts, each of which has a lock. See transfer.c, which does the same.

    python3 transfer.py redis://127.0.0.1:6379 bank alice bob 5 [TIMES]
"""

import sys

import dlock


def transfer(client, bank, source, target, amount):
    balances = [f"{{{bank}}}balance:{owner}" for owner in (source, target)]
    with client.lock(f"{{{bank}}}lock:{source}", f"{{{bank}}}lock:{target}", wait=30) as lock:
        have, get = (int(lock.guarded("GET", balance) or 0) for balance in balances)
        lock.guarded("MSET", balances[0], have - amount, balances[1], get + amount)


def main(url, bank, source, target, amount, times=1):
    with dlock.Client(url) as client:
        for _ in range(int(times)):
            transfer(client, bank, source, target, int(amount))
    print(f"{times} transfers")


if __name__ == "__main__":
    main(*sys.argv[1:])
