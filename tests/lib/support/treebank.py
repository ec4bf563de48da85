"""Texts and their words as CoreNLP 3.4.1 writes them, in lower case, without punctuation."""

from __future__ import annotations

WRITTEN = {
    "A man's dog can't (really) run -- \"fast\" -- he's here.": (
        "a man 's dog ca n't -lrb- really -rrb- run fast he 's here"
    ),
    "They cannot, won't and don’t; I'm gonna GO!": "they can not wo n't and do n't i 'm gon na go",
    "A well-known mother-in-law's t-shirt, 10-year-old x-rays.": (
        "a well-known mother-in-law 's t-shirt 10-year-old x-rays"
    ),
    "Mr. Smith left at 5:30 p.m. on Jan. 5 for the U.S. and Washington, D.C. again": (
        "mr. smith left at 5:30 p.m. on jan. 5 for the u.s. and washington d.c. again"
    ),
    "Plan A. The end. J. K. Rowling, vitamin C. for all": (
        "plan a the end j. k. rowling vitamin c. for all"
    ),
    "It cost $5.50, £5 or 50% of 1,000.50": "it cost $ 5.50 # 5 or 50 % of 1,000.50",
    "and/or his/her 3/4 cup on 3/4/2010": "and/or his/her 3/4 cup on 3/4/2010",
    "the '90s, 'em and rock 'n' roll at five o'clock": (
        "the '90s 'em and rock 'n' roll at five o'clock"
    ),
    "wait...what? yes!! no—never… [sic] {x}": (
        "wait what yes !! no never -lsb- sic -rsb- -lcb- x -rcb-"
    ),
    "end.Next foo_bar café naïve-looking 20°C AT&T": (
        "end.next foo_bar café naïve-looking 20 ° c at&t"
    ),
    "the dogs' toys, y’all": "the dogs toys y’ all",
    "@bob #tag www.example.com a@b.org <b>bold</b> :-)": (
        "@bob #tag www.example.com a@b.org <b> bold </b> :--rrb-"
    ),
    "no. 5 but no. Never in Mass. or mass. Either": "no. 5 but no never in mass. or mass either",
}
"""The words of each text, joined by spaces."""
