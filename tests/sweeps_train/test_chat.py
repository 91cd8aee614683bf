"""Chats rendered by the templates of real models, which TRL ships, with the tokens that the assistant wrote."""

from __future__ import annotations

import functools
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from sweeps_train.data.chat import ChatEncoder

_SPEC = find_spec("trl")
assert _SPEC is not None
assert _SPEC.origin is not None
TEMPLATES = Path(_SPEC.origin).parent / "chat_templates"

QUESTION, ANSWER = {"role": "user", "content": "What is 2+2?"}, {"role": "assistant", "content": "Four, of course."}
CHAT = [QUESTION, ANSWER, {"role": "user", "content": "And 3+3? Four?"}, {"role": "assistant", "content": " Six.\n"}]
SYSTEM = {"role": "system", "content": "Be short."}

ENDS = {
    "llama3": "<|eot_id|>",
    "llama3_1": "<|eot_id|>",
    "llama3_2": "<|eot_id|>",
    "qwen2_5": "<|im_end|>",
    "qwen3_instruct_2507": "<|im_end|>",
    "gemma": "<end_of_turn>",
    "gemma3": "<end_of_turn>",
    "phi3_5": "<|end|>",
    "cohere": "<|END_OF_TURN_TOKEN|>",
}
"""Special token by which a model ends its turn."""
WITHOUT_SYSTEM = ("gemma",)
MARKED = [path.stem for path in TEMPLATES.glob("*_training.jinja")]
REFUSED = {"deepseek_r1_distill", "deepseekv3", "idefics3", "llava_next", "smolvlm"} | {
    f"nemotron_3{each}" for each in ("_5_lightning", "_nano", "_super", "_ultra")
}
"""Templates of models that think before they answer, or see images."""


@functools.cache
def tokenizer(template: str) -> PreTrainedTokenizerFast:
    """Byte tokenizer with a chat template, and with the special tokens that the template writes."""
    vocabulary = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    bytes_only = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    bytes_only.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_only.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=bytes_only, eos_token="<|endoftext|>", bos_token="<s>")
    special = sorted(set(re.findall(r"<\|\w+\|>|<(?:start|end)_of_turn>", template)) - {"<|endoftext|>"})
    made.add_special_tokens({"additional_special_tokens": special})
    made.chat_template = template
    return made


def written_by_the_assistant(template: str, messages: list[dict[str, Any]]) -> str:
    reader = tokenizer(template)
    ids, mask = ChatEncoder(reader).encode(messages)
    assert ids == reader(reader.apply_chat_template(messages, tokenize=False), add_special_tokens=False).input_ids
    return str(reader.decode([token for token, counts in zip(ids, mask, strict=True) if counts]))


def read(name: str) -> str:
    return (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ENDS)
def test_the_assistants_turns_of_a_real_template_are_counted_with_their_ends(name: str) -> None:
    end = ENDS[name]
    for before in ([], [SYSTEM]) if name not in WITHOUT_SYSTEM else ([],):
        written = written_by_the_assistant(read(name), [*before, *CHAT])
        answers = written.split(end)
        assert [answers[0], answers[1].strip(), *answers[2:]] == ["Four, of course.", "Six.", ""]


@pytest.mark.parametrize("name", ["llama3", "qwen2_5", "qwen3_instruct_2507"])
def test_a_turn_of_the_assistant_that_begins_the_chat_is_counted(name: str) -> None:
    written = written_by_the_assistant(read(name), [{"role": "assistant", "content": "Ask me."}, *CHAT])
    answers = written.split(ENDS[name])
    assert [answers[0], answers[1], answers[2].strip(), *answers[3:]] == ["Ask me.", "Four, of course.", "Six.", ""]


@pytest.mark.parametrize("name", sorted({name.removesuffix("_training") for name in MARKED} - REFUSED))
def test_no_more_is_counted_than_where_the_template_marks_the_assistants_turns(name: str) -> None:
    """TRL has versions of the templates with marks; white space after the end of a turn, which no model writes, is the
    one difference."""
    found = written_by_the_assistant(read(name), [QUESTION, ANSWER])
    marked = written_by_the_assistant(read(f"{name}_training"), [QUESTION, ANSWER])
    assert "Four, of course." in found
    assert "What" not in found
    assert re.sub(r"\s", "", found) in re.sub(r"\s", "", marked)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_template_whose_turns_cannot_be_told_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"set model\.tokenizer|leaves out|does not fit"):
        written_by_the_assistant(read(name), [QUESTION, ANSWER])


def test_a_thinking_template_that_renders_history_otherwise_is_followed_by_its_special_tokens() -> None:
    written = written_by_the_assistant(read("qwen3"), CHAT)
    assert re.sub(r"\s+", " ", written) == "Four, of course.<|im_end|><think> </think> Six. <|im_end|>"


@pytest.mark.parametrize("chat", [CHAT[1:], [{"role": "assistant", "content": ""}, *CHAT]])
def test_only_the_assistants_marked_turns_count_also_one_that_begins_the_chat_or_is_empty(
    chat: list[dict[str, Any]],
) -> None:
    marked = "{% generation %}{{ m.content }}{% endgeneration %}"
    template = "{% for m in messages %}{% if m.role == 'assistant' %}" + marked
    template += "{% else %}<|user|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    short = [each if each is not ANSWER else {**ANSWER, "content": "A"} for each in chat]
    expected = "".join(each["content"] for each in short if each["role"] == "assistant")
    assert written_by_the_assistant(template, short) == expected


def test_an_empty_marked_turn_within_a_token_does_not_count_it() -> None:
    words = Tokenizer(models.WordLevel({"[UNK]": 0, "one": 1, "ask": 2}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    reader = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]")
    reader.chat_template = "{% for m in messages %}{{ m.before }}{% generation %}{{ m.content }}{% endgeneration %}"
    reader.chat_template += "{{ m.after }}{% endfor %}"
    chat = [
        {"role": "assistant", "before": "o", "content": "", "after": "ne "},
        {"role": "assistant", "before": "", "content": "ask", "after": ""},
    ]
    assert ChatEncoder(reader).encode(chat) == ([1, 2], [False, True])


@pytest.mark.parametrize("template", ["{{ messages }}", "{% generation %}{{ messages }}{% endgeneration %}"])
def test_a_chat_without_messages_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="it has no messages; remove empty chats"):
        ChatEncoder(tokenizer(template)).encode([])


def test_a_marked_turn_ends_with_its_last_token_where_the_tokenizer_drops_white_space() -> None:
    words = Tokenizer(models.WordLevel({"[UNK]": 0, "ask": 1, "answer": 2, "more": 3}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    reader = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]")
    marked = "{% generation %}{{ ' ' + m.content + '\n' }}{% endgeneration %}"
    reader.chat_template = "{% for m in messages %}{% if m.role == 'assistant' %}" + marked
    reader.chat_template += "{% else %}{{ m.content }} {% endif %}{% endfor %}"
    chat = [
        {"role": role, "content": text} for role, text in (("user", "ask"), ("assistant", "answer"), ("user", "more"))
    ]
    assert ChatEncoder(reader).encode(chat) == ([1, 2, 3], [False, True, False])


def test_a_template_that_hides_where_the_assistant_begins_is_refused() -> None:
    template = "{% for m in messages %}{{ m.content }} {% endfor %}{% if add_generation_prompt %}BOT{% endif %}"
    for number, chat in ((2, CHAT), (1, CHAT[1:])):
        with pytest.raises(
            ValueError, match=rf"before message {number} when .*\(\{{% generation %\}}\).*data\.prompt_field"
        ):
            ChatEncoder(tokenizer(template)).encode(chat)


@pytest.mark.parametrize("content", ["", [{"type": "text", "text": "Four."}]])
def test_a_turn_without_text_is_refused(content: Any) -> None:
    with pytest.raises(
        ValueError, match=re.escape(f"message 2, of the assistant, has no text: its content is {content!r}")
    ):
        ChatEncoder(tokenizer(read("llama3"))).encode([QUESTION, {"role": "assistant", "content": content}])


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([*CHAT, {"from": "gpt", "value": "Hello"}], "no role but from, value"),
        ([*CHAT, {"role": "Assistant", "content": "Six."}], "the role 'Assistant'"),
        ([*CHAT, {"role": "model", "content": "Four."}], "the role 'model'"),
    ],
)
def test_answers_by_other_names_are_left_out_with_one_warning(
    messages: Any, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    encoder = ChatEncoder(tokenizer("{% for m in messages %}{{ m.role }}: {{ m.content }}<|end|>{% endfor %}"))
    for _ in range(2):
        assert sum(encoder.encode(messages)[1]) == sum(encoder.encode(CHAT)[1]) > 0
    assert [f"messages with {words}, which the loss does not count" in each for each in caplog.messages] == [True]


@pytest.mark.parametrize(
    ("messages", "are"),
    [
        ('[{"role": "user", "content": "Hi"}]', "a text"),
        ({"role": "user", "content": "Hi"}, "{'role': 'user', 'content': 'Hi'}"),
        (["Hi", "Hello"], "['Hi', 'Hello']"),
        (5, "5"),
    ],
)
def test_what_is_no_list_of_messages_is_refused(messages: Any, are: str) -> None:
    for template in ("llama3", "llama3_training"):
        with pytest.raises(ValueError, match=f"its messages are {re.escape(are)}; give a list"):
            ChatEncoder(tokenizer(read(template))).encode(messages)


def test_a_tokenizer_in_python_is_refused() -> None:
    reader = ByT5Tokenizer()
    reader.chat_template = "{{ messages }}"
    with pytest.raises(ValueError, match="ByT5Tokenizer is written in Python"):
        ChatEncoder(reader)
