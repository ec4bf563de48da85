"""Count which of the authors' own rewrites would be accepted as answers of a model.

    python benchmarks/rewrites.py DATA/vcs-eval

Sentences are counted by the rules of the embedded default. Only numbers and reasons are printed, no text.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from vcs_experiments.datasets.texts import Problems, read_cases
from vcs_experiments.rewriting.answers import checked
from vcs_experiments.rewriting.kinds import KINDS
from vcs_runtime.errors import TextError
from vcs_runtime.segmentation.segmenter import Segmenter


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    data = parser.parse_args().data
    kinds, asked, refused = {kind.name: kind for kind in KINDS}, Counter[str](), Counter[tuple[str, str]]()
    with Segmenter.open("default", "cpu") as segmenter:

        def sentences(text: str) -> int | None:
            found = segmenter.sentences(text, "text")
            return None if found is None else len(found)

        for case in read_cases(data, Problems()):
            if case.name in kinds:
                asked[case.name] += 1
                try:
                    checked(case.generated, case.reference, kinds[case.name], sentences)
                except TextError as error:
                    refused[case.name, str(error).partition(" (")[0]] += 1
    print(f"{asked.total()} rewrites of {len(asked)} kinds, {refused.total()} refused")
    for (name, reason), count in refused.items():
        print(f"{count} of {asked[name]}, {name}: {reason}")


if __name__ == "__main__":
    main()
