"""Tokenizers of the kinds that models have, over a few hundred pieces: no learned files."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.decoders import ByteFallback, Fuse, Replace
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.decoders import Sequence as DecoderSequence
from tokenizers.models import BPE
from tokenizers.processors import ByteLevel, Sequence, TemplateProcessing

PLAIN_WORDS = (
    "the a an and then while with on in at into over near of to from by is are was he she they it"
    " his her man woman boy girl dog cat horse bird kitchen street garden river table chair ball"
    " cup knife bread door window car red blue green white small large young old slowly quickly two"
    " three walks runs sits stands holds opens closes cuts pours throws looks smiles turns camera"
    " scene first next finally "
).split()
WORDS = [*PLAIN_WORDS, *"Instruct: Query: Describe question retrieve text".split()]

LETTERS = "etaoinshrdlcumwfgypbvkjxqzETAOINSHRDLCUMWFGYPBVKJXQZ0123456789.,;:!?'\"-()\n"

SPACE = "\u2581"

_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]

FOREIGN = "собака идёт 门 打开 女人 café straße".split()


# A word with the space before it, a digit, signs, or white space.
_PARTS = r" ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def learned(
    first: Iterable[str], words: Iterable[str]
) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return pieces with ids and merges as BPE learns them; the pieces `first` come first."""
    pieces = dict.fromkeys(first)
    merges: dict[tuple[str, str], None] = {}
    for word in words:
        whole = word[0]
        for letter in word[1:]:
            merges[whole, letter] = None
            whole += letter
            pieces[whole] = None
    return {piece: i for i, piece in enumerate(pieces)}, list(merges)


def byte_level(special: Iterable[str]) -> Tokenizer:
    """Return a BPE tokenizer over bytes; special tokens come last, as in Qwen and Llama."""
    cut = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PARTS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    spelled = [cut.pre_tokenize_str(f" {word}")[0][0] for word in (*WORDS, *FOREIGN)]
    pieces, merges = learned(sorted(pre_tokenizers.ByteLevel.alphabet()), spelled)
    tokenizer = Tokenizer(BPE(pieces, merges))
    tokenizer.pre_tokenizer = cut
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in special]
    )
    return tokenizer


def qwen_tokenizer(template: bool = True) -> Tokenizer:
    """Make a tokenizer of Qwen's kind, which puts `<|endoftext|>` after a text if `template`."""
    tokenizer = byte_level(("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    tokenizer.normalizer = normalizers.NFC()
    plain = ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tokenizer.post_processor = plain
    if template:
        end = ("<|endoftext|>", tokenizer.token_to_id("<|endoftext|>"))
        both = TemplateProcessing(
            single="$A <|endoftext|>",
            pair="$A <|endoftext|> $B <|endoftext|>",
            special_tokens=[end],
        )
        tokenizer.post_processor = Sequence([plain, both])
    return tokenizer


def llama_tokenizer() -> Tokenizer:
    """Make a tokenizer of Llama 3's kind, which puts `<|begin_of_text|>` before a text."""
    tokenizer = byte_level(("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"))
    start = ("<|begin_of_text|>", tokenizer.token_to_id("<|begin_of_text|>"))
    both = TemplateProcessing(
        single="<|begin_of_text|> $A",
        pair="<|begin_of_text|> $A <|begin_of_text|> $B",
        special_tokens=[start],
    )
    plain = ByteLevel(add_prefix_space=True, trim_offsets=False, use_regex=True)
    tokenizer.post_processor = Sequence([plain, both])
    return tokenizer


def gemma_tokenizer(template: str = "<bos> $A <eos>") -> Tokenizer:
    """Make a tokenizer of Gemma's kind, with the special tokens of `template`."""
    special = ("<pad>", "<eos>", "<bos>", "<unk>")  # with Gemma's ids, 0 to 3
    letters = dict.fromkeys([*LETTERS, *"".join(FOREIGN)])
    words = (*(f"{SPACE}{word}" for word in (*WORDS, *FOREIGN)), *WORDS)
    pieces, merges = learned([*special, *_BYTES, SPACE, *letters], words)
    tokenizer = Tokenizer(BPE(pieces, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = DecoderSequence([Replace(SPACE, " "), ByteFallback(), Fuse()])
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in special]
    )
    ids = [
        (token, tokenizer.token_to_id(token)) for token in ("<bos>", "<eos>") if token in template
    ]
    tokenizer.post_processor = TemplateProcessing(
        single=template, pair=f"{template} {template.replace('$A', '$B')}", special_tokens=ids
    )
    return tokenizer


def mistral_tokenizer() -> Tokenizer:
    """Make a tokenizer of Mistral's kind: puts `<s>` before a text, and no `</s>` after it."""
    special = ("<unk>", "<s>", "</s>")  # with Mistral's ids, 0 to 2
    pieces, merges = learned(
        [*special, *_BYTES, SPACE, *LETTERS], (f"{SPACE}{word}" for word in WORDS)
    )
    tokenizer = Tokenizer(BPE(pieces, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in special]
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
    )
    tokenizer.decoder = DecoderSequence([ByteFallback(), Fuse()])
    tokenizer.post_processor = TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    return tokenizer
