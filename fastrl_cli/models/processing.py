"""From a sample to what a model takes: chat text, tokens with the expanded image placeholders, pixels.

Tokens are counted from the pictures' headers; a picture is decoded only for a pass that needs it, once for engine and
trainer together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastrl_cli.config.data import DataConfig
from fastrl_cli.data.marks import IMAGE_MARK, split_at_marks, with_marks
from fastrl_cli.data.problems import BadQuestionError, OverlongPromptError
from fastrl_cli.data.sample import Sample
from fastrl_cli.errors import DataError, UsageError, first_sentence
from fastrl_cli.models.images import BoundedCache, SizeRule, decode, resized_size
from fastrl_cli.models.load import model_path
from fastrl_cli.models.prompt import Prompt
from fastrl_cli.models.torchvision_cure import cure
from fastrl_cli.rewards.format import prefilled

if TYPE_CHECKING:
    import torch
    from PIL import Image

VISION_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>")
VISION_TOKEN_FIELDS = (
    "image_token_id",
    "video_token_id",
    "vision_token_id",
    "vision_start_token_id",
    "vision_end_token_id",
)
CACHE_BYTES = 256 * 2**20


@dataclass(frozen=True)
class ImageFeatures:
    """What the vision tower takes for the pictures of one sample."""

    pixel_values: torch.Tensor
    """(patches, dim) float32, the pictures' patches one after the other."""
    grid_thw: torch.Tensor
    """(images, 3) int64: patches in time, height and width."""

    @property
    def bytes(self) -> int:
        return self.pixel_values.nbytes + self.grid_thw.nbytes


class Processing:
    """Makes prompts and pixels for one model.

    `stop_tokens` are those of the generation config and the tokenizer; `suppressed_tokens` are the vision tokens, which
    would break a model's own training pass if it emitted them.
    """

    def __init__(
        self,
        tokenizer: Any,
        processor: Any | None,
        data: DataConfig,
        stop_tokens: Iterable[int],
        suppressed_tokens: Iterable[int] = (),
    ) -> None:
        self.tokenizer = tokenizer
        self.processor = processor
        self.data = data
        self.stop_tokens = tuple(sorted(set(stop_tokens)))
        self.suppressed_tokens = tuple(sorted(set(suppressed_tokens) - set(self.stop_tokens)))
        self.size_rule = _size_rule(processor.image_processor, data) if processor is not None else None
        self._check_texts()
        self._images = BoundedCache[Any](CACHE_BYTES, lambda image: 3 * image.width * image.height)
        self._features = BoundedCache[ImageFeatures](CACHE_BYTES, lambda features: features.bytes)

    @classmethod
    def load(cls, path: str | Path, data: DataConfig) -> Processing:
        """The processing of `builtin`, or of the model at a folder or hub id.

        Raises DataError where its tokenizer or image processor is missing or of a kind that is not supported, and
        UsageError for an instruction or system text that holds one of its special tokens.
        """
        cure()
        from transformers import AutoConfig, AutoProcessor, AutoTokenizer, GenerationConfig

        found = model_path(str(path))
        try:
            config = AutoConfig.from_pretrained(found)
            is_multimodal = getattr(config, "vision_config", None) is not None
            loaded = (AutoProcessor if is_multimodal else AutoTokenizer).from_pretrained(found)
        except Exception as error:
            raise DataError(
                f"model {path}: its tokenizer or processor cannot be loaded: {first_sentence(error)} "
                "A model folder needs config.json, the tokenizer's files and, for pictures, preprocessor_config.json."
            ) from error
        if is_multimodal and getattr(loaded, "image_processor", None) is None:
            raise DataError(f"model {path} takes pictures, but its folder has no preprocessor_config.json.")
        tokenizer = loaded.tokenizer if is_multimodal else loaded
        try:
            generation = GenerationConfig.from_pretrained(found)
        except OSError:
            generation = GenerationConfig.from_model_config(config)
        stop_tokens = {*_ids(generation.eos_token_id), *_ids(tokenizer.eos_token_id)}
        if not stop_tokens:
            raise DataError(f"model {path}: neither generation_config.json nor the tokenizer names an end token.")
        suppressed = _vision_tokens(config, tokenizer) if is_multimodal else set()
        return cls(tokenizer, loaded if is_multimodal else None, data, stop_tokens, suppressed)

    @property
    def is_multimodal(self) -> bool:
        return self.processor is not None

    @property
    def pad_token_id(self) -> int:
        """What short rows are filled up with; never used to tell where a row ends."""
        padding = self.tokenizer.pad_token_id
        return int(self.stop_tokens[0] if padding is None else padding)

    def prompt(self, sample: Sample) -> Prompt:
        """The chat text and tokens of `sample`. Nothing is truncated and no picture decoded.

        Raises OverlongPromptError, BadImageError or BadQuestionError, all UnusableSampleError, for a sample that cannot
        be used, and DataError for pictures given to a model of text.
        """
        question = self._checked_question(sample)
        text = self._chat_text(question)
        image_tokens = [self._image_tokens(width, height) for width, height in self._sizes(sample)]
        token_ids = self._expanded(sample, text, image_tokens)
        if len(token_ids) > self.data.max_prompt_tokens:
            raise self._overlong(sample, len(token_ids), image_tokens)
        return Prompt(sample, text, token_ids)

    def images(self, sample: Sample) -> list[Image.Image]:
        """The pictures decoded, upright, RGB, at the model's size. They are shared: do not draw on them.

        Raises BadImageError where one cannot be decoded.
        """
        rule = self.size_rule
        if rule is None:
            return []
        return [self._images.get(image.data, partial(decode, image, sample.id, rule)) for image in sample.images]

    def features(self, sample: Sample) -> ImageFeatures | None:
        """The pixels of the pictures as the vision tower takes them; None without pictures. Raises BadImageError."""
        if self.processor is None or not sample.images:
            return None
        return self._features.get(tuple(image.data for image in sample.images), lambda: self._make_features(sample))

    @cached_property
    def prefill(self) -> str:
        """The opening tag of the reasoning where the chat template writes it for the model; else empty."""
        return prefilled(self._chat_text("?"))

    def decode(self, token_ids: Sequence[int] | NDArray[np.int32]) -> str:
        """The text of `token_ids`, special tokens left out."""
        return str(self.tokenizer.decode(token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def save(self, folder: Path) -> None:
        """Write tokenizer, processor with the limits of the pictures' sizes, and chat template."""
        (self.processor or self.tokenizer).save_pretrained(folder)

    def check_pictures(self, sample: Sample) -> None:
        """Raise DataError for pictures given to a model of text."""
        if sample.images and not self.is_multimodal:
            raise DataError(
                f"sample {sample.id} has {len(sample.images)} picture(s), but the model takes text only. "
                "Choose a vision-language model (--model), or data without pictures (--data)."
            )

    def _checked_question(self, sample: Sample) -> str:
        self.check_pictures(sample)
        pictures = len(sample.images)
        question = with_marks(sample.question, pictures)
        if (marks := question.count(IMAGE_MARK)) > pictures:
            raise BadQuestionError(
                sample.id,
                f"its question has {marks} {IMAGE_MARK} marks, but there are {pictures} pictures. Correct the row.",
            )
        if special := self._special_text.search(question):
            raise BadQuestionError(
                sample.id,
                f"its question holds the text of the model's special token {special[0]!r}. Rewrite or remove it.",
            )
        return question

    def _check_texts(self) -> None:
        """Raise UsageError where a text of the configuration would be read as the model's own tokens."""
        for name, text in (("instruction", self.data.instruction), ("system", self.data.system)):
            if text is not None and (special := self._special_text.search(text)):
                raise UsageError(
                    f"data.{name} holds the text of the model's special token {special[0]!r}. Write it without."
                )

    @cached_property
    def _special_text(self) -> re.Pattern[str]:
        added = self.tokenizer.added_tokens_decoder.values()
        special = {*self.tokenizer.all_special_tokens, *(token.content for token in added if token.special)}
        special |= set(VISION_TOKENS) & set(self.tokenizer.get_vocab())
        return re.compile("|".join(re.escape(token) for token in sorted(special, key=len, reverse=True)) or r"(?!)")

    def _chat_text(self, question: str) -> str:
        content = f"{question}\n{self.data.instruction}" if self.data.instruction else question
        if not self._template:
            return self._plain_text(content)
        messages: list[dict[str, Any]] = [{"role": "user", "content": self._parts(content)}]
        if self.data.system is not None:
            system = [{"type": "text", "text": self.data.system}] if self.is_multimodal else self.data.system
            messages.insert(0, {"role": "system", "content": system})
        text = self.tokenizer.apply_chat_template(
            messages, chat_template=self._template, tokenize=False, add_generation_prompt=True
        )
        return str(text)

    @cached_property
    def _template(self) -> str | None:
        template = getattr(self.processor, "chat_template", None) or self.tokenizer.chat_template
        return template.get("default") if isinstance(template, dict) else template

    def _parts(self, content: str) -> str | list[dict[str, str]]:
        if not self.is_multimodal:
            return content
        first, *rest = split_at_marks(content)
        parts = [{"type": "text", "text": first}]
        for text in rest:
            parts += [{"type": "image"}, {"type": "text", "text": text}]
        return [part for part in parts if part.get("text") != ""]

    def _plain_text(self, content: str) -> str:
        """For a model without a chat template: the start token where the tokenizer has one, the system text, an empty
        line, the user's text, a line break."""
        start = self.tokenizer.bos_token if self.tokenizer("")["input_ids"] == [self.tokenizer.bos_token_id] else ""
        system = f"{self.data.system}\n\n" if self.data.system else ""
        if self.processor is not None:
            content = content.replace(IMAGE_MARK, f"<|vision_start|>{self.processor.image_token}<|vision_end|>")
        return f"{start}{system}{content}\n"

    def _sizes(self, sample: Sample) -> list[tuple[int, int]]:
        rule = self.size_rule
        return [resized_size(image, sample.id, rule) for image in sample.images] if rule else []

    def _image_tokens(self, width: int, height: int) -> int:
        assert self.size_rule is not None
        return (width // self.size_rule.factor) * (height // self.size_rule.factor)

    def _expanded(self, sample: Sample, text: str, image_tokens: Sequence[int]) -> NDArray[np.int32]:
        """The tokens of `text`, the k-th image placeholder repeated `image_tokens[k]` times."""
        token_ids = np.asarray(self.tokenizer(text, add_special_tokens=False)["input_ids"], dtype=np.int32)
        if self.processor is None:
            return token_ids
        places = token_ids == self.processor.image_token_id
        if (found := int(places.sum())) != len(image_tokens):
            raise DataError(
                f"sample {sample.id}: the model's chat template puts {found} image placeholders for "
                f"{len(image_tokens)} pictures. Use a model whose template supports pictures."
            )
        repeats = np.ones(len(token_ids), dtype=np.int64)
        repeats[places] = image_tokens
        return np.repeat(token_ids, repeats)

    def _overlong(self, sample: Sample, tokens: int, image_tokens: Sequence[int]) -> OverlongPromptError:
        limit = self.data.max_prompt_tokens
        message = f"its prompt has {tokens} tokens, over the limit of {limit}. Raise data.max_prompt_tokens"
        room = limit - (tokens - sum(image_tokens))
        if image_tokens and self.size_rule is not None and room >= len(image_tokens):
            pixels = room // len(image_tokens) * self.size_rule.factor**2
            message += f", or, as {sum(image_tokens)} of them are the pictures', set data.max_pixels={pixels}"
        return OverlongPromptError(sample.id, f"{message}.")

    def _make_features(self, sample: Sample) -> ImageFeatures:
        assert self.processor is not None
        made = self.processor.image_processor(images=self.images(sample), return_tensors="pt")
        return ImageFeatures(made["pixel_values"].float(), made["image_grid_thw"].long())


def _size_rule(image_processor: Any, data: DataConfig) -> SizeRule:
    """The model's size rule with the limits of `data`, which the image processor is given too."""
    try:
        factor = int(image_processor.patch_size) * int(image_processor.merge_size)
        size = image_processor.size
        low = data.min_pixels or int(size["shortest_edge"])
        high = data.max_pixels or int(size["longest_edge"])
    except (AttributeError, KeyError, TypeError) as error:
        raise DataError(
            f"the image processor {type(image_processor).__name__} is not supported: it has no patch and merge size "
            "and limits of pixels. Models of the Qwen2-VL, Qwen2.5-VL and Qwen3-VL kinds are."
        ) from error
    if low > high:
        raise UsageError(f"data.min_pixels is {low}, more than data.max_pixels, {high}. Lower it, or raise the other.")
    image_processor.size = {"shortest_edge": low, "longest_edge": high}
    return SizeRule(factor, low, high)


def _vision_tokens(config: Any, tokenizer: Any) -> set[int]:
    vocabulary = tokenizer.get_vocab()
    named = {vocabulary[token] for token in VISION_TOKENS if token in vocabulary}
    configured = (getattr(config, field, None) for field in VISION_TOKEN_FIELDS)
    return named | {token for token in configured if token is not None}


def _ids(value: int | Sequence[int] | None) -> tuple[int, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(value)
