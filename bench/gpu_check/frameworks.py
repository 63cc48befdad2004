# SPDX-License-Identifier: GPL-2.0-only
"""Decode-like work of one framework, told over stdin when to run.

    python3 frameworks.py NAME

stdout, one JSON object a line: {"ready": {...}} once it is warm, then {"ran": {...}} after each line `run SECONDS` on
stdin. Ends with stdin. Exit code 3: the framework is not installed, or this GPU is not for it; stderr says why.
"""

import json
import sys
import threading
import time

LAYERS, WIDTH = 28, 1024


class Torch:
    """Steps of a small model, launched kernel by kernel."""

    def __init__(self):
        import torch

        self.torch = torch
        self.version = torch.__version__
        make = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16) / 32
        self.input = make(8, WIDTH)
        self.layers = [(make(WIDTH, 4 * WIDTH), make(4 * WIDTH, WIDTH)) for _ in range(LAYERS)]

    def step(self):
        from torch.nn import functional

        hidden = self.input
        for up, down in self.layers:
            normal = functional.layer_norm(hidden, (WIDTH,))
            hidden = hidden + functional.silu(normal @ up) @ down

    def wait(self):
        self.torch.cuda.synchronize()

    def gpu_us(self):
        """GPU time of a step without the gaps between launches, microseconds: its graph, replayed."""
        graph = self.capture(self.step)
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(20):
            graph.replay()
        end.record()
        self.wait()
        return start.elapsed_time(end) * 1000 / 20

    def capture(self, step):
        stream = self.torch.cuda.Stream()
        with self.torch.cuda.stream(stream):
            step()
        self.wait()
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            step()
        return graph


class Graphs(Torch):
    """The same steps, each replayed as one CUDA graph."""

    def __init__(self):
        super().__init__()
        self.graph = self.capture(super().step)

    def step(self):
        self.graph.replay()

    def gpu_us(self):
        return None


class Blocking(Graphs):
    """Graphs of Torch, where the thread sleeps until the GPU is done (cudaEventBlockingSync) instead of spinning."""

    def __init__(self):
        super().__init__()
        self.done = self.torch.cuda.Event(blocking=True)

    def wait(self):
        self.done.record()
        self.done.synchronize()


class Triton(Torch):
    """Kernels of Triton's, which opens libcuda itself and calls cuLaunchKernelEx."""

    def __init__(self):
        super().__init__()
        import triton

        # Triton looks names of a kernel up among the module's.
        global tl
        import triton.language as tl

        self.version = triton.__version__

        @triton.jit
        def scale(source, target, length, block: tl.constexpr):
            at = tl.program_id(0) * block + tl.arange(0, block)
            tl.store(target + at, tl.load(source + at, mask=at < length) * 2, mask=at < length)

        self.kernel, self.output = scale, self.torch.empty_like(self.input)

    def step(self):
        for _ in range(4 * LAYERS):
            self.kernel[(8,)](self.input, self.output, self.input.numel(), block=1024)


class Jax:
    """The same steps through XLA."""

    def __init__(self):
        import os

        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        import jax
        import jax.numpy as jnp

        if jax.default_backend() != "gpu":
            raise RuntimeError(f"JAX runs on {jax.default_backend()} here")
        self.version = jax.__version__
        keys = jax.random.split(jax.random.key(0), 2 * LAYERS)
        self.layers = [
            (
                jax.random.normal(keys[2 * i], (WIDTH, 4 * WIDTH), jnp.bfloat16) / 32,
                jax.random.normal(keys[2 * i + 1], (4 * WIDTH, WIDTH), jnp.bfloat16) / 32,
            )
            for i in range(LAYERS)
        ]
        self.hidden = jnp.ones((8, WIDTH), jnp.bfloat16)

        @jax.jit
        def step(hidden, layers):
            for up, down in layers:
                hidden = hidden + jax.nn.silu((hidden - hidden.mean()) @ up) @ down
            return hidden

        self.jitted, self.last = step, self.hidden

    def step(self):
        self.last = self.jitted(self.hidden, self.layers)

    def wait(self):
        self.last.block_until_ready()

    def gpu_us(self):
        return None


class Qwen3(Torch):
    """A token of Qwen3-0.6B's architecture with random weights, by Hugging Face transformers, eager."""

    def __init__(self):
        import torch
        import transformers

        self.torch = torch
        self.version = transformers.__version__
        config = transformers.Qwen3Config(
            vocab_size=151_936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28,
            num_attention_heads=16, num_key_value_heads=8, head_dim=128, max_position_embeddings=4096,
            tie_word_embeddings=True, dtype="bfloat16",
        )
        torch.set_default_dtype(torch.bfloat16)
        with torch.device("cuda"):
            self.model = transformers.Qwen3ForCausalLM(config).eval()
        self.begin()

    def begin(self):
        self.token = self.torch.randint(0, 1000, (1, 64), device="cuda")
        self.cache, self.length = None, 0

    def step(self):
        if self.length > 500:
            self.begin()
        self.length += 1
        result = self.model(self.token, past_key_values=self.cache, use_cache=True)
        self.cache = result.past_key_values
        self.token = result.logits[:, -1:].argmax(-1)

    def wait(self):
        # What generate() does: it looks at the token on the CPU.
        self.token.cpu()

    def gpu_us(self):
        return None


FRAMEWORKS = {
    "torch-eager": Torch,
    "torch-graphs": Graphs,
    "torch-blocking": Blocking,
    "triton": Triton,
    "jax": Jax,
    "transformers-qwen3": Qwen3,
}


def run(work, seconds):
    """Steps for `seconds`, each waited for: their latencies in microseconds."""
    latencies = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.monotonic_ns()
        work.step()
        work.wait()
        latencies.append((time.monotonic_ns() - start) / 1000)
    return latencies


def say(kind, value):
    print(json.dumps({kind: value}), flush=True)


def main(name):
    try:
        work = FRAMEWORKS[name]()
    except (ImportError, RuntimeError, OSError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 3
    import contextlib

    quiet = work.torch.inference_mode() if hasattr(work, "torch") else contextlib.nullcontext()
    with quiet:
        run(work, 0.5)
        gpu_us = work.gpu_us()
        say("ready", {"version": work.version, "tid": threading.get_native_id(), "gpu_us_per_step": gpu_us})
        for line in sys.stdin:
            latencies = sorted(run(work, float(line.split()[1])))
            count = len(latencies)
            say("ran", {
                "steps": count,
                "steps_per_s": count / (sum(latencies) / 1e6),
                "p50_us": latencies[count // 2],
                "p99_us": latencies[count * 99 // 100],
            })
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in FRAMEWORKS:
        print(f"usage: frameworks.py {'|'.join(FRAMEWORKS)}", file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[1]))
