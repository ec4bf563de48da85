"""Building `libvcs_runtime`, a shared library of `library.c` and the code that cffi generates.

The library is bound to this interpreter and this environment: it starts this Python with these
packages.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shlex
import shutil
import site
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vcs_runtime._version import __version__
from vcs_runtime.capi.binding import PROTOTYPES, VCS_ABI_VERSION
from vcs_runtime.errors import BuildError
from vcs_runtime.util.atomic import flush, made_folder, replaced
from vcs_runtime.util.extras import require

_HERE = Path(__file__).parent
_MODULE = "_libvcs_runtime"
HEADER = "vcs_runtime.h"
LIBRARY = "libvcs_runtime.so"
SONAME = f"{LIBRARY}.{VCS_ABI_VERSION}"
STRICT = ("-Wall", "-Wextra", "-Werror")


@dataclass(frozen=True)
class Built:
    """A built library, beside its header and `vcs_runtime.pc`, and the Python that it starts."""

    file: Path
    interpreter: str
    python: Path
    packages: list[str]


@dataclass(frozen=True)
class Tools:
    """The tools for building."""

    compiler: list[str]
    python: Path
    include: str


def find_tools() -> Tools:
    """Find the tools. Raises BuildError with the name of a missing tool and how to get it."""
    if sys.platform != "linux" or platform.python_implementation() != "CPython":
        raise BuildError("the C API can only be built on Linux with CPython")
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if not compiler or shutil.which(compiler[0]) is None:
        raise BuildError(
            f"there is no C compiler {' '.join(compiler)!r}: install it, or name another in $CC"
        )
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").is_file():
        raise BuildError(
            f"{include} has no Python.h: install Python's headers (Debian: python3-dev)"
        )
    name = sysconfig.get_config_var("INSTSONAME") or ""
    python = Path(sysconfig.get_config_var("LIBDIR") or "", name)
    if ".so" not in name or not python.is_file():
        raise BuildError(
            f"{sys.executable} has no shared library of Python ({name or 'none'}): install it "
            "(Debian: libpython3-dev), or use a Python built with --enable-shared"
        )
    return Tools(compiler, python, include)


def build(folder: Path) -> Built:
    """Build the library with its header and `vcs_runtime.pc`, all of them or none.

    Raises BuildError.
    """
    for name in (SONAME, HEADER, "vcs_runtime.pc"):
        path = folder / name
        if path.is_file() and not path.is_symlink() and b"vcs_runtime" not in path.read_bytes():
            raise BuildError(f"{path} is not a file of this library and would be replaced: move it")
    tools = find_tools()
    python = tools.python
    packages = [os.path.abspath(path) for path in site.getsitepackages()]
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        _generate(work / f"{_MODULE}.c", packages)
        # Only the functions of the header are visible, so that neither Python's start-up nor a
        # second cffi library in the same process finds our other symbols.
        names = " ".join(f"{name};" for name in PROTOTYPES)
        (work / "exports").write_text(f"{{ global: {names} local: *; }};\n")
        compile_c(
            [work / f"{_MODULE}.c", python],
            work / SONAME,
            "-shared",
            "-fPIC",
            "-Wall",
            f"-I{source('include')}",
            f"-I{tools.include}",
            f"-Wl,-soname,{SONAME}",
            f"-Wl,--version-script={work / 'exports'}",
            f"-Wl,-rpath,{python.parent}",
            "-Wl,-z,defs",
            "-Wl,-z,nodelete",  # Python cannot be unloaded, so its callbacks must stay
            "-pthread",
            "-ldl",
        )
        files = {
            "vcs_runtime.pc": _PKG_CONFIG.format(version=__version__).encode(),
            SONAME: (work / SONAME).read_bytes(),
            HEADER: (source("include") / HEADER).read_bytes(),
        }
        with made_folder(folder), contextlib.ExitStack() as stack:
            # A program may have the old library open, so no file is replaced until all new files
            # are on the disk.
            for name, content in files.items():
                file = stack.enter_context(replaced(folder / name))
                file.write(content)
                flush(file)
                if name == SONAME:
                    shutil.copymode(work / name, file.name)
    _link(folder / LIBRARY, SONAME)
    return Built(folder / LIBRARY, sys.executable, python, packages)


def compile_c(sources: Sequence[Path], target: Path, *options: str) -> None:
    """Run the C compiler (`$CC`, else `cc`). Raises BuildError with the compiler's messages."""
    command = [*find_tools().compiler, "-O2", "-o", str(target), *map(str, sources), *options]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        raise BuildError(f"{shlex.join(command)}:\n{error.stderr.strip()}") from None


def source(name: str) -> Path:
    """Return the folder "include" or "examples".

    The folder is in the installed package, or next to the package in a source checkout.
    """
    installed, checkout = _HERE / name, _HERE.parents[1] / name
    return installed if installed.is_dir() else checkout


def _generate(target: Path, packages: list[str]) -> None:
    cffi = require("cffi", "capi", "building the C API")
    code = (_HERE / "library.c").read_text("utf-8")
    bound = {
        "EXECUTABLE": sys.executable,
        "PACKAGES": repr(packages),
        "NAME": f"{sys.executable}, Python {platform.python_version()}",
    }
    defines = ""
    for key, text in bound.items():
        # A JSON string is also a C string, unless it escapes half a surrogate pair as \u.
        defines += f"#define BOUND_{key} {json.dumps(text, ensure_ascii=False)}\n"
    ffi = cffi.FFI()
    ffi.embedding_api("")
    functions = re.findall(r"^static (\w+ python_\w+\(.*?\);)", code, re.MULTILINE)
    ffi.cdef('extern "Python" {' + "\n".join(functions) + "}")
    ffi.embedding_init_code(
        f"from {_MODULE} import ffi\nfrom vcs_runtime.capi.embedded import connect\nconnect(ffi)\n"
    )
    ffi.set_source(_MODULE, defines + code)
    with contextlib.redirect_stdout(None):  # cffi prints the name of the file
        ffi.emit_c_code(os.fspath(target))


def _link(link: Path, target: str) -> None:
    if not link.is_symlink() or os.readlink(link) != target:
        link.unlink(missing_ok=True)
        link.symlink_to(target)


_PKG_CONFIG = """\
prefix=${{pcfiledir}}

Name: vcs_runtime
Description: The Video Comprehension Score, offline
Version: {version}
Cflags: -I${{prefix}}
Libs: -L${{prefix}} -lvcs_runtime
"""
