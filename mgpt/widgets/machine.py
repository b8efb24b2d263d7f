"""Machines for a roofline: presets from data sheets, and your own, measured."""

import os
import statistics
import subprocess
import sys
import time

import numpy as np

from mgpt.machine import Machine

ONE_THREAD = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS",
                                     "VECLIB_MAXIMUM_THREADS")}


# Data sheets: dense matrix products in BF16, without sparsity.  The core: as measured for this course, float64.
PRESETS = {
    "core": Machine(bandwidth=22.5e9, peak=53e9),
    "a100": Machine(bandwidth=2039e9, peak=312e12),
    "h100": Machine(bandwidth=3350e9, peak=989e12),
}


def measure():
    """This machine with one BLAS thread and float64, in about a second.

    A child process measures: a running NumPy keeps its number of threads.
    """
    code = "from mgpt.widgets.machine import probe; print(*probe())"
    child = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | ONE_THREAD,
        capture_output=True, text=True, check=True)
    return Machine(*map(float, child.stdout.split()))


def probe(rounds=9):
    """Bytes a second of a long gemv, operations a second of a gemm; medians."""
    weights = np.ones((4096, 8192))  # 256 MiB; zeros might share one page
    row, square = np.ones(4096), np.ones((768, 768))
    reading = median_seconds(lambda: row @ weights, rounds)
    multiplying = median_seconds(lambda: square @ square, rounds)
    return weights.nbytes / reading, 2 * 768**3 / multiplying


def median_seconds(work, rounds):
    """The median of `rounds` runs, after one that is not counted."""
    work()
    times = []
    for _round in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


if __name__ == "__main__":
    found = measure()
    print(f"one thread, float64: {found.bandwidth / 1e9:.1f} GB/s, {found.peak / 1e9:.1f} GFLOP/s")
