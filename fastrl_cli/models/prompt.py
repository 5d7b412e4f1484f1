"""A prompt: what a sample becomes for an engine and for the trainer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastrl_cli.data.sample import Sample


@dataclass(frozen=True)
class Prompt:
    """A sample with its chat text and its tokens. Pictures stay encoded in the sample until `Processing.images` or
    `Processing.features` asks for them."""

    sample: Sample
    text: str
    """The chat template applied, one image placeholder a picture, as vLLM takes it."""
    token_ids: NDArray[np.int32]
    """(P,), every image placeholder expanded to its number of merged patches."""
