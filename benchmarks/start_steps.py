"""What `start.py` runs in processes of its own. Nothing is imported here that the measured code could import.

python benchmarks/start_steps.py program|steps BUNDLE
"""

import os
import sys
import time

EXAMPLES = os.path.join(os.path.dirname(__file__), "../docs/examples")
TEXTS = []
for name in ("reference.txt", "generated.txt"):
    with open(os.path.join(EXAMPLES, name), encoding="utf-8") as file:
        TEXTS.append(file.read())


def program(bundle: str) -> None:
    """Score one pair as a program does, and print the milliseconds of its parts."""
    at = [time.perf_counter()]
    from vcs_runtime import Scorer

    at.append(time.perf_counter())
    scorer = Scorer.open(bundle, "cpu")
    at.append(time.perf_counter())
    scorer.score(*TEXTS)
    at.append(time.perf_counter())
    parts = {
        name: 1e3 * (at[i + 1] - at[i]) for i, name in enumerate(("import", "Scorer.open", "first score"))
    }
    show(parts | {"import, open and first score": 1e3 * (at[-1] - at[0])})


def steps(bundle: str) -> None:
    """Do what a first score needs, one step at a time, and print the milliseconds of each."""
    found: dict[str, float] = {}

    def step(name: str, work):
        started = time.perf_counter()
        result = work()
        found[name] = 1e3 * (time.perf_counter() - started)
        return result

    for package in ("numpy", "msgspec", "tokenizers", "onnxruntime", "numba"):
        if package == "onnxruntime":
            os.environ["ORT_DISABLE_TELEMETRY"] = "1"
        step(f"import {package}", lambda package=package: __import__(package))
    step("import vcs_runtime and the rest", lambda: __import__("vcs_runtime.scoring.scorer"))
    from vcs_numba.batch import _SCORE_GATHERED
    from vcs_numba.embeddings import _DOT_PRODUCTS
    from vcs_runtime import Scorer
    from vcs_runtime.bundle import opening
    from vcs_runtime.inference.embedder import Embedder
    from vcs_runtime.inference.tokenizer import load_tokenizer
    from vcs_runtime.segmentation.segmenter import Segmenter

    root = opening.bundle_folder(bundle)
    manifest = opening.read_manifest(root / opening.MANIFEST)
    step("hash the bundle", lambda: opening.verify_files(root, manifest))
    opened = opening.Bundle(root.resolve(), manifest)
    step("check its graphs", lambda: opening.check_graphs(opened))
    step("read the tokenizer", lambda: load_tokenizer(opened.path(manifest.embedder.tokenizer)))
    embedder = step("tokenizer, and open the model", lambda: Embedder.open(opened, "cpu"))
    step("open the rules", lambda: Segmenter.open(opened, "cpu"))
    step("read the kernels", lambda: [kernel.load() for kernel in (_DOT_PRODUCTS, _SCORE_GATHERED["d"])])
    step("run the model once", lambda: embedder.embed(["A man opens the door."]))
    with Scorer.open(opened, "cpu") as scorer:
        step("score the pair", lambda: scorer.score(*TEXTS))
    show(found)


def show(milliseconds: dict[str, float]) -> None:
    import json

    print(json.dumps(milliseconds))


if __name__ == "__main__":
    {"program": program, "steps": steps}[sys.argv[1]](sys.argv[2])
