"""The speed table: ratios of medians from one run, both sides in turn, one thread, CPU time.

    .venv/bin/python tools/bench.py [--quick] [--out FILE]

Where .venv-oracles exists (`make oracles`), transformers runs beside it, in a child process, with the same
weights.  CPU time, not the clock on the wall: waiting for a busy machine does not count.
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
    os.environ[variable] = "1"  # read when NumPy is imported

import argparse
import json
import math
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

import numpy as np
import record_oracles as oracles

from mgpt.cache import KVCache
from mgpt.cli import table
from mgpt.config import GPTConfig
from mgpt.generate import generate_cached
from mgpt.hf import params_from_tensors
from mgpt.model import forward
from mgpt.sampling import greedy

PROMPT = 64  # positions before what is timed, everywhere
LONG = {"max_position_embeddings": 2048}
SHAPES = {
    "tiny": oracles.llama(2, 4, 2, 64, 128, 40, **LONG),
    "small": oracles.llama(4, 8, 4, 256, 688, 1000, **LONG),
    "gpt2s": oracles.llama(12, 12, 12, 768, 2048, 50257, **LONG, tie_word_embeddings=True),
}
# measure -> shape -> (target, True when larger is better), or None: a figure for information
TARGETS = {
    "full prefix ÷ cached, 64 tokens": {"tiny": (5, True), "small": (5, True), "gpt2s": (4, True)},
    "full prefix ÷ cached, 256 tokens": {"tiny": (20, True), "small": (15, True)},
    "full prefix ÷ cached, 1024 tokens": {"tiny": (250, True), "small": (100, True)},
    "growth exponent of cached time, 64 → 1024": {"tiny": (1.15, False), "small": (1.15, False)},
    "transformers with cache ÷ cached": {"tiny": (8, True), "small": (2.8, True), "gpt2s": (1.25, True)},
    "transformers without cache ÷ cached": {"tiny": (11, True), "small": (7.5, True), "gpt2s": (3.3, True)},
    "decode step ÷ bandwidth floor": {"tiny": None, "small": (1.2, False), "gpt2s": (1.2, False)},
    "start + 64 tokens, CPU seconds": {"tiny": (0.2, False)},
    "8 alone ÷ batch of 8, context 64": {"tiny": (3.5, True), "small": (3.5, True)},
}
ONE_PROCESS = """
import numpy as np
from mgpt.config import GPTConfig
from mgpt.generate import generate_cached
from mgpt.model import init_params
config = GPTConfig(40, 2048, 2, 4, 2, 16, 64, 128, tie_embeddings=False)
generate_cached(init_params(config, np.random.default_rng(0)), config, [1] * 64, 64).tokens
"""


def cpu_time(work):
    start = time.process_time()
    work()
    return time.process_time() - start


def in_turn(repeats, *sides):
    """The median of each side's results, the sides taking turns; one round before them is not counted."""
    rounds = [[side() for side in sides] for _ in range(repeats + 1)]
    return [statistics.median(results) for results in zip(*rounds[1:])]


def weights(name):
    """(settings, config, tensors under their public names) of a shape."""
    settings = SHAPES[name]
    config = GPTConfig.from_hf(settings)
    return settings, config, oracles.draw_tensors(config, 1)


def full_prefix_time(one_pass, config, n_new, n_timed=32):
    """Seconds of n_new passes over PROMPT, PROMPT + 1, ... ids, from n_timed of them, evenly spread."""
    step = max(1, n_new // n_timed)
    lengths = range(PROMPT + step // 2, PROMPT + n_new, step)
    ids = oracles.draw_ids(config, 1, PROMPT + n_new)
    return step * sum(cpu_time(lambda n=n: one_pass(ids[:n])) for n in lengths)


class Shape:
    """mgpt's side of one shape: every method returns CPU seconds."""

    def __init__(self, name):
        _, self.config, tensors = weights(name)
        self.params = params_from_tensors(tensors, self.config)
        self.prompt = oracles.draw_ids(self.config, 1, PROMPT)
        head = self.params.get("head", self.params["embed"].T)
        self.matrices = [x for layer in self.params["layers"] for x in layer.values() if x.ndim == 2] + [head]
        self.rows = [np.full(len(x), 0.5) for x in self.matrices]

    def cached(self, n_new=64):
        return cpu_time(lambda: generate_cached(self.params, self.config, self.prompt, n_new).tokens)

    def full_prefix(self, n_new, n_timed=32):
        def one_pass(ids):
            return greedy(forward(self.params, self.config, np.array(ids), last_only=True))
        return full_prefix_time(one_pass, self.config, n_new, n_timed)

    def floor(self):
        """One product of a row with every weight matrix: their bytes ÷ the bandwidth of NumPy's gemv."""
        return cpu_time(lambda: [row @ x for row, x in zip(self.rows, self.matrices)])

    def filled_cache(self, batch=None):
        """A cache that holds PROMPT positions, of one sequence or of a batch."""
        cache = KVCache(self.config, PROMPT + 1, batch=batch)
        ids = np.ones(PROMPT if batch is None else (batch, PROMPT), int)
        forward(self.params, self.config, ids, cache, last_only=True)
        return cache

    def decode_step(self, cache, ids):
        """One decode pass behind PROMPT positions; the cache is put back."""
        seconds = cpu_time(lambda: forward(self.params, self.config, ids, cache, last_only=True))
        cache.truncate(PROMPT)
        return seconds


def child_cpu_time(code):
    """User and system seconds of a fresh Python that runs `code`."""
    before = os.times()
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


class Transformers:
    """transformers' Llama in a child process, or nothing where it is not installed."""

    def __init__(self):
        self.process = self.versions = None
        for python in ("bin/python", "Scripts/python.exe"):
            if (ROOT / ".venv-oracles" / python).exists():
                self.process = subprocess.Popen(
                    [str(ROOT / ".venv-oracles" / python), __file__, "--transformers"], text=True,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
                self.versions = self._answer()

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:  # it ended: the packages are not there, or too little memory
            self.process = None
            return None
        return json.loads(line)

    def seconds(self, name, cache, n_timed=32):
        if self.process is None:
            return math.nan
        self.process.stdin.write(json.dumps([name, cache, n_timed]) + "\n")
        self.process.stdin.flush()
        answer = self._answer()
        return math.nan if answer is None else answer

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()


def serve_transformers():
    """The child: answers [shape, with cache, passes to time] with CPU seconds for 64 tokens, a line each."""
    import torch
    import transformers

    torch.set_num_threads(1)
    versions = {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]}
    print(json.dumps(versions), flush=True)
    loaded = None
    for line in sys.stdin:
        name, cache, n_timed = json.loads(line)
        if loaded != name:
            loaded, (settings, config, tensors) = name, weights(name)
            model = oracles.torch_llama(settings, tensors, exact=False)  # as it comes, in float64
            prompt = oracles.draw_ids(config, 1, PROMPT)

        def one_pass(ids):
            with torch.inference_mode():
                return model(torch.tensor([ids]), use_cache=False, logits_to_keep=1).logits.argmax().item()

        def generate():
            ids = torch.tensor([prompt])
            model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=64, do_sample=False,
                           pad_token_id=0)

        if cache:
            seconds = cpu_time(generate)
        else:
            seconds = full_prefix_time(one_pass, config, 64, n_timed)
        print(json.dumps(seconds), flush=True)


def measure(quick, transformers, say):
    """measure -> shape -> value, NaN where it could not be taken; one full run over the shapes."""
    values = {name: {} for name in TARGETS}
    repeats = 3 if quick else 9
    for name in ("tiny", "small") if quick else SHAPES:
        say(f"{name}: weights")
        shape = Shape(name)
        large = name == "gpt2s"
        lengths = (64,) if large else (64, 256) if quick else (64, 256, 1024)
        took = {}
        for n_new in lengths:
            say(f"{name}: full prefix and cached, {n_new} tokens")
            n_timed, rounds = (8, 3) if large else (32, repeats if n_new == 64 else 3)
            full, took[n_new] = in_turn(rounds, lambda n=n_new, k=n_timed: shape.full_prefix(n, k),
                                        lambda n=n_new: shape.cached(n))
            values[f"full prefix ÷ cached, {n_new} tokens"][name] = full / took[n_new]
        if not quick and not large:
            growth = math.log(took[1024] / took[64], 1024 / 64)
            values["growth exponent of cached time, 64 → 1024"][name] = growth
        say(f"{name}: decode step")
        cache, one = shape.filled_cache(), np.ones(1, int)
        floor, step = in_turn(50 if large else 200, shape.floor, lambda: shape.decode_step(cache, one))
        values["decode step ÷ bandwidth floor"][name] = step / floor
        if not large:
            say(f"{name}: batch of 8")
            caches, eight = shape.filled_cache(8), np.ones((8, 1), int)
            alone, batch = in_turn(200, lambda: shape.decode_step(cache, one),
                                   lambda: shape.decode_step(caches, eight))
            values["8 alone ÷ batch of 8, context 64"][name] = 8 * alone / batch
        say(f"{name}: transformers")
        ours, with_cache, without = in_turn(
            3 if large else repeats, shape.cached, lambda: transformers.seconds(name, True),
            lambda: transformers.seconds(name, False, 8))
        values["transformers with cache ÷ cached"][name] = with_cache / ours
        values["transformers without cache ÷ cached"][name] = without / ours
    say("tiny: a fresh process")
    values["start + 64 tokens, CPU seconds"]["tiny"], = in_turn(repeats, lambda: child_cpu_time(ONE_PROCESS))
    return values


def lines_of(values):
    """One dict a target: measure, shape, value (None where not measured), target, result."""
    lines = []
    for measured, targets in TARGETS.items():
        for shape, wanted in targets.items():
            value = values.get(measured, {}).get(shape, math.nan)
            target, larger = wanted or (None, None)
            if math.isnan(value) or target is None:
                result = "not measured" if math.isnan(value) else "for information"
            else:
                result = "met" if (value >= target if larger else value <= target) else "missed"
            lines.append({
                "measure": measured, "shape": shape, "value": None if math.isnan(value) else round(value, 3),
                "target": None if target is None else f"{'≥' if larger else '≤'} {target}", "result": result,
            })
    return lines


def machine(versions):
    """What the figures depend on: no host name, no path."""
    try:
        cpuinfo = Path("/proc/cpuinfo").read_text()
        names = (line for line in cpuinfo.splitlines() if line.startswith("model name"))
        model = next(names).split(":", 1)[1].strip()
    except (OSError, StopIteration):
        model = platform.processor() or platform.machine()
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {"cpu": model, "cores": os.cpu_count(), "system": platform.system(), "threads used": 1,
            "python": platform.python_version(), "numpy": np.__version__,
            "blas": f"{blas.get('name')} {blas.get('version')}", **(versions or {})}


def main():
    parser = argparse.ArgumentParser(description="Print the speed table with its targets.")
    parser.add_argument("--quick", action="store_true", help="tiny and small, short texts: under a minute")
    parser.add_argument("--out", help="the JSON file to write (tools/bench_result.json; none with --quick)")
    parser.add_argument("--transformers", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.transformers:
        return serve_transformers()

    def say(text):
        if sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    transformers = Transformers()
    try:
        lines = lines_of(measure(args.quick, transformers, say))
    finally:
        transformers.close()
    say("")
    described = machine(transformers.versions)
    print(", ".join(f"{key} {value}" for key, value in described.items()))
    if transformers.versions is None:
        print("transformers is not installed (make oracles): its lines are not measured")
    rows = [(x["measure"], x["shape"], x["value"], x["target"], x["result"]) for x in lines]
    print(table(rows, ("ratio of medians", "shape", "value", "target", "result")))
    out = args.out or (None if args.quick else ROOT / "tools" / "bench_result.json")
    if out:
        result = {"machine": described, "quick": args.quick, "lines": lines}
        text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
        Path(out).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
