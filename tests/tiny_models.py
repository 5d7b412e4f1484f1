"""Random tiny models of the three architectures the project trains, saved as a person's model folder would be: weights,
byte-level tokenizer, processor, chat template, generation config with two end tokens of which one is also the
padding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from fastrl_cli.models.torchvision_cure import cure

Kind = Literal["qwen2_5_vl", "qwen3_vl", "llama"]
KINDS: tuple[Kind, ...] = ("qwen2_5_vl", "qwen3_vl", "llama")

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
TOKEN_ID = {token: 256 + index for index, token in enumerate(SPECIAL_TOKENS)}
VOCABULARY = 256 + len(SPECIAL_TOKENS)

CHAT_TEMPLATE = """{% for message in messages %}<|im_start|>{{ message['role'] }}
{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}\
{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>\
{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def build_tiny(kind: Kind, folder: Path, *, seed: int = 0, std: float = 0.2) -> Path:
    """Save a random model of about 0.1 M parameters with everything a model folder has; returns the folder. `std` is
    the spread of its weights: large enough that a wrong position or mask changes the log-probabilities visibly."""
    cure()
    import torch
    from transformers import GenerationConfig

    torch.manual_seed(seed)
    model = _model(kind)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(0.0, std / 2 if "visual" in name else std)
            elif "norm" not in name:
                parameter.normal_(0.0, 0.02)
    model.generation_config = GenerationConfig(
        eos_token_id=[TOKEN_ID["<|im_end|>"], TOKEN_ID["<|endoftext|>"]], pad_token_id=TOKEN_ID["<|endoftext|>"]
    )
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer = _tokenizer()
    if kind == "llama":
        tokenizer.save_pretrained(folder)
    else:
        _processor(kind, tokenizer).save_pretrained(folder)
    return folder


def _model(kind: Kind) -> Any:
    from transformers import (
        LlamaConfig,
        LlamaForCausalLM,
        Qwen2_5_VLConfig,
        Qwen2_5_VLForConditionalGeneration,
        Qwen3VLConfig,
        Qwen3VLForConditionalGeneration,
    )

    text: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "max_position_embeddings": 2048,
        "bos_token_id": None,
        "eos_token_id": TOKEN_ID["<|im_end|>"],
        "pad_token_id": TOKEN_ID["<|endoftext|>"],
    }
    if kind == "llama":
        return LlamaForCausalLM(LlamaConfig(**text, tie_word_embeddings=False))
    vision: dict[str, Any] = {
        "depth": 2,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_heads": 2,
        "out_hidden_size": 64,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }
    tokens = {
        "image_token_id": TOKEN_ID["<|image_pad|>"],
        "video_token_id": TOKEN_ID["<|video_pad|>"],
        "vision_start_token_id": TOKEN_ID["<|vision_start|>"],
        "vision_end_token_id": TOKEN_ID["<|vision_end|>"],
        "tie_word_embeddings": True,
    }
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 6, 6]}
    if kind == "qwen2_5_vl":
        text["rope_parameters"] = rope
        text.pop("head_dim")
        vision |= {"patch_size": 14, "window_size": 56, "fullatt_block_indexes": [1]}
        return Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=text, vision_config=vision, **tokens))
    text["rope_parameters"] = rope | {"mrope_interleaved": True}
    vision |= {"patch_size": 16, "num_position_embeddings": 64, "deepstack_visual_indexes": [0]}
    return Qwen3VLForConditionalGeneration(Qwen3VLConfig(text_config=text, vision_config=vision, **tokens))


def _tokenizer() -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    vocabulary = {character: byte for byte, character in sorted(bytes_to_unicode().items())}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=list(SPECIAL_TOKENS),
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _processor(kind: Kind, tokenizer: Any) -> Any:
    from transformers import (
        Qwen2_5_VLProcessor,
        Qwen2VLImageProcessor,
        Qwen2VLVideoProcessor,
        Qwen3VLProcessor,
        Qwen3VLVideoProcessor,
    )

    patch = 14 if kind == "qwen2_5_vl" else 16
    cell = 2 * patch
    sizes = {"patch_size": patch, "merge_size": 2, "temporal_patch_size": 2}
    area = {"size": {"shortest_edge": 4 * cell * cell, "longest_edge": 64 * cell * cell}}
    images = Qwen2VLImageProcessor(**sizes, **area)
    if kind == "qwen2_5_vl":
        videos = Qwen2VLVideoProcessor(**sizes, **area)
        return Qwen2_5_VLProcessor(images, tokenizer, videos, chat_template=CHAT_TEMPLATE)
    return Qwen3VLProcessor(images, tokenizer, Qwen3VLVideoProcessor(**sizes, **area), chat_template=CHAT_TEMPLATE)


def describe(folder: Path) -> dict[str, Any]:
    """The folder's `config.json`."""
    result: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return result
