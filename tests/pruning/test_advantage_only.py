from __future__ import annotations

from hypothesis import given

from fastrl_cli.config.pruning import AdvantageOnlyConfig, MDAPConfig
from fastrl_cli.pruning import Group, Reason, select
from tests.pruning.strategies import groups, make_group, property_test

ONE_EACH = AdvantageOnlyConfig(fill=None)


@property_test
@given(groups())
def test_keeps_the_first_rollout_of_each_advantage(group: Group) -> None:
    rewards = group.rewards.tolist()
    assert select([group], ONE_EACH).kept[0].tolist() == sorted(rewards.index(reward) for reward in set(rewards))


def test_differs_from_mdap_at_tau_one_where_rollouts_share_no_ngram() -> None:
    group = make_group([[1], [2]], [1, 1])
    assert select([group], ONE_EACH).kept[0].tolist() == [0]
    assert select([group], MDAPConfig(tau=1, fill=None)).kept[0].tolist() == [0, 1]


def test_drops_degenerate_groups_where_asked() -> None:
    group = make_group([[1], [2]], [1, 1])
    selection = select([group], AdvantageOnlyConfig(fill=None, degenerate="drop"))
    assert selection.reasons == [[Reason.DROPPED, Reason.DROPPED]]
