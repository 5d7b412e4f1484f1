"""Pictures: opened, checked, made RGB and scaled by the model's own size rule, so engine and trainer see the same."""

from __future__ import annotations

import io
import re
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

import numpy as np
from PIL import Image, ImageOps

from fastrl_cli.data.problems import BadImageError
from fastrl_cli.data.sample import EncodedImage
from fastrl_cli.errors import first_sentence

MAX_ASPECT = 200
"""Longer to shorter side; the Qwen image processors refuse more."""
MIN_SIDE = 2
"""Pixels. A side of one pixel shows nothing."""
MAX_ROUNDS = 4
"""Applications of the size rule. One is enough, except where rounding crosses a limit; too near limits never settle."""
ORIENTATION = 0x0112

V = TypeVar("V")


@dataclass(frozen=True)
class SizeRule:
    """The smart resize of Qwen2-VL and its successors: sides are multiples of `factor`, the area is within the limits,
    the aspect is kept as nearly as that allows."""

    factor: int
    """Pixels a side of what becomes one token: patch size times merge size."""
    min_pixels: int
    max_pixels: int

    def resized(self, width: int, height: int) -> tuple[int, int]:
        """(width, height) at which the model sees a picture. Applied again it changes nothing, so an engine that
        applies the rule to a resized picture makes the same number of tokens.

        Raises ValueError where no such size exists: aspect over 200, or limits too near each other.
        """
        size = (width, height)
        for _ in range(MAX_ROUNDS):
            before, size = size, _smart_resize(self, *size)
            if size == before:
                return size
        raise ValueError(
            f"no size in steps of {self.factor} pixels lies between {self.min_pixels} and {self.max_pixels} pixels"
        )

    def tokens(self, width: int, height: int) -> int:
        """Image tokens of a picture of this size."""
        resized_width, resized_height = self.resized(width, height)
        return (resized_width // self.factor) * (resized_height // self.factor)


@lru_cache(maxsize=4096)
def _smart_resize(rule: SizeRule, width: int, height: int) -> tuple[int, int]:
    from fastrl_cli.models.torchvision_cure import cure

    cure()
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

    resized_height, resized_width = smart_resize(height, width, rule.factor, rule.min_pixels, rule.max_pixels)
    return resized_width, resized_height


def upright_size(image: EncodedImage, sample_id: str) -> tuple[int, int]:
    """(width, height) from the header, EXIF orientation applied; the pixels are not decoded.

    Raises BadImageError for a picture that cannot be opened, has a side of one pixel, or is longer than 200:1.
    """
    try:
        with _open(image) as opened:
            width, height = opened.size
            if _orientation(opened) >= 5:
                width, height = height, width
    except Exception as error:  # Pillow raises errors of many types on damaged files
        raise _unreadable(image, sample_id, error) from error
    short, long = sorted((width, height))
    if short < MIN_SIDE or long > MAX_ASPECT * short:
        raise BadImageError(
            sample_id,
            f"{_named(image)} is {width} × {height} pixels (aspect {long / short:.4g}); both sides must be at least "
            f"{MIN_SIDE} pixels and the aspect at most {MAX_ASPECT}. Replace the picture or remove the row.",
        )
    return width, height


def resized_size(image: EncodedImage, sample_id: str, rule: SizeRule) -> tuple[int, int]:
    """(width, height) at which the model sees the picture, from its header. Raises BadImageError."""
    width, height = upright_size(image, sample_id)
    try:
        return rule.resized(width, height)
    except ValueError as error:
        raise BadImageError(
            sample_id,
            f"{_named(image)} of {width} × {height} pixels fits no size of the model ({error}). "
            "Widen data.min_pixels and data.max_pixels, or remove the row.",
        ) from error


def decode(image: EncodedImage, sample_id: str, rule: SizeRule) -> Image.Image:
    """The picture upright, RGB and at the model's size. Raises BadImageError where it cannot be decoded."""
    size = resized_size(image, sample_id, rule)
    try:
        with _open(image) as opened:
            upright = ImageOps.exif_transpose(opened) if _orientation(opened) > 1 else opened
            return to_rgb(upright).resize(size, Image.Resampling.BICUBIC)
    except Exception as error:  # Pillow raises errors of many types on damaged files
        raise _unreadable(image, sample_id, error) from error


def to_rgb(image: Image.Image) -> Image.Image:
    """8-bit RGB: transparency on white, 16-bit grey scaled to 8, palettes and CMYK converted."""
    if image.mode.startswith("I"):
        grey = np.asarray(image).astype(np.float64) / 257
        image = Image.fromarray(grey.clip(0, 255).round().astype(np.uint8))
    if image.has_transparency_data:
        seen = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen)
    return image.convert("RGB")


def _open(image: EncodedImage) -> Image.Image:
    if not image.data:
        raise FileNotFoundError("the file is missing or empty")
    with warnings.catch_warnings():
        # Pillow warns of large pictures from half the size on at which it refuses them as a bomb.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        return Image.open(io.BytesIO(image.data))


def _orientation(image: Image.Image) -> int:
    """EXIF orientation, 1 to 8; of a PNG only what its header has: to look behind the pixels, Pillow decodes them."""
    if image.format == "PNG" and "exif" not in image.info:
        return 1
    return int(image.getexif().get(ORIENTATION, 1))


def _named(image: EncodedImage) -> str:
    return f"the picture {image.path!r}" if image.path else "a picture"


def _unreadable(image: EncodedImage, sample_id: str, error: Exception) -> BadImageError:
    reason = re.sub(r" <_io\.BytesIO object at \w+>", "", first_sentence(error))
    return BadImageError(
        sample_id,
        f"{_named(image)} ({len(image.data)} bytes) cannot be read: {reason} Replace the picture or remove the row.",
    )


class BoundedCache(Generic[V]):
    """Keeps what was used last, up to a number of bytes; the newest value always stays."""

    def __init__(self, max_bytes: int, size: Callable[[V], int]) -> None:
        self.bytes = 0
        self._max_bytes = max_bytes
        self._size = size
        self._values: OrderedDict[Hashable, V] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value of `key`, made where it is not kept."""
        if key not in self._values:
            self._values[key] = value = make()
            self.bytes += self._size(value)
            while self.bytes > self._max_bytes and len(self._values) > 1:
                self.bytes -= self._size(self._values.popitem(last=False)[1])
        self._values.move_to_end(key)
        return self._values[key]

    def __len__(self) -> int:
        return len(self._values)
