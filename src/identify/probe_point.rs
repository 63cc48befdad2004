// SPDX-License-Identifier: GPL-2.0-only
//! Where at the beginning of a function a probe is cheap. Pure.
//!
//! A uprobe is a breakpoint in place of an instruction, and most instructions are then single-stepped
//! elsewhere, which takes ten microseconds. A few the kernel carries out itself, which is far cheaper
//! (`arch/x86/kernel/uprobes.c`: `branch_setup_xol_ops()`, `push_setup_xol_ops()`). Hardly any function
//! begins with one of these. NVIDIA's libcuda does from 580 on (`push`); from 470 to 550 it has one second, a `je`
//! behind a `cmp`.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess, Register,
};

/// How many bytes of a function are looked at.
pub const LOOKED_AT: usize = 32;

/// What the programs at a probe read, as it was when the function was called: the arguments, and
/// by the stack pointer more of them and where it returns to.
const READ: [Register; 7] = [
    Register::RDI,
    Register::RSI,
    Register::RDX,
    Register::RCX,
    Register::R8,
    Register::R9,
    Register::RSP,
];

/// How far into the x86-64 function that begins with `code` a probe belongs: at the first instruction
/// that the kernel carries out itself, if every call comes there and finds what is read there
/// unchanged. 0: at its beginning.
pub fn offset_in(code: &[u8]) -> usize {
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let mut facts = InstructionInfoFactory::new();
    loop {
        let at = decoder.position();
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return 0;
        }
        if is_carried_out_by_the_kernel(&code[at..]) {
            return at;
        }
        if instruction.flow_control() != FlowControl::Next || changes(&instruction, &mut facts) {
            return 0;
        }
    }
}

/// The encodings that the kernel knows, without prefixes: `nop`, `push` of a register, jumps.
fn is_carried_out_by_the_kernel(instruction: &[u8]) -> bool {
    matches!(
        instruction,
        [0x90, ..]
            | [0x50..=0x57, ..]
            | [0x41, 0x50..=0x57, ..]
            | [0x70..=0x7f, ..]
            | [0x0f, 0x80..=0x8f, ..]
            | [0xe9 | 0xeb, ..]
    )
}

/// Does it change what is read, or memory, where more of that is?
fn changes(instruction: &Instruction, facts: &mut InstructionInfoFactory) -> bool {
    let facts = facts.info(instruction);
    let writes = |access| {
        !matches!(
            access,
            OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
        )
    };
    let mut registers = facts.used_registers().iter();
    let mut memory = facts.used_memory().iter();
    registers.any(|used| writes(used.access()) && READ.contains(&used.register().full_register()))
        || memory.any(|used| writes(used.access()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// cuLaunchKernel of 550.163.01: cmpl $0x321cba00,…(%rip); je; jmp *…(%rip).
    const GENUINE: [u8; 18] = [
        0x81, 0x3d, 0xd6, 0x7b, 0x87, 0x01, 0x00, 0xba, 0x1c, 0x32, 0x74, 0x0c, 0xff, 0x25, 0xf6,
        0x04, 0x78, 0x01,
    ];
    /// cuLaunchKernel of 580.159.04: push %rbp; mov %rsp,%rbp; push %r12; sub $8,%rsp; cmpl ….
    const GENUINE_580: [u8; 17] = [
        0x55, 0x48, 0x89, 0xe5, 0x41, 0x54, 0x48, 0x83, 0xec, 0x08, 0x81, 0x3d, 0xdc, 0x61, 0x83,
        0x05, 0x00,
    ];
    const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

    #[test]
    fn the_genuine_library_is_probed_at_its_conditional_jump() {
        assert_eq!(offset_in(&GENUINE), 10);
        assert_eq!(offset_in(&[&ENDBR64[..], &GENUINE].concat()), 14);
    }

    #[test]
    fn driver_580_is_probed_at_its_first_instruction_which_is_a_push() {
        assert_eq!(offset_in(&GENUINE_580), 0);
        assert!(is_carried_out_by_the_kernel(&GENUINE_580));
    }

    #[test]
    fn what_the_kernel_carries_out_is_probed_where_it_is() {
        for (name, instruction) in [
            ("nop", &[0x90][..]),
            ("push %rbp", &[0x55]),
            ("push %r15", &[0x41, 0x57]),
            ("jmp rel8", &[0xeb, 0x10]),
            ("jmp rel32", &[0xe9, 1, 2, 3, 4]),
            ("jne rel32", &[0x0f, 0x85, 1, 2, 3, 4]),
        ] {
            assert_eq!(offset_in(instruction), 0, "{name}");
            let behind = [&ENDBR64[..], &[0x31, 0xc0], instruction].concat();
            assert_eq!(
                offset_in(&behind),
                6,
                "{name} behind endbr64, xor %eax,%eax"
            );
        }
    }

    #[test]
    fn nothing_that_is_read_at_a_probe_has_changed_before() {
        for (name, instruction) in [
            ("sub $0x58,%rsp", &[0x48, 0x83, 0xec, 0x58][..]),
            ("push $1", &[0x6a, 0x01]),
            ("mov %rsi,(%rsp)", &[0x48, 0x89, 0x34, 0x24]),
            ("xor %edi,%edi", &[0x31, 0xff]),
            ("mov $1,%cl", &[0xb1, 0x01]),
            ("cmove %rax,%r9", &[0x4c, 0x0f, 0x44, 0xc8]),
            ("cpuid", &[0x0f, 0xa2]),
            ("call", &[0xe8, 1, 2, 3, 4]),
            ("ret", &[0xc3]),
            ("syscall", &[0x0f, 0x05]),
            ("jmp *(%rip)", &[0xff, 0x25, 1, 2, 3, 4]),
            ("jrcxz", &[0xe3, 0x01]),
            ("int3", &[0xcc]),
        ] {
            let code = [instruction, &[0x90]].concat();
            assert_eq!(offset_in(&code), 0, "{name}");
        }
    }

    #[test]
    fn an_instruction_that_is_cut_off_is_none() {
        assert_eq!(offset_in(&[]), 0);
        for end in 0..GENUINE.len() {
            let expected = if end < 12 { 0 } else { 10 };
            assert_eq!(offset_in(&GENUINE[..end]), expected, "{end} bytes");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_place_that_the_kernel_knows(code: Vec<u8>) {
            let offset = offset_in(&code);
            prop_assert!(offset == 0 || is_carried_out_by_the_kernel(&code[offset..]));
        }
    }
}
