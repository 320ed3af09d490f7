#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an all_reduce over four machines sends, counted by their interfaces: on each link, each way,
at most 1.1 times 2 (n-1)/n of the bytes reduced. And all collectives of per-rank buffers between
them, as COLLECTIVE does them and checks the values. usage: links.py TESSERA CHILD COLLECTIVE

Exits with 77 (skipped) where network namespaces can't be made."""
import os
import re
import sys
import tempfile

from network import Network

TESSERA, CHILD, COLLECTIVE = (os.path.abspath(p) for p in sys.argv[1:4])
HOSTS, SIZE, CALLS = 4, 25 << 20, 3


def measure(net, way):
    """Bytes sent and received by each host, and what the hosts print."""
    before = [net.sent_and_received(i) for i in range(HOSTS)]
    texts = net.run(1, [CHILD, way, str(SIZE), str(CALLS)])
    after = [net.sent_and_received(i) for i in range(HOSTS)]
    return [[b - a for a, b in zip(*pair)] for pair in zip(before, after)], "".join(texts)


def check(net, way):
    least = 2 * (HOSTS - 1) * SIZE // HOSTS
    counts, text = measure(net, way)
    says = [int(b) for b in re.findall(r"rank \d reads (\d+) bytes", text)]
    assert way == "buffer" or says == [least] * HOSTS, (says, least)
    for i, count in enumerate(counts):
        print(f"{way}: host {i} sent and received {count} in {CALLS} calls: "
              + ", ".join(f"{c / CALLS / least:.3f}" for c in count) + " times 2 (n-1)/n T",
              flush=True)
    assert all(least * CALLS <= c <= 1.1 * least * CALLS for pair in counts for c in pair)


def main():
    with tempfile.TemporaryDirectory() as folder:
        try:
            with Network(1, TESSERA, folder):
                pass
        except OSError as e:
            print(f"skipped: {e}")
            return 77
        with Network(HOSTS, TESSERA, folder) as net:
            check(net, "buffer")
            check(net, "plan")
            net.run(1, [COLLECTIVE])
    return 0


if __name__ == "__main__":
    sys.exit(main())
