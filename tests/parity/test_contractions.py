"""Our contractions against the package that the authors use."""

from __future__ import annotations

# Where the package differs on purpose or by accident; each is explained in
# `vcs_runtime.text.cleaning`' docstring or too rare in descriptions to carry.
KNOWN = {
    "I'm'a",
    "I'm'o",
    "how'd'y",  # two apostrophes, dialect
    "daresn't",
    "dasn't",
    "gon't",
    "sha'n't",
    "shalln't",  # dialect
    "o'",
    "ol'",  # an apostrophe at the end may close a quotation
    "'em",  # with a typographic apostrophe the package puts a second blank before "them"
    "you'll've",  # the package: "you shall have"
}


def test_every_form_with_an_apostrophe_is_written_out_alike() -> None:
    import contractions

    from vcs_runtime.text.cleaning import expand_contractions

    forms = [form for form in contractions.contractions_dict if "'" in form or "’" in form]
    assert len(forms) > 250
    different = set()
    for form in forms:
        for text in (form, f"So {form} there.", f"“{form}” he said"):
            if expand_contractions(text) != contractions.fix(text):
                different.add(form.replace("’", "'"))
    assert different == KNOWN
