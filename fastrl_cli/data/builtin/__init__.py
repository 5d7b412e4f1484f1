"""Geometry problems that are drawn, never typed: the embedded data."""

from fastrl_cli.data.builtin.problems import Problem, builtin_samples, draw_problem

__all__ = ["Problem", "builtin_samples", "draw_problem"]
