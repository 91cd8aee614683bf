"""Environment variables that a worker's process needs before CUDA starts."""

from __future__ import annotations

from collections.abc import Mapping

from sweeps_train.config.train import Train

_ALLOCATOR, _OLDER_ALLOCATOR = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"
"""Environment variables of torch's allocator; torch before 2.9 reads only the second one, and later releases prefer the
first."""
_WORKSPACE, _WORKSPACES = "CUBLAS_WORKSPACE_CONFIG", (":4096:8", ":16:8")
"""Environment variable of cuBLAS, and its values with which cuBLAS is deterministic."""


def process_environment(train: Train, present: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of a training that CUDA reads only once, when a process starts. Other settings
    in variables that are ``present`` are kept.

    Raises:
        ValueError: A variable that is set contradicts an option.

    Example:
        >>> process_environment(Train(max_steps=1, expandable_segments=True), {})
        {'PYTORCH_CUDA_ALLOC_CONF': 'expandable_segments:True'}
    """
    found: dict[str, str] = {}
    if train.deterministic:
        workspace = present.get(_WORKSPACE, _WORKSPACES[0])
        if workspace not in _WORKSPACES:
            raise ValueError(
                f"train.deterministic=true: cuBLAS is not deterministic with the variable {_WORKSPACE}={workspace}; "
                f"unset it, or set it to {' or '.join(_WORKSPACES)}"
            )
        found |= {_WORKSPACE: workspace, "FLASH_ATTENTION_DETERMINISTIC": "1"}  # transformers reads the second one
    if train.expandable_segments:
        name = _ALLOCATOR if _ALLOCATOR in present else _OLDER_ALLOCATOR
        settings = [each.strip() for each in present.get(name, "").split(",") if each.strip()]
        own = [each for each in settings if each.partition(":")[0] == "expandable_segments"]
        if any(each.partition(":")[2].lower() != "true" for each in own):
            raise ValueError(
                f"train.expandable_segments=true: the environment variable {name}={present[name]} turns them off; "
                "remove that setting from it"
            )
        found[name] = ",".join([*(each for each in settings if each not in own), "expandable_segments:True"])
    return found
