"""Memory and time of the language-model head over a large vocabulary: in chunks with recomputation, as training does
it, against all logits at once. Each takes its turns in a process of its own.

    python -m fastrl_cli.benchmark.logits
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

import torch
from torch import nn

from fastrl_cli.benchmark.statistics import median, speed_up
from fastrl_cli.benchmark.worker import peak_rss_bytes
from fastrl_cli.training.module import LOGITS_PER_CHUNK, head_logprobs

TOKENS, WIDTH, VOCABULARY = 2048, 512, 151_936


def turn(chunk: int, hidden: torch.Tensor, head: nn.Linear, targets: torch.Tensor) -> float:
    """Seconds of one forward and backward pass with at most `chunk` logits at once."""
    start = time.perf_counter()
    states = hidden.detach().requires_grad_()
    logprobs, _ = head_logprobs(states, targets, head, 1.0, torch.zeros(0, dtype=torch.long), chunk)
    logprobs.sum().backward()
    head.zero_grad()
    return time.perf_counter() - start


def work(chunk: int) -> None:
    """A process of one variant: a line of JSON for each line read."""
    torch.manual_seed(0)
    hidden, targets = torch.randn(TOKENS, WIDTH), torch.randint(VOCABULARY, (TOKENS,))
    head = nn.Linear(WIDTH, VOCABULARY, bias=False)
    head.weight.grad = torch.zeros_like(head.weight)
    before = peak_rss_bytes()
    for _ in sys.stdin:
        seconds = turn(chunk, hidden, head, targets)
        print(json.dumps({"seconds": seconds, "bytes": peak_rss_bytes() - before}), flush=True)


def compare(repeats: int) -> dict[str, Any]:
    """Both variants in turns."""
    variants = {"chunked": LOGITS_PER_CHUNK, "all at once": TOKENS * VOCABULARY}
    processes = {
        name: subprocess.Popen(
            [sys.executable, "-m", "fastrl_cli.benchmark.logits", "--work", str(chunk)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name, chunk in variants.items()
    }
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    peak: dict[str, int] = {}
    for number in range(repeats + 1):
        for name, process in processes.items():
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            peak[name] = answer["bytes"]
            if number > 0:
                seconds[name].append(answer["seconds"])
    for process in processes.values():
        process.communicate()
    return {
        "tokens": TOKENS,
        "width": WIDTH,
        "vocabulary": VOCABULARY,
        "seconds": {name: str(median(values)) for name, values in seconds.items()},
        "peak_mib": {name: round(size / 2**20) for name, size in peak.items()},
        "memory_share": round(peak["chunked"] / peak["all at once"], 3),
        "chunked_is_faster_by": str(speed_up(seconds["all at once"], seconds["chunked"])),
    }


def main() -> None:
    """Print the comparison as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--work", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work)
    else:
        print(json.dumps(compare(options.repeats), indent=2))


if __name__ == "__main__":
    main()
