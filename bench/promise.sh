#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Does a gain that tune promises come again? Tunes once, repeats the proof on rounds that nobody has seen, and asks of
# each gain: is the average of the repeats in the interval that was promised, and how many repeats have the average of
# the others in their own interval? Nineteen of twenty should, if the intervals are what they are called. Run by hand, on
# a quiet machine unless it is simulated; what the folder already holds is kept. Needs jq.
#
#   bench/promise.sh FOLDER REPEATS WORDS FOR tune…
#   bench/promise.sh /tmp/promise 10 --recording host.json --on sim --budget 1m
set -euo pipefail

folder=${1:?usage: bench/promise.sh FOLDER REPEATS WORDS FOR tune…}
repeats=${2:?usage: bench/promise.sh FOLDER REPEATS WORDS FOR tune…}
shift 2
bench=$(dirname "$0")/../target/release/gpuaware-bench
tuned=$folder/tuned

[ -e "$tuned/policy.toml" ] || "$bench" tune "$@" -o "$tuned"
recommended=$(sed -n 's/^# \(.*\) is better than the default on .*/\1/p' "$tuned/policy.toml")
if [ -z "$recommended" ]; then
	echo "promise.sh: the default is as good: nothing is promised" >&2
	exit 1
fi

where=$(jq -r '"--on \(.on)" + (if .on == "lab" then " --cpus \(.cpus)" else "" end) + (if .native then " --native" else "" end)
	+ (if .machine then " --machine \(.machine)" else "" end)' "$tuned/verify/plan.json")
for repeat in $(seq "$repeats"); do
	[ -e "$folder/$repeat/summary.json" ] && continue
	# Rounds have seeds one after the other: two repeats must have none in common.
	# shellcheck disable=SC2086
	"$bench" run "$tuned/verify.toml" $where --arms-dir "$tuned/arms" --seed "${repeat}000" -o "$folder/$repeat" >/dev/null
done

# A line for each figure of the recommended policy: its name, the neighbour, by how much it is better, from and to.
figures() {
	jq -r --arg name "$recommended" '
		.summary.versus[] | select(.subject == "default" and .other == $name) | .neighbour as $beside
		| {tokens_per_s, work, token_p99, ttft_p99, tpot_p99} | to_entries[] | select(.value.interval)
		| (if .key == "tokens_per_s" or .key == "work"
		   then [1 / .value.value, 1 / .value.interval[1], 1 / .value.interval[0]]
		   else [.value.value, .value.interval[0], .value.interval[1]] end) as $gain
		| "\(.key) \($beside) \($gain | map(tostring) | join(" "))"' "$1/summary.json"
}

for run in "$tuned/verify" $(seq -f "$folder/%g" "$repeats"); do
	figures "$run" | sed "s|^|$run |"
done | awk -v promise="$tuned/verify" '
	$1 == promise { if ($5 > 1 && $4 > 1.02) { value[$2, $3] = $4; low[$2, $3] = $5; high[$2, $3] = $6 } next }
	($2, $3) in value { n = ++count[$2, $3]; sum[$2, $3] += $4; again[$2, $3, n] = $4; from[$2, $3, n] = $5; to[$2, $3, n] = $6 }
	END {
		for (gain in value) {
			split(gain, part, SUBSEP)
			n = count[gain]
			for (i = 1; i <= n && n > 1; i++) {
				others = (sum[gain] - again[gain, i]) / (n - 1)
				holds[gain] += (from[gain, i] <= others && others <= to[gain, i])
			}
			mean = sum[gain] / n
			printf "%s beside %s: promised %.3f [%.3f-%.3f], the average of %d repeats is %.3f, %s; %d of these have the average of the others in their interval\n",
				part[1], part[2], value[gain], low[gain], high[gain], n, mean,
				low[gain] <= mean && mean <= high[gain] ? "as promised" : "NOT as promised", holds[gain]
		}
	}'
