"""The kernel makes the tokens that `tokenizers` makes, or leaves a text to it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import BPE, WordPiece
from tokenizers.processors import TemplateProcessing

from support.matrix import matrix
from support.processes import captured
from vcs_numba.jit.kernel import numba_config
from vcs_runtime.inference import tokenizer as module
from vcs_runtime.inference.tokenizer import NO_SPAN, TokenEncoder
from vcs_runtime.inference.word_pieces import WordPieces

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = (
    "the man walks walk un able unable re the's café cafe Straße straße ı i̇ ﬁ a ab abc ##"
    " bababababa dababababa".split()
)
LETTERS = "abcdefghiklmnorstuwABCé́'.,-…#[]’“0123€½"  # some are in no vocabulary
SETTINGS = [
    {},
    {"lowercase": False},
    {"strip_accents": False},
    {"strip_accents": True, "lowercase": False},
    {"clean_text": False},
    {"handle_chinese_chars": False},
]
PIECES = st.one_of(
    st.sampled_from(
        [
            *WORDS,
            *SPECIAL,
            "x" * 11,
            "x" * 12,
            "unwalkable",
            " ",
            "\t",
            "\u00a0",
            "\u200b",
            "\0",
            "\u0301",
        ]
    ),
    st.text(st.characters(max_codepoint=0x24F), max_size=8),
    st.text(st.sampled_from(LETTERS), max_size=14),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
)
TEXTS = st.lists(PIECES, max_size=12).map("".join)


def bert(prefix: str = "##", longest: int = 11, **settings: bool) -> Tokenizer:
    pieces = [
        *SPECIAL,
        *WORDS,
        *LETTERS,
        *(prefix + piece for piece in ("s", "able", "un", "b", *LETTERS[:20])),
    ]
    vocabulary = {piece: 3 * i for i, piece in enumerate(dict.fromkeys(pieces))}
    model = WordPiece(
        vocabulary,
        unk_token="[UNK]",
        max_input_chars_per_word=longest,
        continuing_subword_prefix=prefix,
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(**settings)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL])
    return tokenizer


TOKENIZERS = [bert(**settings) for settings in SETTINGS]
made = cache(WordPieces)


def expected(tokenizer: Tokenizer, text: str) -> list[tuple[int, tuple[int, int]]]:
    encoding = tokenizer.encode(text, add_special_tokens=False)
    return list(zip(encoding.ids, encoding.offsets, strict=True))


def found(
    pieces: WordPieces, texts: Sequence[str]
) -> list[list[tuple[int, tuple[int, int]]] | None]:
    """Tokens and spans of texts; without spans the kernel remembers words, with equal tokens."""
    both, alone = pieces.encode(texts), pieces.encode(texts, spans=False)
    assert [own and own[0].tolist() for own in alone] == [own and own[0].tolist() for own in both]
    return [
        own and list(zip(own[0].tolist(), map(tuple, own[1].tolist()), strict=True)) for own in both
    ]


@pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=map(str, SETTINGS))
@given(texts=st.lists(TEXTS, max_size=4))
def test_tokens_and_spans_are_those_of_the_oracle(tokenizer: Tokenizer, texts: list[str]) -> None:
    for text, own in zip(texts, found(made(tokenizer), texts), strict=True):
        assert own is None or own == expected(tokenizer, text)


@given(text=st.text(st.characters(max_codepoint=0x24F, exclude_categories=["Cc"]), max_size=40))
def test_every_latin_text_is_known(text: str) -> None:
    tokenizer = TOKENIZERS[0]
    assert found(made(tokenizer), [text]) == [expected(tokenizer, text)]


def test_every_character_between_letters_is_as_in_the_oracle() -> None:
    texts = [
        f"a{chr(code)}b {chr(code)}"
        for code in range(sys.maxunicode + 1)
        if not 0xD800 <= code < 0xE000
    ]
    tokenizer = TOKENIZERS[0]
    known = 0
    for text, own in zip(texts, found(made(tokenizer), texts), strict=True):
        if own is not None:
            known += 1
            assert own == expected(tokenizer, text), text
    assert known > 1500


@matrix("prefix, longest", ["##", "", "x"], [1, 5, 11])
def test_other_prefixes_and_lengths_of_words(prefix: str, longest: int) -> None:
    tokenizer = bert(prefix, longest)
    texts = ["walks walk, unable ables xs", "", " ", "s" * 5, "s" * 6, "the" * 9, *WORDS[-2:]]
    assert found(made(tokenizer), texts) == [expected(tokenizer, text) for text in texts]


def test_a_text_with_a_special_token_or_another_script_is_left_and_takes_no_other_with_it() -> None:
    texts = ["the man", "the [SEP] man", "the 门", "walks"]
    own = found(made(TOKENIZERS[0]), texts)
    assert [each is None for each in own] == [False, True, True, False]
    assert own[3] == expected(TOKENIZERS[0], "walks")


def other_kinds() -> dict[str, Tokenizer]:
    named = {
        name: bert() for name in ("model", "normalizer", "splitter", "added", "template", "unknown")
    }
    named["model"].model = BPE({"a": 0, "[UNK]": 1}, [], unk_token="[UNK]")
    named["normalizer"].normalizer = normalizers.Sequence([normalizers.BertNormalizer()])
    named["splitter"].pre_tokenizer = pre_tokenizers.Whitespace()
    named["added"].add_tokens([AddedToken("walks", normalized=True)])
    named["template"].post_processor = TemplateProcessing(single="$A $A", special_tokens=[])
    named["unknown"].model = WordPiece({"a": 0}, unk_token="[UNK]")
    return named


@pytest.mark.parametrize("kind", other_kinds())
def test_a_tokenizer_with_other_rules_is_left_to_the_oracle(kind: str) -> None:
    with pytest.raises(ValueError, match="tokenizer"):
        WordPieces(other_kinds()[kind])


@pytest.mark.parametrize("spans", [False, True])
def test_the_encoder_gives_the_same_before_and_after_its_kernel_is_made(
    spans: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["the man walks", "", "the 门", "[MASK] walks unable."]
    special = ((7, 8), (9,))
    encoder = TokenEncoder(TOKENIZERS[0])
    first = encoder.encode(texts, special, spans=spans)
    assert encoder._kernel is None
    monkeypatch.setattr(module, "_TABLES_PAY", 100)
    second = encoder.encode(texts * 2, special, spans=spans)[: len(texts)]
    assert encoder._kernel is not None
    for text, (ids, places), (other_ids, other_places) in zip(texts, first, second, strict=True):
        tokens, offsets = zip(*expected(TOKENIZERS[0], text), strict=True) if text else ((), ())
        assert ids.tolist() == other_ids.tolist() == [7, 8, *tokens, 9]
        wanted = [list(span) for span in (NO_SPAN, NO_SPAN, *offsets, NO_SPAN)] if spans else []
        assert places.tolist() == other_places.tolist() == wanted


@pytest.mark.skipif(bool(numba_config.DISABLE_JIT), reason="is the inner run")
def test_plain_python_makes_the_same_tokens() -> None:
    options = ["-q", "-p", "no:cacheprovider", "-n0", "-k", "prefixes"]
    command = [sys.executable, "-m", "pytest", __file__, *options]
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    done = captured(command, env=environment)
    assert done.returncode == 0, done.stdout
