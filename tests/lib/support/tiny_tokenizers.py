"""Tokenizers of the kinds of ModernBERT, XLM-R and RoBERTa, over a few hundred pieces."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE, Unigram
from tokenizers.processors import RobertaProcessing, TemplateProcessing

from support.checkpoints.tokenizers import FOREIGN, LETTERS, SPACE, WORDS, byte_level, learned


def modernbert_tokenizer() -> Tokenizer:
    """A tokenizer of ModernBERT's kind: `[CLS]` before a text, `[SEP]` after it."""
    special = ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")
    tokenizer = byte_level(special)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.post_processor = _template("[CLS] $A [SEP]", tokenizer)
    return tokenizer


def xlm_roberta_tokenizer() -> Tokenizer:
    """A tokenizer of XLM-R's kind: `<s>` before a text, `</s>` after it, `<pad>` with the id 1."""
    special = ("<s>", "<pad>", "</s>", "<unk>")  # with XLM-R's ids, 0 to 3
    letters = dict.fromkeys([SPACE, *LETTERS, *"".join(FOREIGN)])
    words = (f"{SPACE}{word}" for word in (*WORDS, *FOREIGN))
    pieces = [*((token, 0.0) for token in special), *((letter, -9.0) for letter in letters)]
    pieces += [(word, -3.0 - i / 50) for i, word in enumerate(words)]
    tokenizer = Tokenizer(Unigram(pieces, unk_id=3, byte_fallback=False))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always")
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in special]
    )
    tokenizer.post_processor = _template("<s> $A </s>", tokenizer)
    return tokenizer


def _template(single: str, tokenizer: Tokenizer) -> TemplateProcessing:
    tokens = [token for token in single.split() if token != "$A"]
    return TemplateProcessing(
        single=single,
        pair=f"{single} {single.replace('$A', '$B')}",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in tokens],
    )


def roberta_tokenizer() -> Tokenizer:
    """A tokenizer of RoBERTa's kind: `<s>`, a text, `</s>`; words begin with their space."""
    special = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")  # with RoBERTa's ids, 0 to 4
    cut = pre_tokenizers.ByteLevel(add_prefix_space=False)
    spelled = [
        cut.pre_tokenize_str(f"{space}{word}")[0][0] for word in WORDS for space in ("", " ")
    ]
    pieces, merges = learned([*special, *sorted(pre_tokenizers.ByteLevel.alphabet())], spelled)
    tokenizer = Tokenizer(BPE(pieces, merges, unk_token="<unk>"))
    tokenizer.pre_tokenizer = cut
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in special]
    )
    tokenizer.post_processor = RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return tokenizer
