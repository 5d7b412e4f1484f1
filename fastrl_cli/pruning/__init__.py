"""Which rollouts are trained on.

    from fastrl_cli.pruning import Group, select
    selection = select(groups, MDAPConfig())

Each selector is one module of this package, a pure function of the groups' token ids, rewards and advantages. A new one
needs its module, its config class in `fastrl_cli.config.pruning` and its test.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules

from fastrl_cli.config.pruning import FillConfig, PruningConfig
from fastrl_cli.pruning.fill import fill_to_multiple
from fastrl_cli.pruning.groups import Group
from fastrl_cli.pruning.selection import Reason, Selection, make_selection, selector_for

__all__ = ["Group", "Reason", "Selection", "select"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")


def select(groups: Sequence[Group], config: PruningConfig, *, divisor: int = 1, step: int = 1) -> Selection:
    """The rollouts of a batch to train on.

    `divisor`: what the kept total should be a multiple of; the alignment fill reaches it where the config has one.
    `step`: counts from 1 and rotates where the fill begins. Equal input gives equal output, and the order of the groups
    changes nothing but the order of the result. Raises `UsageError` for a config without a selector.
    """
    phase1 = selector_for(config)(groups, config, step)
    fill: FillConfig | None = getattr(config, "fill", None)
    reasons = phase1 if fill is None else fill_to_multiple(groups, phase1, fill, divisor=divisor, step=step)
    return make_selection(groups, phase1, reasons, divisor)
