/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which file a process has at an address, for whoever attaches uprobes. To user space every overlay
 * is a file system of its own; what it maps, and what a probe is attached to, is the file below.
 */
#ifndef __GPUAWARE_MAPPED_FILE_BPF_H
#define __GPUAWARE_MAPPED_FILE_BPF_H

#include "intf.h"
#include "pidns.bpf.h"

static long note_file(struct task_struct *p, struct vm_area_struct *vma, void *data)
{
	struct gpuaware_mapped_file *found = data;

	found->inode = BPF_CORE_READ(vma, vm_file, f_inode, i_ino);
	found->device = BPF_CORE_READ(vma, vm_file, f_inode, i_sb, s_dev);
	return 0;
}

/* User space asks with a process and an address. Returns 0 or a negative errno. */
SEC("syscall")
int find_mapped_file(struct gpuaware_mapped_file *request)
{
	struct gpuaware_mapped_file found = {};
	struct task_struct *p = task_by_number(request->tgid);

	if (!p)
		return -ESRCH;
	bpf_find_vma(p, request->address, note_file, &found, 0);
	bpf_task_release(p);
	request->inode = found.inode;
	request->device = found.device;
	return 0;
}

#endif /* __GPUAWARE_MAPPED_FILE_BPF_H */
