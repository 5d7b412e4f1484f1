"""fastrl: group-relative reinforcement learning of vision-language models, with the pruning and sampling of FastRL."""

__version__ = "0.1.0"
