#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The same thing twice, for real: measures the matrix `same` several times in the lab, looks whether an arm beats itself
# in the table "Where others beat", and compares each run with the one before. Of runs of the same thing `compare`
# should find nothing better or worse, 5 % of the tables at most should name anybody, and 95 % of the reports' intervals
# should overlap. Run by hand, on a quiet machine: some five minutes a run. Runs that the folder already holds are kept.
# Needs jq.
#
#   bench/same.sh FOLDER [RUNS] [WORDS FOR compare…]
#   bench/same.sh bench/runs/local/same 21 --gate 0.25
set -euo pipefail

folder=${1:?usage: bench/same.sh FOLDER [RUNS] [WORDS FOR compare…]}
runs=${2:-21}
shift $(($# > 1 ? 2 : 1))
bench=$(dirname "$0")/../target/release/gpuaware-bench

for run in $(seq "$runs"); do
	[ -e "$folder/$run/report.html" ] || "$bench" run same -o "$folder/$run" >/dev/null
done

for run in $(seq "$runs"); do
	jq '[.summary.dominance[] | (.ahead[], .dominated_by // []) | length] | add > 0' "$folder/$run/summary.json"
done | awk '
	{ named += ($1 == "true") }
	END { printf "%d runs, in %d of them an arm beats itself\n", NR, named }'

for run in $(seq 2 "$runs"); do
	# Exit code 1 is a verdict, and is counted below.
	"$bench" compare "$folder/$((run - 1))" "$folder/$run" "$@" || [ $? = 1 ]
done | awk '
	/ became worse, / { pairs++; wrong += ($1 != 0 || $6 != 0) }
	/ intervals in the two reports overlap/ { overlapping += $1; all += $3 }
	END {
		if (!pairs) { print "no pair could be compared: see compare by hand" > "/dev/stderr"; exit 1 }
		printf "%d comparisons, %d with a verdict; %d of %d intervals overlap: %.1f %%\n",
			pairs, wrong, overlapping, all, overlapping * 100 / all
	}'
