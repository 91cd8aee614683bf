"""Training on a GPU: `make test-gpu`. Where a test makes sense there, it also runs on a CPU (`make test-slow`)."""

from __future__ import annotations

import gc
import mmap
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import assert_same
from pydantic import TypeAdapter
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from training_runs import IMAGES, PACKED, TEXT, configured, on_workers, run, write_prompts

from sweeps.runtime.memory_cleanup import MemoryCleanup
from sweeps_train.compat.flop_count import FlopCount, attention_flops
from sweeps_train.compat.torch import lock_pages, unlock_pages
from sweeps_train.config import Strategy, TrainingConfig
from sweeps_train.config.process import process_environment
from sweeps_train.data.packing import IGNORED
from sweeps_train.devices.device_operations import empty_cache
from sweeps_train.devices.worker_device import worker_device
from sweeps_train.models.float8 import check_float8
from sweeps_train.snapshots import snapshot
from sweeps_train.snapshots.page_lock import PageLock
from sweeps_train.steps import captured_passes
from sweeps_train.steps.precision import Precision
from sweeps_train.strategies.build_strategy import build_strategy
from sweeps_train.tasks import build_task, cross_entropy
from sweeps_train.tasks.causal_lm import CausalLMTraining
from sweeps_train.workers import worker_cache
from sweeps_train.workers.distributed import Workers

MIB = 2**20
STRATEGIES: dict[str, dict[str, Any]] = {
    "ddp": {"kind": "ddp"},
    "fsdp": {"kind": "fsdp"},
    "fsdp with all options": {
        "kind": "fsdp",
        "cpu_offload": True,
        "activation_checkpointing": True,
        "reshard_after_forward": False,
    },
    "tensor_parallel": {"kind": "tensor_parallel"},
    "sequence_parallel": {"kind": "tensor_parallel", "sequence_parallel": True},
    "fsdp_tensor_parallel": {"kind": "fsdp_tensor_parallel", "tensor_size": 1},
    "context_parallel": {"kind": "context_parallel"},
    "1f1b": {"kind": "pipeline"},
    "gpipe": {"kind": "pipeline", "schedule": "gpipe"},
}
"""Every strategy, of one node. `test_strategies.py` compares them on two and four workers, and on two GPUs."""
STRATEGY: TypeAdapter[Strategy] = TypeAdapter(Strategy)
LORA = configured(
    TEXT,
    model={"lora": {"r": 4, "target_modules": "all-linear"}},
    train={"precision": "fp32", "micro_batch_size": 2, "max_steps": 4},
)
on_both = pytest.mark.parametrize(
    "device", [pytest.param("cpu", marks=pytest.mark.slow), pytest.param("gpu", marks=pytest.mark.gpu)], indirect=True
)
on_gpu = pytest.mark.parametrize("device", [pytest.param("gpu", marks=pytest.mark.gpu)], indirect=True)


@pytest.fixture
def device(request: pytest.FixtureRequest, working_folder: Path) -> Iterator[torch.device]:
    """The device on which trainings of the test run; skips the test if there is no such device."""
    if request.param == "gpu" and not torch.accelerator.is_available():
        pytest.skip("there is no GPU here")
    write_prompts(working_folder)
    yield worker_device()
    worker_cache._cache.clear()
    gc.collect()
    if request.param == "gpu":
        torch.accelerator.empty_cache()


def changed(config: TrainingConfig, **train: Any) -> TrainingConfig:
    return replace(config, train=replace(config.train, **train))


@on_both
def test_a_training_in_bf16_has_nearly_the_losses_of_one_in_fp32(device: torch.device) -> None:
    exact, rounded = run(LORA), run(changed(LORA, precision="bf16"))
    assert rounded.eval_losses == pytest.approx(exact.eval_losses, rel=0.02)
    assert rounded.eval_losses != exact.eval_losses


@on_gpu
def test_multiplying_8_bit_numbers_has_nearly_the_losses_of_16(device: torch.device) -> None:
    pytest.importorskip("torchao")
    try:
        check_float8(device)
    except ValueError as error:
        pytest.skip(str(error))
    whole = configured(TEXT, model={"lora": None}, train={"lr": 1e-3, "precision": "bf16"})
    in_8_bits = run(changed(whole, precision="fp8")).eval_losses
    assert in_8_bits != run(whole).eval_losses
    assert in_8_bits == pytest.approx(run(whole).eval_losses, rel=0.02)


@on_gpu
def test_a_gpu_computes_what_a_cpu_does(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    on_device = run(LORA)
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "cpu")
    worker_cache._cache.clear()
    assert on_device.eval_losses == pytest.approx(run(LORA).eval_losses, rel=1e-3)


@on_both
def test_trials_in_one_process_share_the_base_and_not_each_others_results(device: torch.device) -> None:
    first = run(LORA)
    base = worker_cache._cache["base model"][1]
    run(configured(TEXT, model={"lora": {"r": 8}}, train={"max_steps": 2, "precision": "fp32"}))
    again = run(LORA)
    assert worker_cache._cache["base model"][1] is base
    assert again.eval_losses == pytest.approx(first.eval_losses, rel=1e-4)


@on_gpu
def test_memory_is_given_back_between_trials(device: torch.device) -> None:
    cleanup, after = MemoryCleanup(), []
    for rank in (4, 16, 64, 4):
        run(configured(TEXT, model={"lora": {"r": rank}}, train={"max_steps": 2}))
        cleanup.run()
        after.append(torch.accelerator.memory_allocated() / MIB)
        assert torch.accelerator.memory_reserved() / MIB <= after[-1] + 64
    assert max(after) <= min(after) + 1
    base = sum(each.nbytes for each in worker_cache._cache["base model"][1]._model.parameters()) / MIB
    run(configured(TEXT, model={"lora": None}, train={"max_steps": 1}))  # has no use for the base that was kept
    cleanup.run()
    assert torch.accelerator.memory_allocated() / MIB <= after[-1] - 0.9 * base


@on_gpu
def test_a_micro_batch_that_does_not_fit_is_halved_until_it_does(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SWEEPS_CACHE", str(tmp_path / "cache"))
    big = {**IMAGES, "model": {"kind": "conv_net", "channels": 128}}
    train = {"max_steps": 2, "eval_every": 2, "global_batch_size": 1600, "precision": "fp32", "tf32": False}
    plenty = run(configured(big, train={**train, "micro_batch_size": 50}))
    empty_cache(device)
    module = torch.get_device_module(device)
    total = module.get_device_properties(device).total_memory
    module.set_per_process_memory_fraction((torch.accelerator.memory_reserved() + 160 * MIB) / total, device)
    try:
        scarce = run(configured(big, train=train))
    finally:
        module.set_per_process_memory_fraction(1.0, device)
    assert any("out of memory: micro batches have" in note for note in scarce.notes)
    assert scarce.eval_losses == pytest.approx(plenty.eval_losses, rel=1e-3)


@on_gpu
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores for float32 matrix multiplication available")
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # by torch itself, and by others
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile wants a C++ compiler: apt-get install -y g++")
def test_a_compiled_model_trains_as_one_that_is_not(device: torch.device) -> None:
    plain = configured(TEXT, model={"lora": {"r": 4, "dropout": 0.0}}, train={"max_steps": 4, "precision": "fp32"})
    try:
        assert run(changed(plain, compile=True)).eval_losses == pytest.approx(run(plain).eval_losses, rel=1e-2)
    finally:
        torch.compiler.reset()


GRAPHS = pytest.mark.parametrize(
    "config",
    [
        pytest.param(configured(TEXT, model={"lora": {"r": 4, "dropout": 0.2}}, train={"max_steps": 16}), id="lora"),
        pytest.param(configured(TEXT, model={"lora": None}, train={"max_steps": 16, "lr": 1e-3}), id="all weights"),
        pytest.param(configured(IMAGES, train={"max_steps": 16}), id="images"),
    ],
)


@on_gpu
@GRAPHS
def test_steps_that_are_replayed_as_cuda_graphs_have_the_losses_of_others(
    device: torch.device, config: TrainingConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device.type != "cuda":
        pytest.skip("CUDA alone has them")
    replayed = []
    replay = captured_passes._Graph.replay
    monkeypatch.setattr(
        captured_passes._Graph, "replay", lambda self, *inputs: (replayed.append(self), replay(self, *inputs))[1]
    )
    graphs = run(changed(config, deterministic=False))
    assert not [each for each in graphs.notes if "CUDA graph" in each]
    assert len(replayed) >= 8
    replayed.clear()
    plain = run(changed(config, cuda_graphs=False))
    assert not replayed
    assert graphs.eval_losses == pytest.approx(plain.eval_losses, rel=2e-3)


@on_gpu
def test_a_thread_may_lock_memory_for_a_batch_while_a_graph_is_recorded(device: torch.device) -> None:
    if device.type != "cuda":
        pytest.skip("CUDA alone has them")
    weights, notes = torch.nn.Parameter(torch.ones(2, device=device)), list[str]()
    locked: list[torch.Tensor] = []

    def compute(batch: dict[str, torch.Tensor], factor: torch.Tensor) -> torch.Tensor:
        loss = (weights * batch["x"]).sum()
        larger = torch.empty(MIB << len(locked))  # than all blocks that torch's allocator has
        locked.append(reader.submit(larger.pin_memory).result())
        torch.autograd.backward(loss * factor)
        return loss.detach()

    with ThreadPoolExecutor(1) as reader:
        passes = captured_passes.CapturedPasses(compute, [weights], notes.append)
        batch = {"x": torch.ones(2, device=device)}
        for _ in range(captured_passes.WARM_UP + 2):
            passes.begin_step([batch])
            assert passes(batch, torch.ones((), device=device)).item() == 2
    assert len(locked) == captured_passes.WARM_UP + 1  # the last pass was replayed
    assert not notes


@on_gpu
def test_a_model_that_waits_for_the_gpu_trains_without_cuda_graphs(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device.type != "cuda":
        pytest.skip("CUDA alone has them")
    config = configured(TEXT, model={"lora": {"r": 4, "dropout": 0.0}}, train={"max_steps": 8})
    expected = run(config).eval_losses
    logits = CausalLMTraining.logits

    def waiting(self: CausalLMTraining, *arguments: Any) -> torch.Tensor:
        found = logits(self, *arguments)
        found.sum().item()
        return found

    monkeypatch.setattr(CausalLMTraining, "logits", waiting)
    recorder = run(config)
    assert len([each for each in recorder.notes if "not replayed as CUDA graphs" in each]) == 1
    assert recorder.eval_losses == pytest.approx(expected, rel=2e-3)
    monkeypatch.undo()
    torch.randn(2, device=device)
    assert run(config).eval_losses == pytest.approx(expected, rel=2e-3)  # the failure has left nothing behind


@on_gpu
def test_memory_load_and_utilization_of_the_gpu_are_measured(device: torch.device) -> None:
    metrics = run(changed(LORA, peak_tflops=100.0)).final
    total = torch.get_device_module(device).get_device_properties(device).total_memory / MIB
    assert 0 < metrics["system/gpu_memory_mib"] <= metrics["system/gpu_memory_reserved_mib"] < total
    assert 0 < metrics["train/flop_utilization"] < 1


@on_gpu
@pytest.mark.parametrize("backend", ["FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION"])
def test_grouped_query_attention_is_counted_in_every_fused_kernel(device: torch.device, backend: str) -> None:
    query, key, value = (
        torch.randn(2, heads, 128, 64, device=device, dtype=torch.bfloat16, requires_grad=True) for heads in (8, 2, 2)
    )
    try:
        with sdpa_kernel(getattr(SDPBackend, backend)), FlopCount() as count:
            scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True).sum().backward()
    except RuntimeError as error:
        if "No available kernel" not in str(error):
            raise
        pytest.skip("this torch has no such kernel of grouped queries here")
    assert count.take() == 3 * attention_flops(query.shape, key.shape, value.shape)


def every_strategy() -> dict[str, list[float]]:
    """Run on each worker."""
    trainings = {name: replace(LORA, strategy=STRATEGY.validate_python(each)) for name, each in STRATEGIES.items()}
    return {name: run(training).eval_losses for name, training in trainings.items()}


@on_both
@pytest.mark.timeout(600)
def test_every_strategy_trains_alone_in_a_process_group(device: torch.device, working_folder: Path) -> None:
    expected = run(LORA).eval_losses
    (found,) = on_workers(1, every_strategy, working_folder, "nccl" if device.type == "cuda" else "gloo")
    assert set(found) == set(STRATEGIES)
    for name, each in found.items():
        assert each == pytest.approx(expected, rel=1e-3), name


def twice() -> list[list[float]]:
    """Run in a process of its own: CUDA reads its environment once."""
    config = changed(configured(TEXT, train={"max_steps": 4}), deterministic=True)
    os.environ.update(process_environment(config.train, os.environ))
    return [run(config).eval_losses for _ in range(2)]


@on_both
def test_a_deterministic_training_repeats_itself_bit_for_bit(device: torch.device, working_folder: Path) -> None:
    ((first, second),) = on_workers(1, twice, working_folder, "nccl" if device.type == "cuda" else "gloo")
    assert first == second


def is_locked(tensor: torch.Tensor) -> bool:
    """Whether the first page of a tensor is locked; ``is_pinned`` tells that of the first one of its storage."""
    begin = tensor.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE
    return not (lock_pages(begin, mmap.PAGESIZE) and unlock_pages(begin))


def saved_both_ways() -> bool:
    """Save one training from memory and one at once, and tell whether a GPU has copied to locked memory."""
    config = changed(configured(TEXT, train={"max_steps": 4, "eval_every": 1}), deterministic=True)
    os.environ.update(process_environment(config.train, os.environ))
    locked = []
    copy_all = snapshot.copy_all

    def recorded(pairs: list[tuple[torch.Tensor, torch.Tensor]], device: torch.device) -> None:
        copy_all(pairs, device)
        locked.append(all(is_locked(target) for target, source in pairs if source.device.type != "cpu"))

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(snapshot, "copy_all", recorded)
        for background in (True, False):
            run(replace(config, checkpoint=replace(config.checkpoint, background=background)), Path(str(background)))
    assert len(locked) == 4
    return all(locked)


@on_both
def test_a_snapshot_of_a_gpu_is_copied_to_locked_memory_and_has_the_bytes_of_a_checkpoint_written_at_once(
    device: torch.device, working_folder: Path
) -> None:
    backend = "nccl" if device.type == "cuda" else "gloo"
    (are_locked,) = on_workers(1, saved_both_ways, working_folder, backend)
    assert are_locked
    assert_same(working_folder / "True" / "step-00000004", working_folder / "False" / "step-00000004")


@on_gpu
def test_memory_that_is_locked_already_leaves_no_error_behind(device: torch.device) -> None:
    memory = torch.zeros(2**20)
    first, second = PageLock([memory], device), PageLock([memory], device)
    assert memory.is_pinned()
    assert torch.ones(2, device=device).sum() == 2
    second.release()
    assert memory.is_pinned()
    first.release()
    assert not memory.is_pinned()


@on_gpu
@pytest.mark.timeout(600)
def test_trials_of_a_sweep_reuse_one_worker_on_the_gpu(device: torch.device, working_folder: Path) -> None:
    running = pytest.importorskip("running", reason="a sweep needs Ray and MLflow", exc_type=ImportError)
    done = running.run(
        working_folder,
        *("conf=llm_lora", "scaling=single_worker", "scaling.use_gpu=true", "search.num_trials=3"),
        *("search.max_concurrent=1", "train.max_steps=10", "train.eval_every=5", "train.log_every=5"),
    )
    assert done.document["counts"]["finished"] + done.document["counts"]["pruned"] == 3, done.err
    assert len(list((working_folder / "outputs").glob("*/ray_train/slot-*"))) == 1
    for trial in done.trials():
        assert trial.data.metrics["system/gpu_memory_mib"] > 0


@on_gpu
def test_documents_kept_apart_by_variable_length_attention_have_the_losses_of_a_mask(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweeps_train.models import attention

    packed = {**PACKED, "isolate_documents": True, "sequence_length": 32}
    config = configured(TEXT, data=packed, model={"lora": {"r": 4}}, train={"max_steps": 4})
    attended: list[torch.Tensor] = []
    attend = attention._attend_within

    def counted(*tensors: Any) -> torch.Tensor:
        attended.append(attend(*tensors))
        return attended[-1]

    monkeypatch.setattr(attention, "_attend_within", counted)
    apart = run(config)
    if not attended:
        pytest.skip("torch has no variable-length attention for this GPU")
    monkeypatch.setattr(attention, "_has_kernel", lambda *_: False)
    assert apart.eval_losses == pytest.approx(run(config).eval_losses, rel=0.01)


@on_gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_the_forward_and_backward_passes_of_a_step_never_wait_for_the_gpu(device: torch.device) -> None:
    if device.type != "cuda":
        pytest.skip("torch finds what waits on CUDA devices alone")
    precision = Precision("auto", device)
    strategy = build_strategy(LORA.strategy, Workers.current(), precision)
    task = build_task(changed(LORA, precision="auto"))
    strategy.parallelize(task)
    batches = [task.train_samples.batch([0, 1])]
    strategy.backward(batches, 1.0)  # kernels are loaded
    torch.cuda.set_sync_debug_mode("error")
    try:
        strategy.backward(batches, 1.0)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@on_gpu
def test_ligers_kernel_has_the_loss_and_the_gradients_of_ours(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("liger_kernel")
    monkeypatch.setattr(cross_entropy, "CHUNK", 2**16)
    hidden = torch.randn(256, 128, device=device, dtype=torch.bfloat16)
    weight = 0.1 * torch.randn(4096, 128, device=device, dtype=torch.bfloat16)
    targets = torch.randint(4096, (256,), device=device)
    targets[:50] = IGNORED
    found = []
    for liger in (cross_entropy._liger_loss(), None):
        monkeypatch.setattr(cross_entropy, "_liger_loss", lambda liger=liger: liger)
        inputs = [each.clone().requires_grad_() for each in (hidden, weight)]
        loss = cross_entropy.linear_cross_entropy(*inputs, None, targets)
        (0.1 * loss).backward()
        found.append((loss.detach(), [each.grad for each in inputs]))
    (loss, gradients), (expected, expected_gradients) = found
    torch.testing.assert_close(loss, expected, rtol=1e-3, atol=0)
    torch.testing.assert_close(gradients, expected_gradients, rtol=0.05, atol=0.02)
