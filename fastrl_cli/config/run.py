"""The whole configuration of a run. The defaults are the embedded demonstration."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fastrl_cli.config.algorithm import AlgorithmConfig
from fastrl_cli.config.base import Count, Section
from fastrl_cli.config.data import BuiltinProblemsConfig, DataConfig
from fastrl_cli.config.engine import AutoEngineConfig, EngineConfig, SamplingConfig
from fastrl_cli.config.model import ModelConfig, OptimizerConfig
from fastrl_cli.config.pruning import ARSConfig, MDAPConfig, PruningConfig, RolloutCountConfig


class RewardConfig(Section):
    """Accuracy (0 or 1) plus a format reward."""

    format_weight: float = Field(0.5, ge=0)
    """Reward of a well-formed response."""
    timeout_seconds: float = Field(5.0, gt=0)
    """Wall-clock limit of one answer's grading; a slower one counts as not equal and is reported."""
    workers: int | None = Field(None, ge=1, le=1024)
    """Grading processes. Null: as many as there are cores, at most 8."""
    shuffle: bool = False
    """A control: rewards are permuted among the rollouts of each step, so that nothing can be learned from them."""


class BatchConfig(Section):
    """Size and length of the run."""

    questions_per_step: Count = 16
    rollouts: int = Field(8, ge=2, le=65536)
    """Rollouts of each question (G, n0). At least 2: an advantage compares rollouts of one question."""
    steps: Count | None = None
    """Null: as many as `epochs` gives."""
    epochs: Count = 12


class EvalConfig(Section):
    """Accuracy on the validation split, before and after training (and in between)."""

    every: Count | None = None
    """Steps between evaluations. Null: only before and after."""
    at_start: bool = True
    at_end: bool = True
    temperature: float = Field(0.6, ge=0)
    top_p: float = Field(0.95, gt=0, le=1)
    rollouts: Count = 1
    """Responses to each question."""


class CheckpointConfig(Section):
    """What is kept on disk to go on from, or to use."""

    every: Count | None = 50
    """Steps between checkpoints; one is always written at the end and on an interrupt. Null: only those."""
    keep: Count = 2
    """The newest that stay."""


class LogConfig(Section):
    rollouts: bool = True
    """Write every rollout to `rollouts/step_*.jsonl`."""
    progress: Literal["auto", "rich", "plain", "none"] = "auto"


class FaultConfig(Section):
    """When a run gives up."""

    max_non_finite_steps: Count = 3
    """Steps in a row with a non-finite loss or gradient; each is skipped, then the run stops with exit code 5."""
    hang_factor: float = Field(20.0, gt=1)
    """A phase that lasts this many times its median, and at least `hang_least_seconds`, counts as hung: exit code 5."""
    hang_least_seconds: float = Field(900.0, gt=0)


class RunConfig(Section):
    """Everything that decides a run."""

    seed: int = Field(0, ge=0, lt=2**63)
    run_dir: str | None = None
    """Null: `runs/<algorithm>-<date and time>`."""
    threads: int | None = Field(None, ge=1, le=1024)
    """torch's threads on a CPU. Null: torch's own choice."""
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    builtin: BuiltinProblemsConfig = BuiltinProblemsConfig()
    engine: EngineConfig = AutoEngineConfig()
    sampling: SamplingConfig = SamplingConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    pruning: PruningConfig = MDAPConfig()
    adaptive: RolloutCountConfig = ARSConfig()
    batch: BatchConfig = BatchConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    reward: RewardConfig = RewardConfig()
    eval: EvalConfig = EvalConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    log: LogConfig = LogConfig()
    faults: FaultConfig = FaultConfig()
