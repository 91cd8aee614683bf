"""Hides passwords and tokens in recorded text."""

from __future__ import annotations

import os
import re
from functools import cache

from sweeps.texts.uri_passwords import DATABASE_PASSWORD_IN_TEXT

HIDDEN = "***"

# The time of each pattern is linear in the length of any text, also of a hostile one: none begins with a repetition,
# and repetitions are possessive (`++`). tests/provenance/test_linear_texts.py checks that.
_NAMES = r"(?:passwords?|passwd|secrets?|token|api_?keys?|access_?key|credentials?|private_?key)"
_NAMED_LITERAL = re.compile(rf"(?i)({_NAMES}[\"']?\s*+[=:]\s*+)([\"'])(?!\s*+\2)[^\"'\n]++\2")
_NAMED_WORD = re.compile(rf"(?i)({_NAMES}=)(?![\"'])[^\s&,;\"']+")
_ADDRESS = re.compile(r"(\w://[^\s:/@]*+):[^\s/@]++@")
_KNOWN = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{20,}"
    r"|sweeps_[A-Za-z0-9_-]{43}|AKIA[A-Z0-9]{16}|xox[abprs]-[\w-]{10,})"
)
_JSON_WEB_TOKEN = re.compile(r"(?<![\w-])(?=[\w-]++\.[\w-]{10,}+\.)([\w-]*?)\beyJ[\w-]{10,}+\.[\w-]{10,}+\.[\w-]*+")
"""Pattern of a JSON web token. A token is looked for only in words that also contain its later parts."""
KEY_BLOCK = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)


_SECRET_VARIABLE = re.compile(r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|KEY)$")
_SHORTEST_SECRET = 8
"""Minimum length of a variable's value to be hidden: shorter ones are words that text may contain for other reasons."""


def without_variables(text: str) -> str:
    """Return text without the values of environment variables that are named like a secret (``HF_TOKEN``,
    ``WANDB_API_KEY``)."""
    for value in secret_values():
        text = text.replace(value, HIDDEN)
    return text


@cache
def secret_values() -> list[str]:
    """Return the values of the environment variables that are named like a secret, the longest first."""
    named = {value for name, value in os.environ.items() if _SECRET_VARIABLE.search(name)}
    return sorted((value for value in named if len(value) >= _SHORTEST_SECRET), key=len, reverse=True)


def redacted(command: str) -> str:
    """Return a command or an address without values that are named like a secret or look like one."""
    return _NAMED_WORD.sub(rf"\1{HIDDEN}", redacted_source(command))


def redacted_source(text: str) -> str:
    """Return source code with secrets hidden: literals, but not expressions such as ``token = tokenizer(text)``."""
    text = KEY_BLOCK.sub(HIDDEN, without_variables(text))
    text = _KNOWN.sub(HIDDEN, text)
    text = _JSON_WEB_TOKEN.sub(rf"\1{HIDDEN}", text)
    text = DATABASE_PASSWORD_IN_TEXT.sub(rf"\1:{HIDDEN}@", text)
    text = _ADDRESS.sub(rf"\1:{HIDDEN}@", text)
    return _NAMED_LITERAL.sub(rf"\1\2{HIDDEN}\2", text)
