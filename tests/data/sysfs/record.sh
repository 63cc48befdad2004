#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Records what the topology module reads of a machine's sysfs, in the form of the files beside this
# one: record.sh [SYSFS] > machine.txt
set -euo pipefail
shopt -s nullglob
cd "${1:-/sys}"

cpu='devices/system/cpu'
files=(
	"$cpu"/{online,offline,present,possible}
	"$cpu"/cpu[0-9]*/cpu_capacity
	"$cpu"/cpu[0-9]*/topology/{physical_package_id,thread_siblings_list,core_cpus_list}
	"$cpu"/cpu[0-9]*/cache/index[0-9]*/{level,shared_cpu_list}
	"$cpu"/cpu[0-9]*/cpufreq/{cpuinfo_max_freq,base_frequency}
	"$cpu"/types/*/cpulist
	devices/cpu_{core,atom}/cpus
	devices/system/node/node[0-9]*/{cpulist,distance}
)
for device in bus/pci/devices/*; do
	case "$(cat "$device/class")" in
	0x02* | 0x03* | 0x12*)
		files+=(
			"$device"/{class,vendor,device,numa_node,local_cpulist}
			"$device"/{,virtio*/}net/*/carrier
			"$device"/infiniband/*/ports/*/state
		)
		;;
	esac
done

# One line a file; CPUs with the same text share one, their numbers as a list in braces.
for file in "${files[@]}"; do
	# carrier of an interface that is down cannot be read.
	if text="$(cat "$file" 2>/dev/null)"; then
		printf '%s\t%s\n' "$file" "$text"
	fi
done | awk -F '\t' '
	{
		cpu = ""
		if (match($1, /cpu\/cpu[0-9]+\//)) {
			cpu = substr($1, RSTART + 7, RLENGTH - 8)
			$1 = substr($1, 1, RSTART + 6) "{}" substr($1, RSTART + RLENGTH - 1)
		}
		key = $1 " = " $2
		if (!(key in cpus)) {
			order[++keys] = key
			cpus[key] = cpu
		} else {
			cpus[key] = cpus[key] " " cpu
		}
	}
	# The numbers come in the order of names: 0 1 10 11 2.
	function list(numbers, has, count, number, i, top, text) {
		count = split(numbers, number, " ")
		top = 0
		for (i = 1; i <= count; i++) {
			has[number[i]] = 1
			if (number[i] + 0 > top)
				top = number[i] + 0
		}
		for (i = 0; i <= top; i++) {
			if (!(i in has))
				continue
			text = text (text == "" ? "" : ",") i
			if ((i + 1) in has) {
				while ((i + 1) in has)
					i++
				text = text "-" i
			}
		}
		return text
	}
	END {
		for (i = 1; i <= keys; i++) {
			key = order[i]
			if (cpus[key] != "")
				sub(/\{\}/, "{" list(cpus[key]) "}", key)
			print key
		}
	}'
