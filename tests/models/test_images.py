from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile

from fastrl_cli.data.problems import BadImageError
from fastrl_cli.data.sample import EncodedImage
from fastrl_cli.errors import DataError
from fastrl_cli.models.images import BoundedCache, SizeRule, decode, resized_size, to_rgb, upright_size

RULE = SizeRule(28, 56 * 56, 1280 * 28 * 28)
ORIENTATION = 0x0112


def encoded(image: Image.Image, format: str = "PNG", **options: Any) -> EncodedImage:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return EncodedImage(buffer.getvalue(), f"it.{format.lower()}")


def half_red(width: int, height: int) -> Image.Image:
    """Blue with a red left half."""
    image = Image.new("RGB", (width, height), "blue")
    image.paste("red", (0, 0, width // 2, height))
    return image


@pytest.mark.parametrize("factor", [28, 32])
@settings(deadline=None, max_examples=200)
@given(width=st.integers(2, 5000), height=st.integers(2, 5000))
def test_a_resized_picture_is_within_the_limits_and_stays_as_it_is(factor: int, width: int, height: int) -> None:
    assume(max(width, height) <= 100 * min(width, height))
    rule = SizeRule(factor, 262_144, 4_194_304)
    size = rule.resized(width, height)
    assert size[0] % factor == size[1] % factor == 0
    assert rule.min_pixels <= size[0] * size[1] <= rule.max_pixels
    assert rule.resized(*size) == size
    assert rule.tokens(width, height) * factor**2 == size[0] * size[1]


@pytest.mark.parametrize(("width", "height"), [(2, 2), (3, 27), (5, 900), (27, 27), (10, 2000)])
def test_a_tiny_picture_is_scaled_up_to_a_patch_at_least(width: int, height: int) -> None:
    picture = decode(encoded(half_red(width, height)), "it", RULE)
    assert min(picture.size) >= 28


@pytest.mark.parametrize(("width", "height"), [(1, 1), (1, 50), (50, 1), (2, 402), (4100, 20)])
def test_a_useless_size_is_refused_with_its_numbers(width: int, height: int) -> None:
    with pytest.raises(BadImageError, match=f"sample set/train:3: .*{width} × {height} pixels.*at most 200") as error:
        upright_size(encoded(Image.new("RGB", (width, height))), "set/train:3")
    assert isinstance(error.value, DataError) and error.value.exit_code == 4


def test_limits_that_no_size_meets_are_refused() -> None:
    with pytest.raises(BadImageError, match=r"60 × 40.*data\.min_pixels"):
        resized_size(encoded(half_red(60, 40)), "it", SizeRule(28, 1000, 1000))


@pytest.mark.parametrize(
    "data", [b"", b"x", b"\x89PNG\r\n\x1a\n", b"GIF89a", encoded(half_red(60, 40)).data[:30], b"<svg></svg>"]
)
def test_what_is_no_picture_is_refused_from_its_header(data: bytes) -> None:
    with pytest.raises(BadImageError, match=rf"sample set/train:3: the picture 'a.png' \({len(data)} bytes\)"):
        upright_size(EncodedImage(data, "a.png"), "set/train:3")


@pytest.mark.parametrize("format", ["PNG", "JPEG"])
def test_a_cut_picture_is_refused_when_decoded(format: str) -> None:
    whole = encoded(Image.effect_noise((120, 90), 90).convert("RGB"), format)
    cut = EncodedImage(whole.data[: len(whole.data) // 2], "cut")
    assert upright_size(cut, "it") == (120, 90)
    with pytest.raises(BadImageError, match="cannot be read"):
        decode(cut, "it", RULE)


def test_sizes_come_from_the_header(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = [encoded(half_red(90, 60), format) for format in ("PNG", "JPEG", "WEBP", "GIF", "BMP")]

    def refuse(self: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr(ImageFile.ImageFile, "load", refuse)
    assert [upright_size(picture, "it") for picture in pictures] == [(90, 60)] * 5


@pytest.mark.parametrize("format", ["PNG", "JPEG"])
@pytest.mark.parametrize(("orientation", "red_at"), [(1, "left"), (3, "right"), (6, "top"), (8, "bottom")])
def test_orientation_is_applied(format: str, orientation: int, red_at: str) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    picture = encoded(half_red(168, 84), format, exif=exif)
    turned = orientation >= 5
    assert upright_size(picture, "it") == ((84, 168) if turned else (168, 84))
    shown = np.asarray(decode(picture, "it", RULE))
    edges = {"left": shown[:, 4], "right": shown[:, -4], "top": shown[4], "bottom": shown[-4]}
    reddest = max(edges, key=lambda edge: float(edges[edge][..., 0].mean() - edges[edge][..., 2].mean()))
    assert reddest == red_at


def test_transparency_is_white() -> None:
    for mode, colour in (("RGBA", (0, 0, 0, 0)), ("LA", (0, 0))):
        assert to_rgb(Image.new(mode, (4, 4), colour)).getpixel((0, 0)) == (255, 255, 255)
    palette = Image.new("P", (4, 4), 0)
    palette.putpalette([10, 20, 30, 40, 50, 60])
    palette.info["transparency"] = 0
    assert to_rgb(palette).getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize(
    ("image", "rgb"),
    [
        (Image.new("L", (4, 4), 100), (100, 100, 100)),
        (Image.new("1", (4, 4), 1), (255, 255, 255)),
        (Image.new("CMYK", (4, 4), (0, 0, 0, 0)), (255, 255, 255)),
        (Image.new("RGBA", (4, 4), (255, 0, 0, 255)), (255, 0, 0)),
        (Image.fromarray(np.full((4, 4), 65535, np.uint16)), (255, 255, 255)),
        (Image.fromarray(np.full((4, 4), 25700, np.uint16)), (100, 100, 100)),
        (Image.fromarray(np.full((4, 4), 25700, np.int32)), (100, 100, 100)),
    ],
)
def test_every_mode_becomes_rgb(image: Image.Image, rgb: tuple[int, int, int]) -> None:
    made = to_rgb(image)
    assert made.mode == "RGB"
    assert made.getpixel((0, 0)) == rgb


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 40)), max_size=60), st.integers(10, 100))
def test_the_cache_stays_within_its_bytes_and_returns_what_was_made(calls: list[tuple[int, int]], limit: int) -> None:
    cache = BoundedCache[bytes](limit, len)
    sizes = dict(calls)
    for key, _ in calls:
        value = cache.get(key, lambda key=key: bytes(sizes[key]))  # type: ignore[misc]
        assert len(value) == sizes[key]
        assert cache.get(key, lambda: pytest.fail("made twice")) is value
        assert cache.bytes <= limit or len(cache) == 1


def test_a_size_that_rounding_threw_out_of_the_limits_settles() -> None:
    assert SizeRule(28, 56 * 56, 56 * 56).resized(300, 300) == (56, 56)
