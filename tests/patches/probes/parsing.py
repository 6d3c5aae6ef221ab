"""Tool calls out of generated text."""

from __future__ import annotations

import json
import random
from typing import Any

from probes.registry import Surroundings, probe

SPECIAL = {"<think>": 1, "</think>": 2, "<tool_call>": 3, "</tool_call>": 4, "<|im_start|>": 5, "<|im_end|>": 6}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "write",
            "parameters": {
                "type": "object",
                "properties": {
                    "path": {"type": "string"},
                    "text": {"type": "string"},
                    "mode": {"type": "integer"},
                },
            },
        },
    }
]


class _Tokenizer:
    """Knows the special tokens only; the parser is fed text."""

    def get_vocab(self) -> dict[str, int]:
        return dict(SPECIAL)

    def encode(self, text: str, **_: Any) -> list[int]:
        return [SPECIAL[text]] if text in SPECIAL else []

    def decode(self, ids: list[int], **_: Any) -> str:
        names = {number: text for text, number in SPECIAL.items()}
        return "".join(names.get(number, "") for number in ids)

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [self.decode([number]) for number in ids]


def _request() -> Any:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    return ChatCompletionRequest(model="q", messages=[{"role": "user", "content": "x"}], tools=TOOLS)


def _parser() -> Any:
    from vllm.parser.qwen3 import Qwen3Parser

    request = _request()
    tokenizer: Any = _Tokenizer()
    return Qwen3Parser(tokenizer, request.tools, chat_template_kwargs={"enable_thinking": False})


def pieces(text: str, size: int) -> list[str]:
    """`text` as a model streams it: a special token is never split."""
    parts: list[str] = []
    while text:
        special = next((name for name in SPECIAL if text.startswith(name)), None)
        cut = len(special) if special else size
        if special is None:
            ahead = [at for name in SPECIAL if 0 < (at := text.find(name)) < cut]
            cut = min([cut, *ahead])
        parts.append(text[:cut])
        text = text[cut:]
    return parts


def streamed(text: str, size: int) -> str:
    """The arguments that a client holds after the stream of `text` ended."""
    parser, request = _parser(), _request()
    arguments = ""
    parts = pieces(text, size)
    for index, part in enumerate(parts):
        ids = [SPECIAL[part]] if part in SPECIAL else [99]
        delta = parser.parse_delta(part, ids, request, [], finished=index == len(parts) - 1)
        for call in (delta.tool_calls if delta else None) or []:
            if call.function and call.function.arguments:
                arguments += call.function.arguments
    return arguments


def at_once(text: str) -> str:
    """The arguments that a client gets without streaming."""
    found = _parser().extract_tool_calls(text, _request())
    return str(found.tool_calls[0].function.arguments)


def call(**values: str) -> str:
    body = "".join(f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in values.items())
    return f"<tool_call>\n<function=write>\n{body}</function>\n</tool_call>"


@probe("tool-call-close-truncated")
def a_cut_off_call_ends_as_json(s: Surroundings) -> None:
    whole = call(path="a.py", text='he said "hello\\n" and\nwent {on}', mode="420")
    cut = whole.index("went") + 2
    for size in (1, 3, 40):
        held = streamed(whole[:cut], size)
        try:
            value = json.loads(held)
        except json.JSONDecodeError:
            raise AssertionError(f"the client holds {held!r}") from None
        assert value["path"] == "a.py", value
        assert value["text"].startswith('he said "hello\\n" and\nwe'), value
    for cut in range(whole.index("<parameter=path>") + 18, len(whole)):
        held = streamed(whole[:cut], 5)
        if held:
            json.loads(held)  # wherever it is cut
    for size in (1, 2, 7, 1000):
        assert json.loads(streamed(whole, size)) == json.loads(at_once(whole)), "a whole call is as before"


@probe("tool-call-nested-parameter-tag")
def an_argument_may_speak_of_parameter_tags(s: Surroundings) -> None:
    text = "x <parameter=b>y</parameter> done"
    found = json.loads(at_once(call(path="a.xml", text=text)))
    assert found == {"path": "a.xml", "text": text}, f"the call came out as {found}"
    closed = json.loads(at_once(call(text="no </parameter> here", path="p")))
    assert closed == {"text": "no </parameter> here", "path": "p"}, closed
    dice = random.Random(7)
    words = [
        "a",
        " ",
        "\n",
        "<",
        ">",
        "<parameter=b>",
        "</parameter> z",
        "<parameter",
        "<function",
        '"',
        "\\",
        "é",
        "{",
    ]
    for _ in range(150):
        value = "v" + "".join(dice.choice(words) for _ in range(dice.randrange(8))) + "w"
        message = call(path="p", text=value)
        expected = json.loads(at_once(message))
        assert expected == {"path": "p", "text": value}, (value, expected)
        for size in (1, 3, 11):
            held = streamed(message, size)
            assert json.loads(held) == expected, f"streamed by {size}: {held!r}, at once: {expected}"
