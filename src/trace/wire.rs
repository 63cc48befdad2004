// SPDX-License-Identifier: GPL-2.0-only
//! How the tracer's programs and the recorder's are spoken to: structs as bytes, tables, variables that the kernel side
//! reads and writes behind our back.

use std::mem::{MaybeUninit, size_of};

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags, libbpf_sys};

/// Does this kernel have a tracepoint of that name?
///
/// # Errors
/// A name with a NUL.
pub fn has_tracepoint(name: &str) -> Result<bool> {
    let name = std::ffi::CString::new(name)?;
    // SAFETY: a valid C string; the function only reads it.
    let id = unsafe {
        libbpf_sys::libbpf_find_vmlinux_btf_id(name.as_ptr(), libbpf_sys::BPF_TRACE_RAW_TP)
    };
    Ok(id > 0)
}

/// Keys and values of a table.
///
/// # Errors
/// The kernel refuses.
pub fn entries(map: &impl MapCore) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut entries = Vec::new();
    for key in map.keys() {
        let value = map.lookup(&key, MapFlags::ANY).context("reading a table")?;
        entries.extend(value.map(|value| (key, value)));
    }
    Ok(entries)
}

/// A struct that bindgen made of one of `bpf/*intf.h` from its bytes; what they lack is zero.
pub fn plain<T: Copy>(bytes: &[u8]) -> T {
    let mut value = MaybeUninit::<T>::zeroed();
    let len = bytes.len().min(size_of::<T>());
    // SAFETY: not more than the size of `T` is copied; `T` is one of bindgen's structs of plain
    // integers, valid for any bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.as_mut_ptr().cast(), len);
        value.assume_init()
    }
}

/// A counter of the kernel side.
pub fn read(counter: &u64) -> u64 {
    // SAFETY: a valid, aligned reference; volatile because the kernel writes behind our back.
    unsafe { std::ptr::read_volatile(counter) }
}

/// Sets what the kernel side reads.
pub fn write<T: Copy>(flag: &mut T, value: T) {
    // SAFETY: a valid, aligned reference; volatile because the kernel reads behind our back.
    unsafe { std::ptr::write_volatile(flag, value) }
}
