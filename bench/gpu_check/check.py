# SPDX-License-Identifier: GPL-2.0-only
"""What gpu-check.sh runs: cells of a few seconds, everything that they say in one JSON file."""

import argparse
import collections
import contextlib
import ctypes
import json
import os
import pathlib
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SCHEMA = 1
PROFILES = ("qwen3", "eager", "graph")
SYNCS = ("block", "spin", "yield")
PROBED = ("cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel", "cuGraphLaunch")
# Nothing but calls: short kernels, fewer a token than a stream holds before a launch blocks.
CALLS = {"launches_per_token": 200, "kernel_ns": 1, "last_kernel_ns": 1, "launch_gap_ns": 0, "token_cpu_us": 0}
ONE_KERNEL = {**CALLS, "launches_per_token": 1, "kernel_ns": 1_000_000, "last_kernel_ns": 1_000_000}
NODES = (1, 32, 320, 1000)


def log(text):
    print(f"gpu-check: {text}", file=sys.stderr, flush=True)


class Check:
    def __init__(self, options):
        self.scheduler = pathlib.Path(options.scheduler)
        self.lab = pathlib.Path(options.lab)
        self.emulated = options.emulated
        self.seconds = 0.3 if options.quick else 1.5
        self.rounds = 1 if options.quick else 3
        self.profiles = PROFILES[-1:] if options.quick else PROFILES
        self.settle = 0.3 if options.quick else 2.0
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="gpu-check-"))
        self.gpu_environment = dict(os.environ)
        if self.emulated:
            self.gpu_environment["LD_LIBRARY_PATH"] = str(self.lab)
        self.own_environment = dict(os.environ)
        if libraries := os.environ.get("GPU_CHECK_LIBRARIES"):
            self.own_environment["LD_LIBRARY_PATH"] = libraries

    # Programs.

    def own(self, *arguments):
        """What scx_gpuaware prints, whatever its exit code."""
        done = subprocess.run([self.scheduler, *arguments], env=self.own_environment, capture_output=True, timeout=60)
        return done.stdout.decode(errors="replace")

    def own_json(self, *arguments):
        return json.loads(self.own(*arguments))

    def launch_command(self, profile, duration, sets=(), sync=None, threads=1, idle=0):
        command = [self.lab / "gpu_launch", "--profile", profile, "--duration", str(duration),
                   "--threads", str(threads), "--idle-threads", str(idle)]
        for key, value in dict(sets).items():
            command += ["--set", f"{key}={value}"]
        return command + (["--sync", sync] if sync else [])

    def launch(self, *arguments, **keywords):
        """One run of gpu_launch, summed up."""
        done = subprocess.run(self.launch_command(*arguments, **keywords), env=self.gpu_environment,
                              capture_output=True, timeout=120)
        if done.returncode:
            raise RuntimeError(f"gpu_launch: {done.stderr.decode(errors='replace')}")
        return summed_up(json.loads(done.stdout))

    @contextlib.contextmanager
    def beside(self, *arguments):
        """scx_gpuaware running meanwhile, until it is asked to end."""
        with open(self.scratch / "beside.log", "wb") as to:
            process = subprocess.Popen([self.scheduler, *arguments], env=self.own_environment, stdout=to, stderr=to)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    # What is looked at.

    def machine(self):
        text = lambda path: pathlib.Path(path).read_text(errors="replace") if os.path.exists(path) else ""
        model = next((line.split(":")[1].strip() for line in text("/proc/cpuinfo").splitlines()
                      if line.startswith("model name")), None)
        gpus = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,pci.bus_id", "--format=csv,noheader"],
                              capture_output=True) if not self.emulated and which("nvidia-smi") else None
        return {
            "kernel": platform.release(),
            "cpus": os.cpu_count(),
            "cpu_model": model,
            "sched_ext": os.path.isdir("/sys/kernel/sched_ext"),
            "gpus": gpus.stdout.decode().strip().splitlines() if gpus else [],
        }

    def driver(self):
        """The entry points that are probed: their first bytes, and whether cuGetProcAddress gives the same."""
        code = "import check; check.print_entry_points()"
        done = subprocess.run([sys.executable, "-c", code], cwd=HERE, env=self.gpu_environment, capture_output=True)
        if done.returncode:
            raise RuntimeError(done.stderr.decode(errors="replace"))
        return json.loads(done.stdout)

    def workloads(self):
        cells = [(profile, sync) for profile in PROFILES for sync in SYNCS]
        return self.interleaved(cells, lambda cell: self.launch(cell[0], self.seconds, sync=cell[1]),
                                lambda cell: {"profile": cell[0], "sync": cell[1]})

    def costs(self):
        """CPU time of calls, and how late a waiting thread is: what the emulated driver must be told."""
        cells = [("launch", {**CALLS, "call": call}, None) for call in PROBED[:3]]
        cells += [("graph", {**CALLS, "launches_per_token": 20, "call": "cuGraphLaunch", "kernels_per_graph": nodes}, None)
                  for nodes in NODES]
        cells += [("wait", ONE_KERNEL, sync) for sync in SYNCS]
        label = lambda cell: {"cost": cell[0], "call": cell[1].get("call", "cuLaunchKernel"), "sync": cell[2],
                              "kernels_per_graph": cell[1].get("kernels_per_graph")}
        profile = lambda cell: "graph" if cell[0] == "graph" else "qwen3"
        return self.interleaved(cells, lambda cell: self.launch(profile(cell), self.seconds / 2, cell[1], sync=cell[2]), label)

    def probes(self):
        """What probes cost a thread that does nothing but launch, and one that is shaped like a framework's."""
        policy = ["--policy", str(HERE / "policy.toml")]
        beside = {
            "off": None,
            "identify": ["feed", *policy],
            "windows": ["trace", "--format", "json", "--every-ms", "500", "-o", os.devnull],
            "always": ["trace", "--format", "json", "--all-launches", "-o", os.devnull],
        }

        def run(cell):
            probing, profile, sets = cell
            if beside[probing] is None:
                return self.launch(profile, self.seconds, sets)
            with self.beside(*beside[probing]):
                time.sleep(self.settle)
                return self.launch(profile, self.seconds, sets)

        shapes = (("qwen3", CALLS), ("eager", {}))
        cells = [(probing, profile, sets) for probing in beside for profile, sets in shapes]
        return self.interleaved(cells, run, lambda cell: {"probes": cell[0], "profile": cell[1], "calls_only": bool(cell[2])})

    def boosting(self):
        """Beside two busy loops a CPU: who must be preferred (nice -20), so that a launcher that sleeps is in time?"""
        chosen = {"nobody": (), "launcher": ("launch-",), "launcher and its waker": ("launch-", "cuda-EvtHandlr"),
                  "everybody in the process": ("",)}
        cells = [(name, profile) for name in chosen for profile in self.profiles]
        loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(2 * os.cpu_count())]
        try:
            return self.interleaved(cells, lambda cell: self.preferring(chosen[cell[0]], cell[1]),
                                    lambda cell: {"preferred": cell[0], "profile": cell[1], "sync": "block"})
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()

    def preferring(self, names, profile):
        command = self.launch_command(profile, self.seconds, sync="block") + ["--warmup-tokens", "100"]
        process = subprocess.Popen(command, env=self.gpu_environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        names_of = lambda tid: pathlib.Path(f"/proc/{process.pid}/task/{tid}/comm").read_text().strip()
        deadline, preferred = time.monotonic() + 1.0, set()
        while time.monotonic() < deadline and process.poll() is None:
            for tid in os.listdir(f"/proc/{process.pid}/task"):
                with contextlib.suppress(OSError):
                    if names_of(tid).startswith(names or ("nobody's name",)) and tid not in preferred:
                        os.setpriority(os.PRIO_PROCESS, int(tid), -20)
                        preferred.add(tid)
            time.sleep(0.02)
        output, _ = process.communicate(timeout=120)
        return summed_up(json.loads(output))

    def interleaved(self, cells, run, label):
        """Every cell once a round, each round in an order of its own."""
        found = collections.defaultdict(list)
        for number in range(self.rounds):
            order = list(range(len(cells)))
            random.Random(number).shuffle(order)
            for index in order:
                found[index].append(run(cells[index]))
        return [{**label(cell), "runs": found[index]} for index, cell in enumerate(cells)]

    def identification(self):
        """Which threads of gpu_launch get a class, beside threads that never launch."""
        command = self.launch_command("qwen3", self.seconds + 5, sync="block", threads=2, idle=4)
        with self.beside("feed", "--policy", str(HERE / "policy.toml")):
            with self.child(command) as process:
                marks, seconds = self.wait_for_marks(process.pid, launchers=2)
        return {"marks": marks, "seconds_to_find": seconds, "launching": 2, "idle": 4}

    @contextlib.contextmanager
    def child(self, command, **keywords):
        process = subprocess.Popen(command, env=self.gpu_environment, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, **keywords)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def wait_for_marks(self, pid, launchers, most=10.0):
        """The marks of a process, a second after it has as many launchers, and when that was."""
        start = time.monotonic()
        own = lambda: [mark for mark in self.own_json("marks", "--json") if mark["tgid"] == pid]
        seconds = None
        while time.monotonic() - start < most:
            with contextlib.suppress(json.JSONDecodeError):
                if sum(mark["class"] == "launch" for mark in own()) >= launchers:
                    seconds = time.monotonic() - start
                    break
            time.sleep(0.1)
        time.sleep(1.5)
        with contextlib.suppress(json.JSONDecodeError):
            keep = ("comm", "class", "source", "evidence", "symbol", "hits")
            return [{key: mark.get(key) for key in keep} for mark in own()], seconds
        return [], seconds

    def gpu_launch_traced(self):
        """Who wakes a launcher that sleeps until the GPU is done."""
        path = self.scratch / "gpu_launch.ndjson"
        command = self.launch_command("graph", self.seconds, sync="block")
        before = interrupts()
        done = subprocess.run([self.scheduler, "trace", "--all-launches", "--format", "ndjson", "-o", path, "--",
                               "env", *self.environment_for_gpu(), *command], env=self.own_environment,
                              capture_output=True, timeout=120)
        if done.returncode:
            raise RuntimeError(done.stderr.decode(errors="replace"))
        counted = {f"{line} on CPU {cpu}": count - before.get((line, cpu), 0) for (line, cpu), count in interrupts().items()}
        return {**traced(path), "interrupts_of_gpus": {name: count for name, count in counted.items() if count}}

    def environment_for_gpu(self):
        return [f"LD_LIBRARY_PATH={self.gpu_environment.get('LD_LIBRARY_PATH', '')}"]

    def frameworks(self):
        names = ["torch-eager", "torch-graphs", "torch-blocking", "triton", "jax", "transformers-qwen3"]
        return {name: self.framework(name) for name in names}

    def framework(self, name):
        errors = open(self.scratch / "framework.log", "w+")
        process = subprocess.Popen([sys.executable, HERE / "frameworks.py", name], env=self.gpu_environment,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            line = process.stdout.readline()
            if not line:
                process.wait(20)
                errors.seek(0)
                last = errors.read().strip().splitlines()[-1:]
                return {"skipped" if process.returncode == 3 else "failed": " ".join(last)}
            result = json.loads(line)["ready"]
            result["threads"] = len(os.listdir(f"/proc/{process.pid}/task"))
            return {**result, **self.framework_cells(process, result["gpu_us_per_step"])}
        finally:
            process.kill()
            process.wait()
            errors.close()

    def framework_cells(self, process, gpu_us):
        def run(seconds):
            process.stdin.write(f"run {seconds}\n")
            process.stdin.flush()

        ran = lambda: json.loads(process.stdout.readline())["ran"]
        run(self.seconds)
        alone = ran()
        with self.beside("feed", "--policy", str(HERE / "policy.toml")):
            run(self.seconds + 3)
            marks, seconds = self.wait_for_marks(process.pid, launchers=1, most=self.seconds + 2)
            identified = ran()
        path = self.scratch / "framework.ndjson"
        with self.beside("trace", "--pid", str(process.pid), "--all-launches", "--format", "ndjson", "-o", str(path)):
            time.sleep(1)
            run(self.seconds / 2)
            with_trace = ran()
        return {"alone": alone, "beside_identification": identified, "beside_trace": with_trace, "marks": marks,
                "seconds_to_find": seconds, "trace": traced(path, gpu_us)}


def interrupts():
    """How often the interrupts of GPUs came, by line and CPU."""
    with open("/proc/interrupts") as table:
        cpus = [int(name.removeprefix("CPU")) for name in table.readline().split()]
        lines = [line.split() for line in table if "nvidia" in line]
    return {(line[0].rstrip(":"), cpu): int(count) for line in lines for cpu, count in zip(cpus, line[1:])}


def which(program):
    return any(os.access(os.path.join(folder, program), os.X_OK) for folder in os.environ["PATH"].split(":"))


def summed_up(result):
    """gpu_launch's JSON without its lists: latencies and intervals as percentiles."""
    tokens = sorted(result["token_us"])
    launches = result["launches"]
    cpu = result["cpu_s"]["user"] + result["cpu_s"]["sys"]
    at = lambda share: tokens[min(len(tokens) - 1, int(len(tokens) * share))] if tokens else None
    return {
        "device": result["driver"]["device_name"],
        "tokens_per_s": result["tokens_per_s"],
        "failures": result["failures"],
        "p50_us": at(0.5),
        "p99_us": at(0.99),
        "cpu_ns_per_launch": 1e9 * cpu / launches if launches else None,
        "interval_p50_ns": from_histogram(result["launch_interval_ns"], 0.5),
        "interval_p90_ns": from_histogram(result["launch_interval_ns"], 0.9),
        "switches_per_token": {key: value / max(1, result["tokens"]) for key, value in result["context_switches"].items()},
    }


def from_histogram(histogram, share):
    """A percentile, straight within its bucket."""
    counts, limits = histogram["count"], histogram["le"]
    left = share * (sum(counts) + histogram["over"])
    low = 0
    for limit, count in zip(limits, counts):
        if count and left <= count:
            return low + (limit - low) * left / count
        left -= count
        low = limit
    return None


def traced(path, gpu_us=None):
    """Of a trace: each launching thread's calls, how it waits, who wakes it, and a profile for the emulated driver.
    `gpu_us`: GPU time of a token."""
    threads = collections.defaultdict(Launcher)
    end = {}
    with open(path) as lines:
        for line in lines:
            with contextlib.suppress(json.JSONDecodeError):
                record = json.loads(line)
                end = record.get("end", end)
                if "event" in record:
                    threads[record["tid"]].take(record)
    launchers = {str(tid): thread.summed_up(gpu_us) for tid, thread in threads.items() if thread.calls}
    return {"launchers": launchers, "lost": end.get("lost"), "missed": end.get("missed")}


class Launcher:
    def __init__(self):
        self.comm = None
        self.calls = collections.Counter()
        self.tokens = 0
        self.in_token = 0
        self.per_token = []
        self.last = None
        self.gaps = []
        self.synced = None
        self.after_sync = []
        self.wakers = collections.Counter()
        self.switches = collections.Counter()

    def take(self, record):
        event, now = record["event"], record["time_ns"]
        self.comm = record["comm"] or self.comm
        if event in ("launch", "graph_launch"):
            self.calls[record["symbol"]] += 1
            if self.last is not None:
                self.gaps.append(now - self.last)
            elif self.synced is not None:
                self.after_sync.append(now - self.synced)
            self.last, self.in_token = now, self.in_token + 1
        elif event == "sync_enter" and self.in_token:
            self.per_token.append(self.in_token)
            self.last, self.in_token = None, 0
        elif event == "sync_exit":
            self.synced = now
        elif event == "wakeup":
            by = "an interrupt" if record.get("reason") == "irq" else record.get("other_comm")
            self.wakers[by] += 1
        elif event == "switch_out":
            self.switches[record.get("reason")] += 1

    def profile(self, gpu_us):
        """The keys of a profile of gpu_launch that this thread's calls would be, as far as a trace tells."""
        if not self.per_token or not self.gaps:
            return None
        launches = statistics.median(self.per_token)
        return {
            "call": self.calls.most_common(1)[0][0],
            "sync": "block" if self.switches["blocked"] > len(self.per_token) / 2 else "spin",
            "launches_per_token": launches,
            "kernel_ns": round(gpu_us * 1000 / launches) if gpu_us else None,
            "launch_gap_ns": round(statistics.median(self.gaps)),
            "token_cpu_us": round(statistics.median(self.after_sync) / 1000) if self.after_sync else None,
        }

    def summed_up(self, gpu_us=None):
        median = lambda values: statistics.median(values) if values else None
        per_token = median(self.per_token)
        gap = median(self.gaps)
        return {
            "comm": self.comm,
            "calls": dict(self.calls.most_common()),
            "syncs": len(self.per_token),
            "launches_per_sync": per_token,
            "launch_interval_p50_ns": gap,
            "launch_interval_p90_ns": statistics.quantiles(self.gaps, n=10)[8] if len(self.gaps) > 10 else None,
            "sync_to_launch_p50_ns": median(self.after_sync),
            "wakers": dict(self.wakers.most_common(8)),
            "switched_out": dict(self.switches.most_common()),
            "profile": self.profile(gpu_us),
        }


def print_entry_points():
    library = ctypes.CDLL("libcuda.so.1")
    version = ctypes.c_int()
    library.cuInit(0)
    library.cuDriverGetVersion(ctypes.byref(version))
    with open("/proc/self/maps") as maps:
        path = next((line.split()[-1] for line in maps if "libcuda.so" in line), None)
    look_up = library.cuGetProcAddress_v2
    look_up.argtypes = [ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p]
    points = {}
    for name in PROBED:
        exported = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        given = ctypes.c_void_p()
        status = look_up(name.encode(), ctypes.byref(given), version.value, 0, None)
        points[name] = {"first_bytes": ctypes.string_at(exported, 32).hex(),
                        "get_proc_address_gives_the_same": status == 0 and given.value == exported}
    print(json.dumps({"library": path, "version": version.value, "entry_points": points}))


def main():
    parser = argparse.ArgumentParser(prog="gpu-check.sh")
    parser.add_argument("--scheduler", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--lab", required=True, help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", default="gpu-check.json", metavar="FILE")
    parser.add_argument("--emulated", action="store_true", help="on the emulated driver")
    parser.add_argument("--quick", action="store_true", help="short cells")
    parser.add_argument("--only", metavar="PART,…", type=lambda text: text.split(","), help="these parts")
    options = parser.parse_args()
    check = Check(options)
    parts = {
        "machine": check.machine,
        "driver": check.driver,
        "doctor": lambda: check.own_json("doctor", "--json"),
        "topology": lambda: check.own_json("topology", "--json"),
        "identification": check.identification,
        "waking": check.gpu_launch_traced,
        "workloads": check.workloads,
        "costs": check.costs,
        "probes": check.probes,
        "boosting": check.boosting,
        "frameworks": check.frameworks,
    }
    if unknown := set(options.only or ()) - set(parts):
        parser.error(f"--only: unknown: {', '.join(sorted(unknown))}; expected of {', '.join(parts)}")
    parts = {name: part for name, part in parts.items() if not options.only or name in options.only}
    result = {"schema": SCHEMA, "program": check.own("--version").strip(), "emulated": check.emulated, "failed": {}}
    began = time.monotonic()
    for name, part in parts.items():
        start = time.monotonic()
        try:
            result[name] = part()
        except Exception as error:  # One part's failure must not cost what the others find.
            result["failed"][name] = f"{type(error).__name__}: {error}"
        log(f"{name}: {time.monotonic() - start:.1f} s" + (f", failed: {result['failed'][name]}" if name in result["failed"] else ""))
        pathlib.Path(options.output).write_text(json.dumps(result, indent=1) + "\n")
    log(f"{options.output} after {time.monotonic() - began:.0f} s")
    return 1 if result["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
