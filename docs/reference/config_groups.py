"""Reference of the shipped configs: every sweep and every option of a group, with its comment and its contents."""

from __future__ import annotations

from reference.page import code, heading, slug, table
from sweeps.compose.search_path import ConfSearchPath
from sweeps.folders.conf_folders import conf_folder

INTRODUCTION = (
    "A config chooses one option of each group, in its `defaults` or on the command line (`model=conv_net`). Every "
    "option is a YAML file. A file of the same name in a folder of your own (`--config-dir`) takes its place.\n"
)


def pages() -> dict[str, str]:
    """Return the page of the sweeps, and the page of the groups."""
    return {"reference/confs.md": _sweeps(), "reference/groups.md": _groups()}


def _sweeps() -> str:
    search_path = ConfSearchPath()
    names = search_path.confs()
    parts = ["# Sweeps that come with it\n", "`python -m sweeps run conf=NAME` runs one of them.\n"]
    parts.append(
        table(
            ("`conf=`", "what it is"), [(f"[{code(name)}](#{slug(name)})", search_path.header(name)) for name in names]
        )
    )
    for name in names:
        parts += [heading(2, code(name), name), _contents(name)]
    return "\n".join(parts)


def _groups() -> str:
    search_path = ConfSearchPath()
    parts = [
        "# Config groups\n",
        INTRODUCTION,
    ]
    for group in search_path.groups():
        options = search_path.options(group)
        parts.append(heading(2, code(f"{group}="), group))
        rows = [
            (f"[{code(each)}](#{slug(f'{group}/{each}')})", search_path.header(f"{group}/{each}")) for each in options
        ]
        parts.append(table(("option", "what it is"), rows))
        for option in options:
            parts += [heading(3, code(f"{group}={option}"), f"{group}/{option}"), _contents(f"{group}/{option}")]
    return "\n".join(parts)


def _contents(name: str) -> str:
    text = (conf_folder() / f"{name}.yaml").read_text(encoding="utf-8").rstrip()
    return f"```yaml\n{text}\n```\n"
