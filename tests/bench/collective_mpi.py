#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""all_reduce of two process ranks beside Open MPI's, in turns, with medians and ratios.

usage: collective_mpi.py TESSERA BENCH_COLLECTIVE [--rounds N] [--seconds S] [BYTES...]

Without mpicc and mpirun there is nothing to compare with: then it says so and shows our own.
"""
import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

USUAL = [8, 1024, 16384, 65536, 262144, 1048576, 16777216]


def lines(command, into):
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    for line in done.stdout.splitlines():
        fields = line.split()
        if len(fields) == 3 and fields[0].isdigit():
            into.setdefault((int(fields[0]), fields[1]), []).append(float(fields[2]))


def main():
    p = argparse.ArgumentParser()
    p.add_argument('tessera')
    p.add_argument('bench')
    p.add_argument('--rounds', type=int, default=7)
    p.add_argument('--seconds', type=float, default=0.1)
    p.add_argument('--ranks', type=int, default=2)
    p.add_argument('sizes', nargs='*', type=int)
    a = p.parse_intermixed_args()
    sizes = [str(s) for s in a.sizes or USUAL]
    tail = [str(a.seconds)] + sizes
    ours = [a.tessera, 'launch', '-n', str(a.ranks), a.bench] + tail
    times = {}
    with tempfile.TemporaryDirectory() as folder:
        theirs = None
        if shutil.which('mpicc') and shutil.which('mpirun'):
            program = os.path.join(folder, 'collective_mpi')
            source = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'collective_mpi.c')
            subprocess.run(['mpicc', '-O2', '-o', program, source], check=True)
            theirs = ['mpirun', '--allow-run-as-root', '--oversubscribe', '-n', str(a.ranks),
                      program] + tail
        else:
            print('no mpicc or no mpirun: nothing to compare with', file=sys.stderr)
        for _ in range(a.rounds):
            lines(ours, times)
            if theirs:
                lines(theirs, times)
    print('%10s %12s %12s %12s %14s %14s' % ('bytes', 'arena/us', 'heap/us', 'mpi/us',
                                             'mpi : arena', 'mpi : heap'))
    for size in map(int, sizes):
        arena, heap = times[size, 'arena'], times[size, 'heap']
        row = '%10d %12.2f %12.2f' % (size, statistics.median(arena), statistics.median(heap))
        if theirs:
            mpi = times[size, 'mpi']
            ratio = lambda mine: statistics.median(m / t for m, t in zip(mpi, mine))
            row += ' %12.2f %14.2f %14.2f' % (statistics.median(mpi), ratio(arena), ratio(heap))
        print(row)


main()
