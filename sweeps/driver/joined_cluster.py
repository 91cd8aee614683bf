"""Connection to a sweep's cluster, with a check that its nodes see the sweep's folder, and upload of code that they
lack."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from sweeps.errors import UserError
from sweeps.launch.bundle import MAX_CODE, Bundle
from sweeps.plan.plan import Plan
from sweeps.runtime.cluster import Connection, connected
from sweeps.runtime.fork_server import ForkServer
from sweeps.runtime.node_views import NodeView, node_views
from sweeps.runtime.shared_folder import SharedFolder

NAMED = 3
"""Maximum number of nodes that a message names."""


@contextlib.contextmanager
def joined_cluster(plan: Plan, forks: ForkServer | None) -> Iterator[Connection]:
    """Connect to a plan's cluster. Nodes that do not see the working folder receive its modules, and also Sweeps if
    theirs is missing or different.

    Args:
        plan: The sweep.
        forks: Fork server for the workers of a cluster that is started here.

    Raises:
        UserError: The cluster does not answer, a node cannot use the sweep's folder, or the code is too large.
    """
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(connected(plan.config, forks=forks))
        if plan.config.cluster.address != "local":
            shared = SharedFolder.marked(plan.folder) if plan.uri is None else None
            views = node_views(shared, plan.uri)
            if not plan.config.cluster.check_nodes:  # that check leaves such nodes out
                _check_storage(plan, views)
            if any(not (view.has_sweeps and view.sees_working_folder) for view in views) and not _code_is_there():
                stack.close()
                code = _packed(stack, plan, with_sweeps=not all(view.has_sweeps for view in views))
                cluster = stack.enter_context(connected(plan.config, code=code))
            from sweeps.compat.ray_train import start_autoscaling_coordinator

            start_autoscaling_coordinator()  # else the first worker group would start it and wait for it
        yield cluster


def _check_storage(plan: Plan, views: Sequence[NodeView]) -> None:
    """Check that the nodes can use the sweep's folder.

    Raises:
        UserError: Nodes cannot use the sweep's folder.
    """
    blind = [view for view in views if view.storage_error]
    if not blind:
        return
    names = ", ".join(f"{view.name}: {view.storage_error}" for view in blind[:NAMED])
    more = f" and {len(blind) - NAMED} more" if len(blind) > NAMED else ""
    if plan.uri is not None:
        fix = "give them credentials, such as with cluster.env=['AWS_*']"
    else:
        fix = "mount it there, set output_dir to an object store (s3://BUCKET/sweeps)"
    raise UserError(
        f"output_dir={plan.config.output_dir}: nodes do not see it ({names}{more}), so their checkpoints would be "
        f"lost; {fix}, or leave these nodes out with `run --check-nodes`"
    )


def _code_is_there() -> bool:
    """Whether this driver runs as a job of the cluster, so that workers already get its code."""
    import ray

    return "working_dir" in ray.get_runtime_context().runtime_env


def _packed(stack: contextlib.ExitStack, plan: Plan, *, with_sweeps: bool) -> Path:
    """Pack the modules of the working folder.

    Raises:
        UserError: The modules are too large.
    """
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    bundle = Bundle.of_folder(Path.cwd(), leave_out=plan.folder.parent)
    if with_sweeps:
        bundle.add_sweeps()
    return bundle.write(folder / "code.zip", MAX_CODE, ", or put the folder onto storage that all nodes share")
