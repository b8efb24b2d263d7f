"""A machine as two numbers: the bytes it reads a second and the operations it does; presets, and your own, measured."""

import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

import numpy as np

ONE_THREAD = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS",
                                     "VECLIB_MAXIMUM_THREADS")}


@dataclass(frozen=True)
class Machine:
    """bandwidth in bytes a second, peak in operations a second."""

    bandwidth: float
    peak: float

    @property
    def ridge(self):
        """Operations a byte from which on the peak is the limit."""
        return self.peak / self.bandwidth

    def attainable(self, intensity):
        """Operations a second at most, at an arithmetic intensity."""
        return min(self.peak, intensity * self.bandwidth)

    def side(self, intensity):
        """Which of the two is the limit."""
        return "compute" if intensity >= self.ridge else "bandwidth"

    def least_seconds(self, cost):
        """Time of a pass at least: of its operations, or of its bytes."""
        nbytes = cost.bytes_weights + cost.bytes_kv
        return max(cost.flops / self.peak, nbytes / self.bandwidth)


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
