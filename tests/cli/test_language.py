"""The notice that texts are not in the language of the default model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.command_line import vcs
from support.stories import story, write_pairs
from support.tiny_bert import build_tiny_bundle

CHINESE = "一个男人打开门。一只狗跑进花园。"
RUSSIAN = "Мужчина открывает дверь. Собака бежит в сад, а за ней идёт Tom Hardy."
FRENCH = "Un garçon très âgé s'élève à côté. Où est passé l'élève ? Ça a été l'été."
EMOJI = "👍🎬. 🐶🐕. A — …"
NOTICE = "not in Latin script: "
ADVICE = (
    " texts. Their scores mean little, because the model reads only English: use a multilingual"
    " bundle (docs/guide/texts.md)"
)
OTHER_LANGUAGE = "probably not in English: "
LANGUAGES = {
    "German": "Ein Mann betritt die Küche und öffnet den Schrank. Dann setzt er sich an den Tisch.",
    "French": "Un homme entre dans la cuisine et ouvre le placard. Puis il s'assoit à la table.",
    "Spanish": "Un hombre entra en la cocina y abre el armario. Luego se sienta a la mesa.",
    "Italian": "Un uomo entra in cucina e apre il frigorifero. Poi si siede al tavolo.",
    "Portuguese": "Um homem entra na cozinha e abre a geladeira. Depois ele se senta com a filha.",
    "Dutch": "Een man komt de keuken binnen en opent de kast. Daarna gaat hij aan tafel zitten.",
}


@pytest.fixture(scope="module", params=["all-minilm-l6-v2", "all-minilm-l6-v2-int8", "fast"])
def default_bundle(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny bundle under the name of a model that `fetch` builds."""
    return build_tiny_bundle(tmp_path_factory.mktemp("named"), request.param)


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.jsonl"
    generated = [CHINESE, RUSSIAN, FRENCH, EMOJI, story(1), ""]
    rows = [{"id": i, "reference": story(9), "generated": text} for i, text in enumerate(generated)]
    write_pairs(path, rows)
    return path


@pytest.mark.parametrize("command", ["score", "explain", "report"])
def test_texts_in_other_scripts_are_counted_once_a_job(
    default_bundle: Path, pairs: Path, tmp_path: Path, command: str
) -> None:
    output = ("-o", tmp_path / "r.html") if command == "report" else ("--json",)
    done = vcs(command, pairs, *output, "--bundle", default_bundle)
    # The reference is one text, although six pairs have it.
    lines = done.stderr.splitlines()
    assert f"vcs-runtime: {NOTICE}2 of 6{ADVICE}" in lines
    assert [f"{OTHER_LANGUAGE}1 of 6 texts" in line for line in lines].count(True) == 1
    assert done.stderr.count(NOTICE) == 1
    assert NOTICE not in done.stdout


def test_one_pair_and_short_texts_are_counted_too(default_bundle: Path, tmp_path: Path) -> None:
    texts = [tmp_path / "r.txt", tmp_path / "g.txt"]
    for path in texts:
        path.write_text(CHINESE, "utf-8")
    for more in ((), ("--short",)):
        done = vcs("score", texts[0], texts[1], "--bundle", default_bundle, *more)
        assert done.code == 0
        assert f" of {2 if more else 1}{ADVICE}" in done.stderr


@pytest.mark.parametrize(
    "text", [FRENCH, EMOJI, "Éèêëàâäùûüç. Ðöäåøæßœ.", story(1), f"{FRENCH} Москва."]
)
def test_no_notice_for_latin_letters_and_for_texts_without_letters(
    default_bundle: Path, tmp_path: Path, text: str
) -> None:
    path = tmp_path / "pairs.jsonl"
    write_pairs(path, [{"reference": story(2), "generated": text}])
    assert NOTICE not in vcs("score", path, "--bundle", default_bundle).stderr


@pytest.mark.parametrize("language", LANGUAGES)
def test_other_languages_in_latin_letters_are_counted(
    language: str, default_bundle: Path, tmp_path: Path
) -> None:
    path = tmp_path / "pairs.jsonl"
    text = LANGUAGES[language]
    write_pairs(path, [{"reference": text, "generated": f"{text} {text}"}])
    assert f"{OTHER_LANGUAGE}2 of 2 texts" in vcs("score", path, "--bundle", default_bundle).stderr


@pytest.mark.parametrize(
    "text",
    [
        "A man plays Für Elise on the piano, and she sings Non, je ne regrette rien.",
        "Juan de la Cruz and the los Angeles police look at the El Paso road with a map.",
        "NSFW",
    ],
)
def test_english_with_foreign_names_gives_no_notice(
    text: str, default_bundle: Path, tmp_path: Path
) -> None:
    path = tmp_path / "pairs.jsonl"
    write_pairs(path, [{"reference": f"{text}.", "generated": f"{text}. It rains."}])
    assert OTHER_LANGUAGE not in vcs("score", path, "--bundle", default_bundle).stderr


def test_no_notice_for_other_models_whose_languages_are_unknown(
    tiny_bundle: Path, pairs: Path
) -> None:
    stderr = vcs("score", pairs, "--bundle", tiny_bundle).stderr
    assert NOTICE not in stderr
    assert OTHER_LANGUAGE not in stderr


def test_substitution_of_any_model_says_that_it_reads_english_words(
    tiny_bundle: Path, pairs: Path
) -> None:
    notice = (
        "not in Latin script: 2 of 6 texts. Their substitution is 0, because only English words are"
        " compared"
    )
    options = ("--bundle", tiny_bundle, "--words", tiny_bundle)
    assert notice in vcs("score", pairs, *options, "--also", "substitution").stderr
    assert notice not in vcs("score", pairs, *options).stderr


def test_the_installed_default_gives_the_notice(pairs: Path) -> None:
    assert f"{NOTICE}2 of 6{ADVICE}" in vcs("score", pairs).stderr
