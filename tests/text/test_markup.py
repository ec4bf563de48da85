"""Cleaning of model output: think tags, Markdown, numbers of lists."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcs_runtime.text.chat import without_chat
from vcs_runtime.text.markup import CLEANINGS, KINDS, MarkupCounts, remove_markup

PIECES = [
    *"*_`~#|[]()<>-+=•\\ \n\r\t.:1 2a5",
    "<think>",
    "</think>",
    "1. ",
    "2. ",
    "Step 3: ",
    "12 - 18 seconds, ",
    "Frame 3: ",
    "<answer>",
    "</s>",
    "USER: ",
    "\nassistant\n",
    "Sure! ",
    '{"text": "',
    "**",
    "](",
    "```",
    "A man walks. ",
]
marked = st.lists(st.sampled_from(PIECES), max_size=60).map("".join)
chosen = st.sets(st.sampled_from(CLEANINGS), min_size=1)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("<think>Is it a man?</think>A man walks.", "A man walks."),
        ("<think>\nIs it?\n\nYes.\n</think>\n\nA man walks.", "A man walks."),
        ("<THINK>Is it?</Think>A man walks.", "A man walks."),
        ("Is it a man?</think>A man walks.", "A man walks."),
        ("A man walks.<think>Is it", "A man walks."),
        ("<think>one</think>A man walks.<think>two</think>He runs.", "A man walks.\nHe runs."),
        ("<think>a<think>b</think>c</think>A man walks.", "A man walks."),
        ("A man.<think>a<think>b</think>c</think>He walks.", "A man.\nHe walks."),
        ("<think>They say <think> here.</think>A man walks.", "A man walks."),
        ("<think>all of it", ""),
        ("I think <thinking> is 3 < 4.", "I think <thinking> is 3 < 4."),
        ("<Reasoning>Is it?</Reasoning>A man walks.", "A man walks."),
        ("◁think▷Is it?◁/think▷A man walks.", "A man walks."),
    ],
)
def test_reasoning_in_think_tags_is_removed(text: str, clean: str) -> None:
    assert remove_markup(text, ["think"]) == clean


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("# Summary\nA man walks.", "Summary\n\nA man walks."),
        ("A man walks\n### The end ###\nHe runs.", "A man walks\n\nThe end\n\nHe runs."),
        ("Summary\n=======\nA man walks.", "Summary\n\nA man walks."),
        ("**Scene 1:**\nA man walks.", "Scene 1:\n\nA man walks."),
        (
            "A **man** and ***his*** __dog__ *walk* _on_ ~~grass~~.",
            "A man and his dog walk on grass.",
        ),
        ("**A *red* ball** falls.", "A red ball falls."),
        ("这是**重点**内容。", "这是重点内容。"),
        ("A man walks. **The second sc", "A man walks. The second sc"),
        (
            "- A man walks\n  slowly\n* A dog runs\n• A bird\n+ A cat",
            "A man walks\n  slowly\n\nA dog runs\n\nA bird\n\nA cat",
        ),
        ("> A man\n>> walks.", "A man\nwalks."),
        ("A man.\n\n---\n\n* * *\nA dog.", "A man.\n\n\n\n\nA dog."),
        ("```text\nA man walks.\n```", "A man walks."),
        ("The sign says `STOP` and ``go``.", "The sign says STOP and go."),
        ("A [man](https://a.b/c_(d)) and ![a dog](dog.png).", "A man and a dog."),
        ("[![a dog](dog.png)](https://a.b)", "a dog"),
        ("A man.\n\n[1]: https://a.b", "A man."),
        ("|Time|Event|\n|:--|---|\n| 0:01 | A man walks |", "Time, Event\n\n0:01, A man walks"),
        ("> # Summary\n> - **A man**", "Summary\n\nA man"),
    ],
)
def test_marks_of_markdown_are_removed_and_their_words_stay(text: str, clean: str) -> None:
    assert remove_markup(text, ["markdown"]) == clean


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (
            "1. A man walks\n2) A dog runs\n(3) A bird\nStep 4: A cat",
            "A man walks\n\nA dog runs\n\nA bird\n\nA cat",
        ),
        ("1. A man walks\n   slowly\n2. A dog runs", "A man walks\n   slowly\n\nA dog runs"),
        ("1.\nA man walks.\n2.\nA dog runs.", "A man walks.\n\nA dog runs."),
        ("1. Step 1: A man walks.", "A man walks."),
        (
            "Two scenes: 1. A man walks. 2. A dog runs.",
            "Two scenes:\n\nA man walks.\n\nA dog runs.",
        ),
        ("1. A man walks. 2. A dog runs.", "A man walks.\n\nA dog runs."),
        (
            'He says "No." (1) A man (2) runs. (2) A dog.',
            'He says "No."\n\nA man (2) runs.\n\nA dog.',
        ),
    ],
)
def test_numbers_of_lists_are_removed_and_items_stand_apart(text: str, clean: str) -> None:
    assert remove_markup(text, ["list-numbers"]) == clean


@pytest.mark.parametrize(
    "text",
    [
        "A man walks.<|im_end|>",
        "<s> A man walks.</s>",
        "A man walks.<|eot_id|><|endoftext|>",
        "A man walks.<eos><pad><pad>",
        "A man walks.<｜end▁of▁sentence｜>",
        "A man walks.<end_of_utterance>",
        "USER: <video>\nDescribe it. ASSISTANT: A man walks.</s>",
        "A chat between a curious user and an assistant. USER: Describe it. ASSISTANT: A man walks.",
        "<|im_start|>system\nHelp.<|im_end|>\n<|im_start|>user\nWhat?<|im_end|>\n"
        "<|im_start|>assistant\nA man walks.<|im_end|>",
        "<|start_header_id|>user<|end_header_id|>\n\nWhat?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nA man walks.<|eot_id|>",
        "<start_of_turn>user\nWhat?<end_of_turn>\n<start_of_turn>model\nA man walks.",
        "[INST] <<SYS>>Help.<</SYS>> What? [/INST] A man walks.",
        "system\nYou are a helpful assistant.\nuser\nDescribe it.\nassistant\nA man walks.",
        "### Human: What? \n### Assistant: A man walks.",
        "<|channel|>analysis<|message|>Is it?<|end|>"
        "<|start|>assistant<|channel|>final<|message|>A man walks.",
        "Question: What happens in the video? Answer: A man walks.",
        "A man walks.\nUSER: Thanks.",
        "Assistant: A man walks.",
        "USER: A man walks.",
        "Sure! Here is a description of the video:\n\nA man walks.",
        "Sure, here's the text:\nA man walks.",
        "Certainly! A man walks.",
        "Okay, here is the caption: A man walks.",
        "Here are the events:\nA man walks.",
        "Of course! Here’s a detailed description of the video.\nA man walks.",
        "Below is a summary. A man walks.",
        "I'd be happy to describe the video! A man walks.",
        "Caption: A man walks.",
        "**Answer:** A man walks.",
        "A man walks. I hope this helps! Let me know if you have questions.",
        "A man walks.\n\nFeel free to ask for more.",
        "<answer>A man walks.</answer>",
        "It moves. <answer>\nA man walks.\n</answer> Yes.",
        "<answer>A man walks.",
        "A man walks.</answer>",
        "<caption>A man walks.</caption>",
        "[ANSWER]A man walks.[/ANSWER]",
        "\\boxed{A man walks.}",
        "The caption of the video is: A man walks.\\n",
        '{"caption": "A man walks."}',
        '```json\n{"video": 3, "description": "A man walks."}\n```',
        '{"description": "A man walks.',
        "{'response': 'A man walks.'}",
        '[{"start": 1, "end": 2, "text": "A man walks."}]',
        '{"scenes": [{"time": "1 to 2", "description": "A man walks."}]}',
        'Sure! Here is the JSON:\n```json\n{"answer": "A man walks.<|im_end|>"}\n```',
    ],
)
def test_what_a_chat_puts_around_an_answer_is_named_and_removed(text: str) -> None:
    counts = MarkupCounts()
    counts.add(text)
    assert "chat" in counts.unused([])
    assert remove_markup(text, ["chat"]).strip("*").strip() == "A man walks."


@pytest.mark.parametrize(
    "text",
    [
        "[00:12-00:18] {} [0:00:20] {}",
        "1\n00:00:01,000 --> 00:00:03,500\n{}\n\n2\n00:00:04,000 --> 00:00:05,000\n{}",
        "12.0 - 18.0 seconds, {}\n18.0 - 20.0 seconds, {}",
        "12s-18s: {}\n18s-20s: {}",
        "0 to 7 seconds: {} 7 to 9 seconds: {}",
        "<12 - 18> {}\n<18 - 20> {}",
        "<12.0 seconds> {} <18.0 seconds> {}",
        "[12.0, 18.0] {}\n[18.0, 20.0] {}",
        "[12s - 18s] {} [18s - 20s] {}",
        "From 12s to 18s, {} From 18s to 20s, {}",
        "From 12.0 to 18.0 seconds {}\nBetween 18 seconds and 20 seconds, {}",
        "From 00:12 to 00:18, {}\nFrom 00:18 to 00:20: {}",
        "00:12 - 00:18: {}\n00:18 - 00:20: {}",
        "0:12–0:18 {} 0:18–0:20 {}",
        "**00:12 - 00:18**: {}\n**00:18 - 00:20:** {}",
        "00:12: {}\n00:18 - {}",
        "At 12s, {} At 18.5 seconds, {}",
        "Frame 3: {}\nFrame 4: {}",
        "Frames 3-5: {} [Frame 6]: {}",
        "**Scene 1 (0:12):** {}\nClip 2 - {}",
        "0:12 {}\nAt the 18-second mark, {}",
        "t=12s {}\nt=18s {}",
        "<s0> <e12> {}\n<s12> <e18> {}",
        "(12, 18) {} (18, 20) {}",
        "00m12s-00m18s: {}\n00m18s-00m20s: {}",
    ],
)
def test_forms_of_time_are_named_and_removed(text: str) -> None:
    counts = MarkupCounts()
    filled = text.format("A man walks.", "He sits.")
    counts.add(filled)
    assert counts.unused([]) in (["time-stamps"], ["time-stamps", "markdown"])
    assert remove_markup(filled, ["time-stamps"]).split() == "A man walks. He sits.".split()


@pytest.mark.parametrize(
    "text",
    [
        "At 10:30 a man walks 2*3 steps. He waits. 10 to 15 seconds later he sits.",
        "From 10 to 20 people wait. From 9:00 to 17:00 is a day. 12:00-13:00 is lunch.",
        "The score is [3-2], and he was king (1990-1995). 10 - 15 seconds of rain fall.",
        "Frame by frame, scene 2 is shown: 3 men. In scene 1, a man walks.",
        "Sure, he walks. Certainly he does. Okay, they all leave.",
        "Here is a man who walks. Here comes a dog.",
        "Of course the user leaves. An assistant asks: are you a human? The answer: no.",
        "This is the story of a man: he walks.\nThe model\nwalks.",
        "[Music] A man walks. [1] {no JSON}",
        "a < b > c <i> and 3 < 4 s > 2",
        "He tells her: let me know if it rains. Then, feel free to go, he says, and leaves.",
    ],
)
def test_ordinary_prose_gets_no_notice_and_stays_as_it_is(text: str) -> None:
    counts = MarkupCounts()
    counts.add(text)
    assert counts.unused([]) == []
    assert remove_markup(text, ["think", "time-stamps", "chat"]) == text


@pytest.mark.parametrize("numbers", ["12", "ab", "AB", ("i", "ii")])
@pytest.mark.parametrize("form", ["{}. ", "({}) ", "[{}] ", "{}) "])
@pytest.mark.parametrize("between", ["\n", " "])
def test_letters_and_numbers_of_a_list_are_named_and_removed(
    numbers: Sequence[str], form: str, between: str
) -> None:
    first, second = map(form.format, numbers)
    text = f"{first}A man walks.{between}{second}He sits."
    counts = MarkupCounts()
    counts.add(text)
    assert counts.unused([]) == ["list-numbers"]
    assert remove_markup(text, ["list-numbers"]) == "A man walks.\n\nHe sits."


@pytest.mark.parametrize("form", ["{}.", "{}: ", "Event {}: ", "{} - "])
def test_numbers_of_a_list_are_named_and_removed(form: str) -> None:
    counts = MarkupCounts()
    text = f"{form.format(1)}A man walks.\n{form.format(2)}He sits."
    counts.add(text)
    assert counts.unused([]) == ["list-numbers"]
    assert remove_markup(text, ["list-numbers"]) == "A man walks.\n\nHe sits."


@pytest.mark.parametrize("bullet", ["■", "➤", "✓", "→", "–", "->", "=>", "~", "🎬", "▶️", "①"])
def test_bullets_are_named_and_removed(bullet: str) -> None:
    counts = MarkupCounts()
    counts.add(f"{bullet} A man walks\n{bullet} He sits")
    assert counts.unused([]) == ["markdown"]
    assert remove_markup(f"{bullet} A man", ["markdown"]) == "A man"


def test_words_cut_at_line_ends_are_named_and_joined() -> None:
    counts = MarkupCounts()
    counts.add("A man en-\nters a room.")
    assert counts.unused([]) == ["markdown"]
    assert remove_markup("A man en-\nters.", ["markdown"]) == "A man enters."


@pytest.mark.parametrize(("text", "expected"), [("[0:01] A man.", True), ("Frame 1: A.", False)])
def test_only_time_stamps_can_be_scored_by(text: str, expected: bool) -> None:
    counts = MarkupCounts()
    counts.add(text)
    assert counts.unused([]) == ["time-stamps"]
    assert (counts.found[KINDS[0]] == 1) == expected


def test_a_notice_has_counts_examples_and_what_removes_them() -> None:
    counts = MarkupCounts()
    for text in (
        "<think>x</think>A **man** walks.",
        "Frame 1: A man.</s>",
        "[0:01] He sits. (0:02) He runs.</s>",
        None,
    ):
        counts.add(text)
    assert counts.total == 4
    assert counts.unused(["chat"]) == ["time-stamps", "think", "markdown"]
    assert counts.shares(["time-stamps", "chat"]) == (
        "1 of 4 with time stamps ('[0:01]'), 1 of 4 with numbered labels ('Frame 1:'),"
        " 2 of 4 with special tokens ('</s>')"
    )


def test_a_prompt_without_an_answer_is_no_answer_but_its_text_is_kept() -> None:
    assert without_chat("USER: Describe it. ASSISTANT: ").strip() == "Describe it."
    several = "USER: one ASSISTANT: two USER: three ASSISTANT: four"
    assert without_chat(several).split() == ["two", "four"]


@pytest.mark.parametrize(
    "text",
    [
        "A man walks. A dog runs.",
        "  He lives at number\n5. Then he moves to 1.5 rooms.\n1984. Years pass.\n\n",
        "It is 2*3*4 or 3 * 4, 2*3 rooms in a 5* hotel, snake_case, f**k, C# and #1.",
        "[Music] (laughs) [Narrator]: Hello [1].",
        "He has 3 dogs. 2. The dogs bark. No list: 1.",
        "He met A. J. Smith. I. Newton came. He (a) sits or (b) stands: plan B. Then A.",
        "a < b > c | d -- e ~ f = g",
        "\r\n A man\twalks…\r\n",
        "他走了。狗跑了。",
    ],
)
def test_texts_without_markup_stay_as_they_are_to_the_byte(text: str) -> None:
    assert remove_markup(text, CLEANINGS) == text


@given(st.text("abc .,!?'\"é中\n\r\t", max_size=80))
def test_words_and_sentences_stay_as_they_are(text: str) -> None:
    assert remove_markup(text, CLEANINGS) == text


@given(marked, chosen)
def test_a_clean_text_stays_as_it_is(text: str, cleanings: set[str]) -> None:
    once = remove_markup(text, cleanings)
    assert remove_markup(once, cleanings) == once


@given(marked)
def test_cleaning_invents_no_words(text: str) -> None:
    assert set(remove_markup(text, CLEANINGS)) <= set(text) | set("\n, ")


def test_marks_nested_beyond_all_reason_are_removed_too() -> None:
    text = "[" * 30 + "a man" + "](b)" * 30
    assert remove_markup(text, ["markdown"]) == remove_markup(
        remove_markup(text, ["markdown"]), ["markdown"]
    )
    assert "[" not in remove_markup(text, ["markdown"])


UNITS = (
    *("*", "_", "`", "~", "#", "(", "](", "[x](", "![", " #", "*a ", "**a ", "_a ", "`a ", "~~a "),
    *("* a", " ", "\n", "1. ", ". 1. ", "1.\n", "(1) ", "Step ", "a   ", "- ", "> ", "a |"),
    *("<", "<think>", "</think>", "|", "[", "7", "</answer>", "<answer>", "<|", "<|im_start|>"),
    *("USER: ", "\nuser\n", "Sure! ", "Here is ", ". Let me know if", "\nFeel free to ", '{"a":'),
    *(
        '[{"text":"',
        "7:",
        "1:23",
        "1:23-",
        "1:23 - 1:24 ",
        "\n12 - ",
        ". 12 to 13 s",
        "From 1s to ",
    ),
    *(". From 1", "\nFrame 3", "Frame 3(", "<12 - ", "[1-2", "1\n", "-->", '!" ', ". *", "\n- - "),
)


def seconds_for(text: str) -> float:
    best = math.inf
    for _ in range(3):
        before = time.thread_time()
        remove_markup(text, CLEANINGS)
        MarkupCounts().add(text)
        best = min(best, time.thread_time() - before)
    return best


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("before", ["", "a", "-", "Here is ", '{"text": "'])
def test_hostile_texts_take_linear_time(unit: str, before: str) -> None:
    short, long = (before + unit * (size // len(unit)) + "!" for size in (6_000, 24_000))
    # A busy machine may disturb one measurement, and not all of them.
    assert any(seconds_for(long) < 6 * seconds_for(short) for _ in range(4))
