/* SPDX-License-Identifier: GPL-2.0-only */
/* The kernel's PTX inside the program, ended by a zero as cuModuleLoadData wants it. */
	.section .rodata
	.balign 8
	.globl busy_image
busy_image:
	.incbin BUSY_PTX
	.byte 0
	.section .note.GNU-stack, "", @progbits
