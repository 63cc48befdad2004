#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Runs a graph of docs/pipelines.md on Ray Serve: one deployment a stage, one replica a thread, on this machine or on a
cluster. Arrivals, work and the document are those of `pipeline`, which reads the graph for it; queues, batches, routing
and messages between processes and hosts are Ray's.

Environment:
    GPU_STEP_LIBRARY  path of libgpu_step.so, by which stages with `gpu` launch, the same on each host [make build's]
    GPU_STEP_CUDA     path of the libcuda.so.1 that it launches through [the loader's]

Exit codes: 0 done, failed items are in the document; 1 Ray or a stage failed; 2 bad usage, or a graph that Ray Serve
cannot run.
"""

import argparse
import asyncio
import concurrent.futures
import ctypes
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import time
import urllib.request

PROGRAM = "pipeline_ray"
ROOT = pathlib.Path(__file__).resolve().parents[3]
# Of a node: messages of megabytes wait there until whoever takes them has read them.
OBJECT_STORE = 1 << 30
# As `pipeline`: with fewer samples there is no such percentile.
PERCENTILES = {"p50": (0.5, 1), "p90": (0.9, 44), "p95": (0.95, 90), "p99": (0.99, 459)}


class Refused(Exception):
    """The graph, or how it is to be run: exit code 2."""


def options():
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    flag = parser.add_argument
    flag("graph", metavar="NAME|PATH", help="a built-in graph, or the path of a TOML file")
    flag("--set", action="append", default=[], metavar="KEY=VALUE", help="as of pipeline")
    flag("--pipeline", default=str(ROOT / "target/release/pipeline"), metavar="PATH", help="reads the graph")
    flag("--address", metavar="HOST:PORT", help="a cluster that runs already [this machine]")
    flag("--nodes", type=int, default=1, metavar="N", help="without one: so many nodes of Ray's here [1]")
    flag("--gpus", type=float, default=0.0, metavar="SHARE", help="of one, for each replica of a stage with `gpu` [0]")
    flag("--duration", type=float, default=10.0, metavar="S", help="seconds that are measured [10]")
    flag("--warmup", type=float, default=1.0, metavar="S", help="seconds before that [1]")
    flag("--drain", type=float, default=20.0, metavar="S", help="seconds that items may take after it [20]")
    flag("--seed", type=int, default=1, help="of arrivals, filters and sizes [1]")
    flag("--slo-ms", type=float, action="append", default=[], metavar="MS", help="an objective; may be repeated")
    flag("--check", action="store_true", help="read the graph, say what is wrong, run nothing")
    asked = parser.parse_args()
    if asked.nodes < 1 or (asked.address and asked.nodes > 1):
        raise Refused(f"--nodes {asked.nodes}: expected 1 or more, and only without --address, whose nodes are its own")
    if min(asked.duration, asked.warmup, asked.drain) <= 0:
        raise Refused("--duration, --warmup, --drain: expected seconds above 0")
    return asked


def read_graph(asked):
    """The graph as `pipeline` understands it, with a place in `stages` for each end of an edge."""
    changes = [word for change in asked.set for word in ("--set", change)]
    try:
        command = [asked.pipeline, asked.graph, "--check", "--json", *changes]
        read = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise Refused(f"{asked.pipeline}: {error.strerror}: run make build, or say --pipeline PATH") from error
    if read.returncode:
        sys.stderr.write(read.stderr)
        sys.exit(read.returncode)
    graph = json.loads(read.stdout)
    for place, stage in enumerate(graph["stages"]):
        stage["from"] = [edge["from"] for edge in graph["edges"] if edge["to"] == place]
        stage["ends"] = all(edge["from"] != place for edge in graph["edges"])
    return graph


def check(asked, graph):
    """Refuses what has no counterpart in Ray Serve, where a graph passes requests on and joins them."""

    def refuse(stage, key, why):
        raise Refused(f"{asked.graph}: stage.{stage['name']}.{key}: {why}; `pipeline` runs it")

    sources = [stage for stage in graph["stages"] if stage["arrive"]]
    if len(sources) != 1:
        names = ", ".join(stage["name"] for stage in sources)
        raise Refused(f"{asked.graph}: stage.*.arrive: expected one stage where requests begin, got {names}")
    if sources[0]["arrive"]["loop"] == "saturate":
        refuse(sources[0], "arrive.loop", 'expected "open" or "closed": queues of Ray Serve hold no sender up')
    if sources[0]["threads"] > 1 or sources[0]["batch"]["max"] > 1:
        refuse(sources[0], "threads or batch", "expected one thread, one item at a time: that is Ray's ingress here")
    if sources[0]["gpu"] or sources[0]["http"]:
        refuse(sources[0], "gpu or http", "expected a stage after the source: requests begin within Ray's ingress")
    if len(graph["stages"]) < 2:
        refuse(sources[0], "arrive", "expected a stage that takes from it")
    for stage in graph["stages"]:
        if len(stage["from"]) > 1 and not stage["join"]:
            refuse(stage, "from", 'expected one stage, or join = { by = "request" }: each call has one answer')
        if stage["join"] and stage["join"]["by"] != "request":
            refuse(stage, "join.by", 'expected "request": Ray Serve joins what one request called')
        if stage["window"]:
            refuse(stage, "window", "expected none: Ray Serve answers each request")
        if stage["route"] == "key":
            refuse(stage, "route", "expected another route: Ray Serve chooses the replica")
        if stage["emit"] > 1:
            refuse(stage, "emit", f"expected at most 1, got {stage['emit']}: a request has one answer")
        if stage["grow"]:
            refuse(stage, "grow", "expected none: Ray Serve has an autoscaler of its own")
        if stage["message"] and stage["message"]["hand_over"] == "share":
            refuse(stage, "message.hand_over", 'expected "copy": replicas are processes')


def burn(us, clock):
    """Work of so much CPU time, or until so much time has passed."""
    now = time.thread_time if clock == "cpu" else time.monotonic
    until = now() + us / 1e6
    while now() < until:
        pass


def service_ms(points, batch):
    """As `pipeline`: straight lines between points, the last line goes on, one point is a time for each item."""
    if batch <= points[0][0]:
        return points[0][1]
    if len(points) == 1:
        return points[0][1] * batch / points[0][0]
    pairs = list(zip(points, points[1:]))
    (low, low_ms), (high, high_ms) = next((pair for pair in pairs if batch <= pair[1][0]), pairs[-1])
    return low_ms + (high_ms - low_ms) * (batch - low) / (high - low)


class Gpu:
    """Of a replica. One thread calls all of it."""

    def __init__(self, work, sync, library):
        self.work = work
        if cuda := os.environ.get("GPU_STEP_CUDA"):
            # By its name in the loader's list, the library finds this one.
            ctypes.CDLL(cuda, ctypes.RTLD_GLOBAL)
        # As PyTorch does: it launches with the interpreter's lock and waits without.
        self.launching, self.waiting = ctypes.PyDLL(library), ctypes.CDLL(library)
        self.call(self.waiting.gpu_step_open, sync.encode())

    def call(self, function, *arguments):
        error = ctypes.create_string_buffer(256)
        if function(*arguments, error, ctypes.c_size_t(len(error))):
            raise RuntimeError(f"{PROGRAM}: {error.value.decode(errors='replace')}")

    def run(self, batch):
        launches = self.work["launches"]
        kernel_ns = int(service_ms(self.work["service"], batch) * 1e6 / launches)
        numbers = (launches, int(self.work["gap_us"] * 1e3), kernel_ns, 0)
        self.call(self.launching.gpu_step_launch, *map(ctypes.c_uint64, numbers))
        self.call(self.waiting.gpu_step_wait)


def ask(http, path, body=None):
    """The JSON that the server answers with; what is no answer raises."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(http["url"] + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=http["timeout_s"]) as answer:
        return json.loads(answer.read())


def complete(http, model, number):
    """One completion, of another text for each request."""
    letters = [chr(ord("a") + (number * 31 + place * 7) % 26) for place in range(3 * http["prompt_tokens"])]
    words = ["".join(letters[place : place + 3]) for place in range(0, len(letters), 3)]
    body = {"model": model, "prompt": " ".join(words), "max_tokens": http["max_tokens"]}
    if not ask(http, "/v1/completions", {**body, "temperature": 0.0, "ignore_eos": True}).get("choices"):
        raise RuntimeError("an answer without a choice")


class Stage:
    """What a stage's replicas do; `deployments()` makes deployments of it. An answer is a message, or none where a
    filter kept it back, with what is known of the request's way up to here."""

    def __init__(self, stage, sync, seed, library):
        import ray

        self.stage, self.seed = stage, seed
        self.node = ray.get_runtime_context().get_node_id()[:8]
        # The work of a batch runs beside the loop that takes requests, one batch at a time.
        self.worker = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix=stage["name"])
        self.gpu = self.worker.submit(Gpu, stage["gpu"], sync, library).result() if stage["gpu"] else None
        self.model = None
        if http := stage["http"]:
            self.model = http["model"] or ask(http, "/v1/models")["data"][0]["id"]
        self.waiting = asyncio.Queue()
        self.batches = None

    async def __call__(self, *inputs):
        first = inputs[0]
        way = {(step["stage"], step["began"]): step for answer in inputs for step in answer["way"]}
        if not all(answer["passed"] for answer in inputs):
            return {"number": first["number"], "passed": False, "message": b"", "way": list(way.values())}
        if self.batches is None:
            self.batches = asyncio.ensure_future(self.work_off())
        ready = {answer["way"][-1]["stage"]: answer["way"][-1]["done"] for answer in inputs}
        taken, done = time.time(), asyncio.get_running_loop().create_future()
        self.waiting.put_nowait((first["number"], done))
        step = {"stage": self.stage["name"], "node": self.node, "ready": ready, "taken": taken, **await done}
        return answer_of(self.stage, self.seed, first["number"], [*way.values(), step])

    async def work_off(self):
        """One batch after the other, of what waits then."""
        loop = asyncio.get_running_loop()
        while True:
            batch = await self.gather()
            began = time.time()
            try:
                await loop.run_in_executor(self.worker, self.work, [number for number, _ in batch])
            except Exception as error:
                for _, done in batch:
                    done.cancelled() or done.set_exception(error)
                continue
            step = {"began": began, "done": time.time(), "batch": len(batch)}
            for _, done in batch:
                done.cancelled() or done.set_result(step)

    async def gather(self):
        """What waits, up to the most; `fixed` waits for that."""
        most, fixed = self.stage["batch"]["max"], self.stage["batch"]["gather"] == "fixed"
        batch = [await self.waiting.get()]
        until = time.monotonic() + self.stage["batch"]["wait_ms"] / 1e3
        while len(batch) < most:
            try:
                if fixed:
                    batch.append(await asyncio.wait_for(self.waiting.get(), max(0, until - time.monotonic())))
                else:
                    batch.append(self.waiting.get_nowait())
            except (asyncio.QueueEmpty, asyncio.TimeoutError):
                break
        return batch

    def work(self, numbers):
        if cpu := self.stage["cpu"]:
            burn(cpu["us"] * len(numbers), cpu["clock"])
        if self.gpu:
            self.gpu.run(len(numbers))
        for number in numbers if self.stage["http"] else []:
            complete(self.stage["http"], self.model, number)


def answer_of(stage, seed, number, way):
    """What goes on from `stage`; the same in every run with this seed."""
    rng = random.Random(f"{seed} {stage['name']} {number}")
    passed = rng.random() < stage["emit"]
    least, most = stage["message"]["bytes"] if stage["message"] and not stage["ends"] and passed else (0, 0)
    return {"number": number, "passed": passed, "message": b"\1" * rng.randint(least, most), "way": way}


class Ingress:
    """Where requests begin. Each of them calls the stages in their order; answers go from replica to replica."""

    def __init__(self, graph, plan, stages):
        self.graph, self.plan = graph, plan
        self.handles = dict(stages)
        self.source = next(stage for stage in graph["stages"] if stage["arrive"])
        self.requests = []

    async def run(self):
        """All requests that were due in the measured part, with what became of each."""
        begin = time.time()
        until = begin + self.plan["warmup"] + self.plan["duration"]
        arrive = self.source["arrive"]
        open_requests = set()
        if arrive["loop"] == "open":
            for due in self.dues(begin, until):
                await asyncio.sleep(max(0, due - time.time()))
                task = asyncio.ensure_future(self.request(due))
                open_requests.add(task)
                task.add_done_callback(open_requests.discard)
        else:
            clients = [asyncio.ensure_future(self.client(until)) for _ in range(arrive["clients"])]
            open_requests.update(clients)
            await asyncio.sleep(max(0, until - time.time()))
        if open_requests:
            await asyncio.wait(open_requests, timeout=max(0, until + self.plan["drain"] - time.time()))
        for task in list(open_requests):
            task.cancel()
        return [request for request in self.requests if request["due"] >= begin + self.plan["warmup"]]

    def dues(self, due, until):
        items = 0
        phases = list(self.source["arrive"]["phases"])
        rng = random.Random(self.plan["seed"])
        while True:
            if phases[0]["items"] is not None and items >= phases[0]["items"]:
                phases.pop(0)
                items = 0
            rate = phases[0]["rate"]
            even = self.source["arrive"]["gaps"] == "even"
            due += 1 / rate if even else rng.expovariate(rate)
            if due >= until:
                return
            items += 1
            yield due

    async def client(self, until):
        while time.time() < until:
            await self.request(time.time())

    async def request(self, due):
        request = {"due": due, "became": "unfinished", "done": None, "way": [], "error": None}
        self.requests.append(request)
        try:
            answers = await asyncio.gather(*self.call(len(self.requests), due))
        except asyncio.CancelledError:
            return
        except Exception as error:
            request.update(became="failed", error=(str(error).strip() or repr(error)).splitlines()[-1])
            return
        request["done"] = time.time()
        request["way"] = list({step["stage"]: step for answer in answers for step in answer["way"]}.values())
        passed = [answer["passed"] for answer in answers]
        request["became"] = "completed" if any(passed) else "filtered"

    def call(self, number, due):
        """Calls every stage; the answers of those that end the graph."""
        source = self.source
        if source["cpu"]:
            burn(source["cpu"]["us"], source["cpu"]["clock"])
        step = {"stage": source["name"], "node": "ingress", "batch": 1, "ready": {}}
        step.update(began=due, taken=due, done=time.time())
        answers = []
        for stage in self.graph["stages"]:
            if stage is source:
                answers.append(answer_of(source, self.plan["seed"], number, [step]))
            else:
                answers.append(self.handles[stage["name"]].remote(*(answers[before] for before in stage["from"])))
        return [answer for answer, stage in zip(answers, self.graph["stages"]) if stage["ends"]]


def replicas_of(graph):
    """Of Ray Serve, with the one where requests begin. Ray counts each as a CPU, and starts none beyond that."""
    return 1 + sum(stage["threads"] for stage in graph["stages"] if not stage["arrive"])


def deployments(graph, asked, library):
    """Of the graph: one deployment a stage, and the one where requests begin."""
    from ray import serve

    plan = {"warmup": asked.warmup, "duration": asked.duration, "drain": asked.drain, "seed": asked.seed}
    names = ("GPU_STEP_CUDA", "LD_LIBRARY_PATH", "FAKECUDA_DEVICES", "FAKECUDA_CONCURRENT")
    environment = {name: os.environ[name] for name in names if name in os.environ}

    def options_of(replicas, gpus):
        actor = {"num_cpus": 1, "num_gpus": gpus, "runtime_env": {"env_vars": environment}}
        return {"num_replicas": replicas, "max_ongoing_requests": 10_000, "ray_actor_options": actor}

    def deployment(stage):
        of_stage = options_of(stage["threads"], asked.gpus if stage["gpu"] else 0)
        made = serve.deployment(Stage).options(name=stage["name"], **of_stage)
        return stage["name"], made.bind(stage, graph["sync"], asked.seed, library)

    stages = [deployment(stage) for stage in graph["stages"] if not stage["arrive"]]
    return serve.deployment(Ingress).options(name="ingress", **options_of(1, 0)).bind(graph, plan, stages)


def run(asked, graph):
    """The requests of the measured part, how many nodes there were, and Ray's version."""
    library = os.environ.get("GPU_STEP_LIBRARY") or str(ROOT / "target/lab/libgpu_step.so")
    if any(stage["gpu"] for stage in graph["stages"]) and not asked.address and not os.path.exists(library):
        raise RuntimeError(f"{library}: not there: run make build, or set GPU_STEP_LIBRARY")
    try:
        import ray
        from ray.cluster_utils import Cluster
    except ImportError as error:
        raise RuntimeError(f"{error}: run make ray, and this with the python that it names") from error

    cluster, here = None, {}
    if asked.nodes > 1:
        cluster = Cluster()
    try:
        for _ in range(asked.nodes if cluster else 0):
            cpus = math.ceil(replicas_of(graph) / asked.nodes)
            cluster.add_node(num_cpus=cpus, object_store_memory=OBJECT_STORE, include_dashboard=False)
        if not asked.address and not cluster:
            here = {"num_cpus": replicas_of(graph), "object_store_memory": OBJECT_STORE, "include_dashboard": False}
        address = asked.address or (cluster.address if cluster else "local")
        ray.init(address=address, logging_level="error", log_to_driver=False, **here)
        try:
            return serve_it(asked, graph, library)
        finally:
            ray.shutdown()
    finally:
        if cluster:
            cluster.shutdown()


def serve_it(asked, graph, library):
    """As run(), where Ray runs."""
    import ray
    from ray import serve

    gpus = asked.gpus * sum(stage["threads"] for stage in graph["stages"] if stage["gpu"])
    for name, needed in (("CPU", replicas_of(graph)), ("GPU", gpus)):
        there = ray.cluster_resources().get(name, 0)
        if there < needed:
            raise Refused(f"Ray counts {there:g} {name}s: expected {needed:g}, for the replicas of all stages")
    serve.start(proxy_location="Disabled")
    handle = serve.run(deployments(graph, asked, library), name=PROGRAM, route_prefix=None)
    print(f"{PROGRAM}: started", file=sys.stderr)
    requests = handle.run.remote().result()
    return requests, sum(node["Alive"] for node in ray.nodes()), ray.__version__


def summary(milliseconds):
    ordered = sorted(milliseconds)
    count = len(ordered)
    of = {"count": count, "mean": sum(ordered) / count if count else None, "max": ordered[-1] if count else None}
    for name, (share, least) in PERCENTILES.items():
        of[name] = ordered[min(count - 1, math.ceil(share * count) - 1)] if count >= least else None
    return of


def document(asked, graph, requests, nodes, version):
    """With the keys of `pipeline`'s that there are here."""
    completed = [request for request in requests if request["became"] == "completed"]
    latencies = [(request["done"] - request["due"]) * 1e3 for request in completed]
    fates = [request["became"] for request in requests]
    count = {fate: fates.count(fate) for fate in ("completed", "failed", "filtered", "unfinished")}
    steps = [step for request in requests for step in request["way"]]

    def of_stage(stage):
        ours = [step for step in steps if step["stage"] == stage["name"]]
        batches = {(step["node"], step["began"]): step for step in ours}.values()
        return {
            "threads": stage["threads"],
            "items": len(ours),
            "service_ms": summary([(step["done"] - step["began"]) * 1e3 for step in batches]),
            "batch_size": summary([step["batch"] for step in batches]),
            "nodes": sorted({step["node"] for step in ours}),
        }

    def of_edge(edge):
        before, after = (graph["stages"][edge[end]]["name"] for end in ("from", "to"))
        ours = [step for step in steps if step["stage"] == after and before in step["ready"]]
        return {
            "from": before,
            "to": after,
            "delay_ms": summary([(step["began"] - step["ready"][before]) * 1e3 for step in ours]),
            "transfer_ms": summary([(step["taken"] - step["ready"][before]) * 1e3 for step in ours]),
        }

    def objective(ms):
        missed = len(requests) - count["filtered"] - sum(latency <= ms for latency in latencies)
        expected = len(requests) - count["filtered"]
        return {"ms": ms, "missed": missed, "miss_rate": missed / expected if expected else None}

    return {
        "schema": 1,
        "workload": "pipeline",
        "engine": f"Ray Serve {version}",
        "nodes": nodes,
        "name": asked.graph,
        "set": asked.set,
        "graph": graph,
        "seed": asked.seed,
        "seconds": asked.duration,
        "offered": len(requests),
        **count,
        "items_per_s": len(completed) / asked.duration,
        "end_to_end_ms": summary(latencies),
        "slo": [objective(ms) for ms in asked.slo_ms],
        "stages": {stage["name"]: of_stage(stage) for stage in graph["stages"]},
        "edges": [of_edge(edge) for edge in graph["edges"]],
        "errors": sorted({request["error"] for request in requests if request["error"]}),
    }


def main():
    try:
        asked = options()
        graph = read_graph(asked)
        check(asked, graph)
        if asked.check:
            return 0
        print(json.dumps(document(asked, graph, *run(asked, graph))))
        return 0
    except Refused as error:
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        return 2
    except Exception as error:
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
