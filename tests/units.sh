#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Cargo's runner for unit tests: those of crates that only calculate, or those of all others.
#   tests/units.sh calculating|others BINARY WORDS...
set -euo pipefail

case ${2##*/} in
gpuaware_sim-* | gpuaware_stats-* | gpuaware_trace-*) kind=calculating ;;
*) kind=others ;;
esac
[ "$kind" = "$1" ] || exit 0
shift
RUSTC_BOOTSTRAP=1 exec "$@"
