"""The options of `plan` and `whatif`, for type checkers and editors; orrery.options() says what they mean."""
from __future__ import annotations

import os
from typing import Sequence, TypedDict, Union

Text = Union[str, "os.PathLike[str]"]


class PlanOptions(TypedDict, total=False):
    """Counts, bytes and shares as numbers (or texts with k, M, G, T as the command line takes them)."""

    nodes: int | str
    gpus: int
    device: Text
    runtime: Text
    global_batch: int | str
    seq_len: int | str
    lengths: Text
    packed: bool
    balanced: bool
    sample_bytes: float | str
    precision: str
    optimizer: str
    attention: str
    overlap_tensor: bool
    offload: str
    lora_rank: int
    lora_targets: Sequence[str] | str
    lora_alpha: float | str
    dora: bool
    quantize_base: str
    freeze: int
    from_peft: Text
    objective: str
    rank: str
    fit_probability: float | str
    top: int
    budget: float | str
    prove: bool
    from_megatron: str
    from_deepspeed: Text
    from_torchtitan: Text
    from_nemo: Text
    tp: int
    pp: int
    dp: int
    cp: int
    ep: int
    etp: int
    micro_batch: int
    schedule: str
    interleave: int
    zero: int
    shard_group: int
    recompute: str
    stage_layers: Sequence[int] | str
    order: Sequence[str] | str
    any_runtime: bool
    overlap_experts: bool
    sequence_parallel: bool
    overlap_grad_reduce: bool
    bucket_bytes: float | str
    grad_compression: str
    search_compression: bool
    sync: str
    search_sync: bool
    servers: int
    staleness: int
    capacity_factor: float | str
