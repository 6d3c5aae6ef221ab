# mypy: disable-error-code="import-not-found, misc"
"""Run inside a vLLM release: says what that release thinks of engine plans.

stdin: JSON {"target": config.json, "drafter": config.json, "plans": [{"id", "args", "env", "capability"}, ...]}
last line of stdout: JSON list of {"id": ..., "complaints": [...]}

Judges are vLLM's own: the parser of `vllm serve` reading the YAML, the subcommand's validation, the dataclasses behind
JSON options, the configuration of a whole engine for a model of the real shape on CUDA cards of that capability, the
registry of environment variables and its readers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import re
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from fake_gpu import FakeGpu  # first: it prepares the platform

# isort: split
import vllm.envs
import yaml
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from vllm.config import CompilationConfig, SpeculativeConfig
from vllm.config.compilation import PassConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.cli.serve import ServeSubcommand
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.attention.backends.registry import AttentionBackendEnum

# JSON option -> class that vLLM builds from it later than the parser
# Every assignment is judged with those before it, and most fields need these two.
FIRST = ("num_speculative_tokens", "method")
CLASSES = {"speculative-config": SpeculativeConfig, "compilation-config": CompilationConfig}
MARKS = ["<think>", "</think>", "<tool_call>", "</tool_call>"]


def main() -> None:
    """Judge every plan and print the complaints."""
    asked = json.load(sys.stdin)
    parser = FlexibleArgumentParser(prog="vllm")
    serve = ServeSubcommand().subparser_init(parser.add_subparsers(dest="subparser"))
    with tempfile.TemporaryDirectory() as folder:
        target, drafter = (_checkpoint(Path(folder, name), asked[name]) for name in ("target", "drafter"))
        found = []
        for plan in asked["plans"]:
            complaints = of_arguments(parser, serve, plan["args"]) + of_variables(plan["env"])
            FakeGpu.capability = tuple(plan["capability"])
            complaints = complaints or of_engine(parser, plan["args"], target, drafter)
            found.append({"id": plan["id"], "complaints": complaints})
    print(json.dumps(found))


def _checkpoint(folder: Path, config: dict[str, Any]) -> str:
    """A checkpoint's directory without weights: its configuration, and a tokenizer that knows the model's marks."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = Tokenizer(WordLevel({"<unk>": 0}, unk_token="<unk>"))
    tokenizer.add_special_tokens(MARKS)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return str(folder)


def of_engine(parser: Any, args: dict[str, Any], target: str, drafter: str) -> list[str]:
    """What vLLM has against the whole engine: its configuration is built as at a start, for a model of this shape."""
    option = args.get("speculative-config")
    own = {**args, "model": target}
    if option is not None and "model" in option:
        own["speculative-config"] = {**option, "model": drafter}
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(own, file, sort_keys=False)
        file.flush()
        try:
            config = AsyncEngineArgs.from_cli_args(
                parser.parse_args(["serve", "--config", file.name])
            ).create_engine_config()
        except Exception as error:
            return [f"engine: {type(error).__name__}: {error}"]
    wanted = args.get("block-size")
    got = config.cache_config.block_size
    return [f"block-size: {wanted} arrives as {got}"] if wanted is not None and got != wanted else []


def of_arguments(parser: Any, serve: Any, args: dict[str, Any]) -> list[str]:
    """What the parser, the subcommand and the option's classes have against the YAML."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(args, file, sort_keys=False)
        file.flush()
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                parsed = parser.parse_args(["serve", "--config", file.name])
                ServeSubcommand().validate(parsed)
        except SystemExit:
            return [said.getvalue().strip()]
        except Exception as error:
            return [f"{type(error).__name__}: {error}"]
    complaints = [text for key, value in args.items() for text in without_effect(serve, parsed, key, value)]
    for option, cls in CLASSES.items():
        if option in args:
            complaints += of_class(option, cls, args[option])
    if isinstance(args.get("compilation-config"), dict):
        complaints += of_class("pass_config", PassConfig, args["compilation-config"].get("pass_config", {}))
    if args["attention-backend"] not in AttentionBackendEnum.__members__:
        complaints.append(f"no attention backend {args['attention-backend']}")
    return complaints


def without_effect(serve: Any, parsed: Any, key: str, value: Any) -> list[str]:
    """Keys that vLLM reads without an error and then ignores."""
    action = serve._option_string_actions.get(f"--{key}")
    if action is None:
        return [f"--{key} is no option by this name"]
    got = getattr(parsed, action.dest)
    if isinstance(value, bool):
        off = key.startswith("no-") or (key.startswith("disable-") and not action.dest.startswith("disable"))
        wanted: Any = (not value) if off else value
        return [] if got is wanted else [f"{key}: {value} leaves {action.dest} at {got}"]
    if isinstance(value, (int, float, str)) and type(got) in (int, float, str) and str(got) != str(value):
        return [f"{key}: {value} arrives as {got}"]
    return []


def of_class(option: str, cls: Any, given: dict[str, Any]) -> list[str]:
    """Fields that the class lacks, and values that its own validators refuse."""
    fields = {field.name for field in dataclasses.fields(cls)}
    complaints = [f"{option}: {cls.__name__} has no {key}" for key in given if key not in fields]
    blank = unloaded(cls)
    for key in sorted(fields & given.keys(), key=lambda key: (FIRST.index(key) if key in FIRST else len(FIRST), key)):
        try:
            cls.__pydantic_validator__.validate_assignment(blank, key, given[key])
        except ValueError as error:
            complaints.append(f"{option}.{key}: {error}")
    return complaints


def unloaded(cls: Any) -> Any:
    """An instance that holds defaults only: the constructor wants a loaded model, the field validators do not."""
    blank = cls.__new__(cls)
    for name, info in cls.__pydantic_fields__.items():
        if not info.is_required():
            blank.__dict__[name] = info.get_default(call_default_factory=True, validated_data={})
    return blank


def of_variables(env: dict[str, str]) -> list[str]:
    """Names that look like vLLM's and are not registered, values that its own readers refuse, kernels that are not."""
    complaints = []
    known = vllm.envs.environment_variables
    for name, value in env.items():
        if name not in known:
            if name.startswith("VLLM_"):
                complaints.append(f"vLLM registers no variable {name}")
            continue
        os.environ[name] = value
        try:
            known[name]()
        except Exception as error:
            complaints.append(f"{name}={value}: {error}")
        finally:
            del os.environ[name]
    kernels = env.get("VLLM_DISABLED_KERNELS", "").split(",")
    return complaints + [
        f"no linear kernel {kernel}" for kernel in kernels if kernel and kernel not in linear_kernels()
    ]


@cache
def linear_kernels() -> frozenset[str]:
    """Classes of the linear kernels, read from the source: importing them asks for a GPU."""
    folder = Path(vllm.envs.__file__).parent / "model_executor" / "kernels" / "linear"
    sources = "".join(path.read_text() for path in folder.rglob("*.py"))
    return frozenset(re.findall(r"^class (\w+Kernel)\b", sources, re.MULTILINE))


if __name__ == "__main__":
    main()
