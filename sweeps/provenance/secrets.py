"""Keeps passwords and tokens out of what is recorded."""

from __future__ import annotations

import re

HIDDEN = "***"

# Each looks at no character more often than a few times, however long and hostile a text is: none begins with a
# repetition, and what repeats gives nothing back (`++`). tests/provenance/test_linear_texts.py holds that.
_NAMES = r"(?:passwords?|passwd|secrets?|token|api_?keys?|access_?key|credentials?|private_?key)"
_NAMED_LITERAL = re.compile(rf"(?i)({_NAMES}[\"']?\s*+[=:]\s*+)([\"'])(?!\s*+\2)[^\"'\n]++\2")
_NAMED_WORD = re.compile(rf"(?i)({_NAMES}=)(?![\"'])[^\s&,;\"']+")
_ADDRESS = re.compile(r"(\w://[^\s:/@]*+):[^\s/@]++@")
_KNOWN = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{20,}"
    r"|sweeps_[A-Za-z0-9_-]{43}|AKIA[A-Z0-9]{16}|xox[abprs]-[\w-]{10,})"
)
_JSON_WEB_TOKEN = re.compile(r"(?<![\w-])(?=[\w-]++\.[\w-]{10,}+\.)([\w-]*?)\beyJ[\w-]{10,}+\.[\w-]{10,}+\.[\w-]*+")
"""The word is looked through for its beginning only where what comes after it is that of a token."""
KEY_BLOCK = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)


def redacted(command: str) -> str:
    """A command, or an address, with the values of what is named like a secret, or looks like one, hidden."""
    return _NAMED_WORD.sub(rf"\1{HIDDEN}", redacted_source(command))


def redacted_source(text: str) -> str:
    """Source code with its secrets hidden, and nothing else: ``token = tokenizer(text)`` stays, a literal does not."""
    text = KEY_BLOCK.sub(HIDDEN, text)
    text = _KNOWN.sub(HIDDEN, text)
    text = _JSON_WEB_TOKEN.sub(rf"\1{HIDDEN}", text)
    text = _ADDRESS.sub(rf"\1:{HIDDEN}@", text)
    return _NAMED_LITERAL.sub(rf"\1\2{HIDDEN}\2", text)
