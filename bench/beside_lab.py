#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Sets shares of clean of a simulated run beside those of kept runs: the table in docs/simulator.md.

    gpuaware-bench run noisy-neighbour --on sim --seed 1 --arms cfs,nice,taskset-nice,isolcpus,gpuaware \
        --neighbours cpu,network,disk,hackbench,heavy -o DIR
    gpuaware-bench report bench/runs/2026-11-29-noisy-neighbour
    gpuaware-bench report bench/runs/2026-11-27-peers
    bench/beside_lab.py DIR bench/runs/2026-11-29-noisy-neighbour bench/runs/2026-11-27-peers
"""

import json
import sys
from pathlib import Path


def shares(folder):
    """Tokens/s over the baseline's quiet ones, in percent, by workload, neighbour and arm."""
    summary = Path(folder) / "summary.json"
    if not summary.exists():
        sys.exit(f"{summary}: not there: gpuaware-bench report {folder} makes it")
    rows = json.loads(summary.read_text())["summary"]["rows"]
    return {
        (row["workload"], row["neighbour"], row["arm"]): 100 * row["share_of_clean"]["value"]
        for row in rows
        if row.get("share_of_clean")
    }


def table(simulated, labs):
    """Rows of Markdown: the lab's figure of each run, then ours."""
    rows, within = [], 0
    for key, ours in simulated.items():
        theirs = [lab[key] for lab in labs if key in lab]
        if key[1] == "none" or not theirs:
            continue
        off = ours - sum(theirs) / len(theirs)
        within += abs(off) <= 5
        cells = [*key, ", ".join(f"{share:.1f}" for share in theirs), f"{ours:.1f}", f"{off:+.1f}"]
        rows.append("| " + " | ".join(cells) + " |")
    head = ["| workload | neighbour | arm | lab % | sim % | points |", "| --- | --- | --- | ---: | ---: | ---: |"]
    return "\n".join([*head, *rows, "", f"{within} of {len(rows)} within 5 points."])


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    print(table(shares(sys.argv[1]), [shares(folder) for folder in sys.argv[2:]]))
