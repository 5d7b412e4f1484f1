"""One rollout for each distinct advantage, whatever the responses say (the paper's Table 5).

A selector of its own and not MDAP at tau = 1: that one keeps two rollouts of one advantage that share no n-gram.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastrl_cli.config.pruning import AdvantageOnlyConfig
from fastrl_cli.pruning.advantage_groups import advantage_groups
from fastrl_cli.pruning.groups import Group
from fastrl_cli.pruning.selection import Reason, Reasons, register


@register(AdvantageOnlyConfig)
def one_per_advantage(groups: Sequence[Group], config: AdvantageOnlyConfig, step: int) -> Reasons:
    """The rollout of largest |advantage| of each part of equal advantage, ties by index."""
    return [_select_group(group, config) for group in groups]


def _select_group(group: Group, config: AdvantageOnlyConfig) -> list[Reason]:
    if config.degenerate == "drop" and group.is_degenerate:
        return [Reason.DROPPED] * len(group)
    reasons = [Reason.PRUNED] * len(group)
    for part in advantage_groups(group, config.group_by, config.adv_eps):
        reasons[part[0]] = Reason.SEED
    return reasons
