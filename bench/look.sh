#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Opens a run's report.html in headless Chromium, fails on console errors and on a page wider than a phone, and takes
# screenshots in light, in dark, at phone width and as printed. Run by hand; look at what it writes.
#
#   bench/look.sh RUN [FOLDER FOR THE PICTURES]     (default: RUN-look beside the run)
set -euo pipefail

run=$(realpath "${1:?usage: bench/look.sh RUN [FOLDER FOR THE PICTURES]}")
out=${2:-$run-look}
page=$run/report.html
[ -e "$page" ] || { echo "look: expected a run's folder with report.html, got $run: gpuaware-bench report makes it" >&2; exit 2; }
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
	{ echo "look: no Chromium here: apt install chromium" >&2; exit 2; }
mkdir -p "$out"
out=$(realpath "$out")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Headless Chromium says on stderr what goes to the console.
open() {
	timeout 120 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --enable-logging=stderr \
		--allow-file-access-from-files --user-data-dir="$scratch/profile" "$@" 2>>"$scratch/log"
}

# blink-settings: 0 is dark, 1 light.
open --blink-settings=preferredColorScheme=1 --window-size=1300,9000 --screenshot="$out/light.png" "file://$page"
open --blink-settings=preferredColorScheme=0 --window-size=1300,9000 --screenshot="$out/dark.png" "file://$page"
open --no-pdf-header-footer --print-to-pdf="$out/print.pdf" "file://$page"

# A frame as wide as a phone: a window cannot be so narrow.
cat >"$scratch/phone.html" <<END
<!doctype html><body style="margin:0"><iframe id="f" src="file://$page" width="390" height="9000" style="border:0"></iframe>
<script>onload = () => { document.title = "width " + document.getElementById("f").contentDocument.documentElement.scrollWidth; };</script>
END
open --window-size=500,9000 --screenshot="$out/phone.png" "file://$scratch/phone.html"
width=$(open --virtual-time-budget=3000 --dump-dom "file://$scratch/phone.html" | sed -n 's/.*<title>width \([0-9]*\).*/\1/p')

if grep ':CONSOLE' "$scratch/log" >&2; then
	echo "look: the page says something on the console" >&2
	exit 1
fi
if [ "${width:-none}" != 390 ]; then
	echo "look: at phone width the page is ${width:-none} wide, expected 390: something does not scroll in its box" >&2
	exit 1
fi
echo "look: nothing on the console, 390 wide at phone width; now look at $out/{light,dark,phone}.png and print.pdf"
