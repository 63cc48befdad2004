#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Prints the rows of README's table from a run of the matrix `peers`, so that no figure is typed. Needs jq.
#
#   bench/readme.sh bench/runs/2026-11-25-peers
set -euo pipefail

run=${1:?usage: bench/readme.sh RUN}

# Workload, neighbour, arm, tokens/s, share of clean, p99, work, idle; arms in the order of the README.
jq -r '
	["eevdf", "isolcpus", "gpuaware", "scx_layered-lending", "scx_layered-protected",
		"scx_cosmos", "scx_bpfland", "scx_lavd", "gpuaware-hold0"] as $order
	| .summary.rows as $rows
	| .plan.matrix as $matrix
	| $matrix.workload[].name as $workload
	| ($matrix.neighbours[] | select(. != "none")) as $neighbour
	| $order[] as $arm
	| $rows[]
	| select(.workload == $workload and .neighbour == $neighbour and .arm == $arm)
	| [$workload, $neighbour, $arm, .tokens_per_s.value, .share_of_clean.value, .token_p99_ms.value, .work_mean.value, .idle_percent.value]
	| map(. // "–") | @tsv
' "$run/summary.json" | awk -F '\t' '
	BEGIN {
		name["eevdf"] = "EEVDF"; name["gpuaware"] = "scx_gpuaware"; name["gpuaware-hold0"] = "scx_gpuaware without hold"
		name["scx_layered-lending"] = "scx_layered, lending"; name["scx_layered-protected"] = "scx_layered, protected"
		shape["qwen3"] = "qwen3: 950 launches a token, then waits for the GPU"
		shape["eager"] = "eager: launch-bound, three quarters of a CPU"
	}
	function said(value, factor, digits) { return value == "–" ? value : sprintf("%.*f", digits, value * factor) }
	function cell(text) { return " " bold text bold " |" }
	{
		bold = ""
		line = "|" cell($1 == workload ? "" : $1 in shape ? shape[$1] : $1)
		line = line cell($1 $2 == place ? "" : $2)
		workload = $1; place = $1 $2
		bold = $3 == "gpuaware" ? "**" : ""
		print line cell($3 in name ? name[$3] : $3) cell(said($4, 1, 0)) cell(said($5, 100, 1)) cell(said($6, 1, 1)) \
			cell(said($7, 100, 0)) cell(said($8, 1, 1))
	}'
