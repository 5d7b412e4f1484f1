"""Adaptive rollout sampling: METHOD c.2 items 13 to 18."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastrl_cli.config.pruning import ARSConfig, FixedRolloutsConfig
from fastrl_cli.errors import UsageError
from fastrl_cli.sampling import ARS, FixedRollouts, RolloutCount, rollout_count
from fastrl_cli.sampling.ars import growth, target_rollouts

Counts = Callable[[int, int], list[int]]

STEPS, EPOCHS = 200, 25
SECOND_STEPS = range(1, STEPS, STEPS // EPOCHS)


def ars(n0: int = 8, steps: int = STEPS, epochs: Fraction | int | None = EPOCHS, **config: object) -> ARS:
    return ARS(ARSConfig(**config), n0=n0, total_steps=steps, total_epochs=epochs)


def run(controller: RolloutCount, counts: Counts, steps: int, first: int = 1) -> list[int]:
    """n of each step, where the counts kept follow from n and the step."""
    trace = []
    for step in range(first, steps + 1):
        trace.append(controller.next_n())
        controller.observe(step, counts(trace[-1], step))
    return trace


def share_of_n(n: int, step: int) -> list[int]:
    """100 questions: mean kept 0.38 n, largest n."""
    rest = [37 * n // 99] * 99
    rest[: 37 * n - sum(rest)] = [rest[0] + 1] * (37 * n - sum(rest))
    return [n, *rest]


def constant(n: int, step: int) -> list[int]:
    """Mean 3, largest 8."""
    return [8, 1, 1, 2]


def test_c2_13_golden_trace_of_constant_counts() -> None:
    controller = ars()
    trace = run(controller, constant, STEPS)
    assert [trace[i] for i in SECOND_STEPS] == [8] * 15 + [7] * 5 + [6] * 5
    state = controller.state_dict()
    assert state["reference"] == 5.5
    assert state["current"] == pytest.approx(3.175, abs=1e-12)


def test_c2_13_golden_trace_of_the_closed_loop() -> None:
    controller = ars()
    trace = run(controller, share_of_n, STEPS)
    assert [trace[i] for i in SECOND_STEPS] == [8] * 15 + [7, 7, 7, 6, 6, 5, 5, 5, 5, 4]
    assert controller.state_dict()["reference"] == pytest.approx(5.52, abs=1e-12)
    assert sum(trace) / STEPS == pytest.approx(7.10, abs=0.005)


@pytest.mark.parametrize("max_stat", ["step_mean", "epoch"])
def test_c2_14_never_shrinks_where_every_rollout_is_kept(max_stat: str) -> None:
    assert set(run(ars(max_stat=max_stat), lambda n, step: [n] * 5, STEPS)) == {8}


def test_c2_14_first_step_of_an_epoch_still_uses_the_previous_n() -> None:
    trace = run(ars(), constant, STEPS)
    changes = [i + 1 for i, (before, after) in enumerate(pairwise(trace)) if before != after]
    assert set(trace[:8]) == {8}
    assert changes
    assert all(i % 8 == 1 for i in changes), "changes show at the second step of an epoch"


def test_c2_14_the_first_step_of_an_epoch_counts_in_the_window_it_closes() -> None:
    controller = ars(n0=8, steps=4, epochs=2)
    for step, kept in [(1, 8), (2, 8), (3, 2)]:
        controller.observe(step, [kept])
    state = controller.state_dict()
    assert state["reference"] == 6.0, "mean and maxima of steps 1 to 3"
    assert state["means"] == []


@settings(deadline=None, max_examples=100)
@given(
    st.integers(2, 16),
    st.integers(1, 60),
    st.one_of(st.none(), st.integers(1, 70), st.fractions(Fraction(1, 3), 20, max_denominator=9)),
    st.sampled_from(["step_mean", "epoch"]),
    st.data(),
)
def test_c2_15_n_stays_within_its_bounds(
    n0: int, steps: int, epochs: Fraction | int | None, max_stat: str, data: st.DataObject
) -> None:
    controller = ars(n0=n0, steps=steps, epochs=epochs, max_stat=max_stat, window_steps=3)

    def counts(n: int, step: int) -> list[int]:
        assert 2 <= n <= n0
        return data.draw(st.lists(st.integers(0, n), max_size=4))

    run(controller, counts, steps)


@pytest.mark.parametrize(("target", "n"), [(6.5, 6), (7.5, 8), (7.51, 8), (6.49, 6), (1.0, 2), (-3.0, 2), (9.5, 8)])
def test_c2_15_halves_round_to_even(target: float, n: int) -> None:
    controller = ars()
    controller.load_state_dict(controller.state_dict() | {"reference": 20.0, "current": 20.0 - (8 - target)})
    assert controller.next_n() == n


def test_c2_15_steps_need_not_divide_into_epochs() -> None:
    controller = ars(steps=10, epochs=3)
    closed = []
    for step in range(1, 11):
        controller.observe(step, [4])
        if controller.state_dict()["means"] == []:
            closed.append(step)
    assert closed == [5, 8], "first s with (s-1)*3 // 10 = 1, 2"


def test_c2_15_a_fraction_of_epochs_keeps_the_windows_on_the_data() -> None:
    controller = ars(steps=20, epochs=Fraction(20, 8))
    closed = []
    for step in range(1, 21):
        controller.observe(step, [4])
        if controller.state_dict()["means"] == []:
            closed.append(step)
    assert closed == [9, 17]


def uneven(n: int, step: int) -> list[int]:
    """Mean and largest count change from step to step."""
    return [n - step % 3, 1, 1 + step % 2]


@pytest.mark.parametrize("stop", [1, 8, 9, 100, 121, 125, 199])
@pytest.mark.parametrize("max_stat", ["step_mean", "epoch"])
def test_c2_16_resume_gives_the_trace_of_an_uninterrupted_run(stop: int, max_stat: str) -> None:
    uninterrupted = ars(max_stat=max_stat)
    whole = run(uninterrupted, uneven, STEPS)
    before = ars(max_stat=max_stat)
    run(before, uneven, stop)
    after = ars(max_stat=max_stat, steps=STEPS, epochs=EPOCHS)
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    assert run(after, uneven, STEPS, first=stop + 1) == whole[stop:]
    assert after.state_dict() == uninterrupted.state_dict()


def test_c2_16_the_length_of_the_run_is_the_one_it_began_with() -> None:
    whole = run(ars(), constant, STEPS)
    before = ars()
    run(before, constant, 50)
    after = ars(steps=999, epochs=3)
    after.load_state_dict(before.state_dict())
    assert run(after, constant, STEPS, first=51) == whole[50:]


def test_steps_beyond_the_length_of_the_run_count_as_its_end() -> None:
    controller = ars(steps=10, epochs=5)
    run(controller, constant, 30)
    assert controller.state_dict()["current"] == 3.0, "the mean alone"


def test_c2_17_without_pruning_n_stays_and_a_warning_says_so() -> None:
    controller = rollout_count(ARSConfig(), n0=8, total_steps=STEPS, total_epochs=EPOCHS, pruning=False)
    assert controller.warning is not None
    assert "adaptive.type = ars has no effect without pruning" in controller.warning
    assert set(run(controller, constant, STEPS)) == {8}
    assert ars().warning is None


def test_c2_17_fewer_rollouts_than_the_floor_are_refused() -> None:
    with pytest.raises(UsageError, match=r"adaptive.n_min = 4 is above batch.rollouts = 3"):
        ars(n0=3, n_min=4)


def test_c2_17_nothing_kept_leaves_the_floor() -> None:
    assert run(ars(), lambda n, step: [n, *[0] * 99], STEPS)[-1] >= 2
    assert run(ars(n0=3), lambda n, step: [3, *[0] * 99], STEPS)[-1] == 2


def closed_loop(n: float, alpha: float, rho: float, n0: float = 8) -> float:
    """One window where the mean kept is rho n and the largest n."""
    return target_rollouts(n0, n0 * (1 + rho) / 2, growth(alpha, rho * n, n))


@pytest.mark.parametrize("alpha", [0.5, 0.6, 0.8, 1.0])
@pytest.mark.parametrize("rho", [0.1, 0.38, 0.9])
def test_c2_18_fixed_point(alpha: float, rho: float) -> None:
    n = 8.0
    for _ in range(2000):
        n = closed_loop(n, alpha, rho)
    assert n == pytest.approx(8 / (2 * alpha), abs=1e-9), "independent of rho"
    n = 8
    for _ in range(50):
        n = round(closed_loop(n, alpha, rho))
    assert abs(n - 8 / (2 * alpha)) <= 0.5 / (alpha * (1 - rho)) + 1e-9


def test_c2_18_rounding_stops_before_the_fixed_point() -> None:
    assert round(closed_loop(8, 0.6, 0.38)) == 8


def test_max_stat_is_the_mean_of_the_steps_maxima_or_the_maximum_of_the_epoch() -> None:
    references = {}
    for max_stat in ("step_mean", "epoch"):
        controller = ars(steps=4, epochs=2, max_stat=max_stat)
        for step, counts in [(1, [8, 2]), (2, [4, 2]), (3, [3, 2])]:
            controller.observe(step, counts)
        references[max_stat] = controller.state_dict()["reference"]
    mean = (5 + 3 + 2.5) / 3
    assert references == {"step_mean": (mean + 5) / 2, "epoch": (mean + 8) / 2}


def test_windows_are_counted_in_steps_without_epochs() -> None:
    controller = ars(steps=20, epochs=None, window_steps=5)
    closed = []
    for step in range(1, 21):
        controller.observe(step, [4])
        if controller.state_dict()["means"] == []:
            closed.append(step)
    assert closed == [6, 11, 16]


def test_a_window_without_groups_changes_nothing() -> None:
    controller = ars(steps=20, epochs=10)
    for step in range(1, 21):
        controller.observe(step, [])
    assert controller.next_n() == 8
    assert controller.state_dict()["reference"] is None


def test_fixed_rollouts_never_change() -> None:
    controller = rollout_count(FixedRolloutsConfig(), n0=5, total_steps=9, total_epochs=3, pruning=True)
    assert isinstance(controller, FixedRollouts)
    assert set(run(controller, constant, 9)) == {5}
    controller.load_state_dict(controller.state_dict())
    assert controller.warning is None
