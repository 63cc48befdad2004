# SPDX-License-Identifier: GPL-2.0-only
"""A plugin for vLLM: the worker launches through libcuda what a model's step would launch, waits for the GPU as its
profile says, and returns random numbers. All else is vLLM's own: its processes and threads, queues, scheduler, KV
cache, tokenizer and detokenizer.

Environment:
    GPU_STEP_LIBRARY  path of libgpu_step.so; without it the plugin changes nothing
    GPU_STEP_CUDA     path of the libcuda.so.1 that it launches through [the loader's]
    GPU_STEP_PROFILE  name of a profile beside this file, or a path [eager]
    GPU_STEP_REPORT   folder: who launches is written there, a file for each thread (`{"pid", "tid"}`)
"""

import ctypes
import json
import os
import pathlib
import threading
import tomllib

SYNCS = ("auto", "spin", "yield", "block")
NUMBERS = ("prefill_ns_per_token", "decode_ns_per_sequence")
OF_A_STEP = ("launches", "launch_gap_ns", "kernel_ns")
LIMIT = "up_to_tokens"


def register():
    """The entry point; vLLM calls it in each of its processes."""
    library = os.environ.get("GPU_STEP_LIBRARY")
    if not library:
        return
    profile = read_profile(os.environ.get("GPU_STEP_PROFILE", "eager"))
    from vllm.model_executor.models import llama

    llama.LlamaForCausalLM.forward = forward_of(Step(library, profile))


def read_profile(name):
    """The keys of a profile: `sync`, NUMBERS as whole numbers from 0, and `step`: tables of OF_A_STEP, each for steps of
    up to so many tokens, the last for all others."""
    path = pathlib.Path(name)
    if not path.suffix:
        path = pathlib.Path(__file__).parent / "profiles" / f"{name}.toml"
    try:
        profile = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise SystemExit(f"vllm_emulated: {path}: {error}") from error

    def check(table, where, words, numbers):
        for key in sorted({*words, *numbers} ^ set(table)):
            refuse(f"{where}{key}: expected the keys {', '.join((*words, *numbers))}")
        for key in numbers:
            if type(table[key]) is not int or table[key] < 0:
                refuse(f"{where}{key} = {table[key]!r}: expected a whole number from 0")

    def refuse(why):
        raise SystemExit(f"vllm_emulated: {path}: {why}")

    check(profile, "", ("sync", "step"), NUMBERS)
    if profile["sync"] not in SYNCS:
        refuse(f"sync = {profile['sync']!r}: expected one of {', '.join(SYNCS)}")
    steps, limit = profile["step"], 0
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps) or not steps:
        refuse("step: expected tables [[step]], at least one")
    for number, step in enumerate(steps, 1):
        is_last = number == len(steps)
        check(step, f"step {number}: ", (), OF_A_STEP if is_last else (LIMIT, *OF_A_STEP))
        if not is_last and step[LIMIT] <= limit:
            refuse(f"step {number}: {LIMIT} = {step[LIMIT]}: expected more than {limit}")
        limit = step.get(LIMIT)
    return profile


class Step:
    """A step on the GPU. The first thread that runs one is the one that may."""

    def __init__(self, library, profile):
        self.library, self.profile = library, profile
        self.launching = self.waiting = None

    def open(self):
        # By its name in the loader's list, the library finds this one.
        if cuda := os.environ.get("GPU_STEP_CUDA"):
            ctypes.CDLL(cuda, ctypes.RTLD_GLOBAL)
        # As PyTorch does: it launches with the interpreter's lock and waits without.
        self.launching, self.waiting = ctypes.PyDLL(self.library), ctypes.CDLL(self.library)
        self.call(self.waiting.gpu_step_open, self.profile["sync"].encode())
        if folder := os.environ.get("GPU_STEP_REPORT"):
            tid = threading.get_native_id()
            (pathlib.Path(folder) / f"{tid}.json").write_text(json.dumps({"pid": os.getpid(), "tid": tid}))

    def call(self, function, *arguments):
        error = ctypes.create_string_buffer(256)
        if function(*arguments, error, ctypes.c_size_t(len(error))):
            raise RuntimeError(f"vllm_emulated: {error.value.decode(errors='replace')}")

    def run(self, tokens, sequences):
        """One step of `tokens` in all, for `sequences` of which each decodes one."""
        if self.launching is None:
            self.open()
        profile = self.profile
        step = next(step for step in profile["step"] if tokens <= step.get(LIMIT, tokens))
        more = max(0, tokens - sequences) * profile["prefill_ns_per_token"]
        more += sequences * profile["decode_ns_per_sequence"]
        numbers = (*(step[key] for key in OF_A_STEP), more)
        self.call(self.launching.gpu_step_launch, *map(ctypes.c_uint64, numbers))
        self.call(self.waiting.gpu_step_wait)


def forward_of(step):
    import torch
    from vllm.forward_context import get_forward_context

    def sequences(tokens):
        """How many sequences the batch has; in a trial run each token is one."""
        metadata = get_forward_context().attn_metadata
        if isinstance(metadata, dict):
            metadata = next(iter(metadata.values()), None)
        starts = getattr(metadata, "query_start_loc", None)
        return tokens if starts is None else len(starts) - 1

    def forward(self, input_ids, positions, intermediate_tensors=None, inputs_embeds=None):
        tokens = len(positions)
        step.run(tokens, sequences(tokens))
        weights = next(self.parameters())
        return torch.randn(tokens, self.config.hidden_size, dtype=weights.dtype)

    return forward
