from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from fastrl_cli.data.sample import Draw
from fastrl_cli.sampling import group_seed

IDENTITY = st.tuples(st.integers(0, 2**63), st.integers(0, 10**6), st.builds(Draw, st.text(), st.integers(0, 10**6)))


@given(IDENTITY)
def test_seeds_are_in_range_and_repeatable(identity: tuple[int, int, Draw]) -> None:
    seed = group_seed(*identity)
    assert 0 <= seed < 2**31
    assert seed == group_seed(*identity)


def test_every_part_of_the_identity_counts() -> None:
    base = group_seed(1, 2, Draw("a:1", 3))
    others = [
        group_seed(9, 2, Draw("a:1", 3)),
        group_seed(1, 9, Draw("a:1", 3)),
        group_seed(1, 2, Draw("a:9", 3)),
        group_seed(1, 2, Draw("a:1", 9)),
    ]
    assert len({base, *others}) == 5


def test_neighbouring_parts_do_not_run_together() -> None:
    assert group_seed(1, 23, Draw("a", 4)) != group_seed(12, 3, Draw("a", 4))
    assert group_seed(1, 2, Draw("a", 34)) != group_seed(1, 23, Draw("a", 4))


def test_seeds_of_a_step_hardly_collide() -> None:
    seeds = {group_seed(0, 1, Draw(f"toy:{q}", q)) + k for q in range(256) for k in range(16)}
    assert len(seeds) > 4080
    assert max(seeds) > 2**30


def test_another_process_gives_the_same_seed() -> None:
    code = "from fastrl_cli.sampling import group_seed as s; from fastrl_cli.data.sample import Draw as D;"
    code += "print(s(1, 2, D('a:1', 3)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == group_seed(1, 2, Draw("a:1", 3))
