// SPDX-License-Identifier: GPL-2.0-only
//! The CUDA driver by dlopen, the genuine one or bench/fakecuda's alike: a device's primary context, one stream, one
//! kernel that keeps the GPU busy for as long as it is told.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;

use anyhow::{Context, Result, bail};
use libloading::os::unix::Library;
use nix::libc::{RTLD_LAZY, RTLD_LOCAL, RTLD_NODELETE};

use crate::sync::Sync;

/// The kernel's PTX; the driver compiles it for whatever GPU there is.
const BUSY_PTX: &str = include_str!("busy.ptx");
const CU_STREAM_NON_BLOCKING: c_uint = 1;

type CuResult = c_int;
type Handle = *mut c_void;
type LaunchKernel = unsafe extern "C" fn(
    Handle,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    Handle,
    *mut *mut c_void,
    *mut *mut c_void,
) -> CuResult;

/// A device's primary context, current in the thread that made it: used in that thread only.
pub struct Driver {
    library: Library,
    launch: LaunchKernel,
    synchronize: unsafe extern "C" fn(Handle) -> CuResult,
    stream: Handle,
    busy: Handle,
    pub device_name: String,
    pub version: i32,
    pub total_bytes: u64,
}

/// Calls a function of the driver by its exported name and turns its CUresult into an error.
macro_rules! cu {
    ($library:expr, $name:literal ( $($arg:expr => $kind:ty),* )) => {{
        // SAFETY: the types are those of cuda.h for this name, and the pointers among the arguments
        // are to values that live until the call returns.
        let result = unsafe {
            let call = $library
                .get::<unsafe extern "C" fn($($kind),*) -> CuResult>($name.as_bytes())
                .context(concat!("the driver has no ", $name))?;
            call($($arg),*)
        };
        check(&$library, $name, result)?;
    }};
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver")
            .field("device_name", &self.device_name)
            .finish_non_exhaustive()
    }
}

impl Driver {
    /// The first device is 0. The first thread of a process settles how all of them wait for a device.
    pub fn open(ordinal: u32, sync: Sync) -> Result<Self> {
        // Never unmapped: the driver has threads of its own, which go on when the last thread that used it has gone.
        let flags = RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE;
        // SAFETY: libcuda's initialisers are those of a driver library, made to be opened like this.
        let library = unsafe { Library::open(Some("libcuda.so.1"), flags) }.context(
            "cannot open libcuda.so.1: LD_LIBRARY_PATH can name the folder of bench/fakecuda's",
        )?;
        let (mut version, mut device, mut total_bytes) = (0, 0, 0usize);
        let ordinal = c_int::try_from(ordinal).context("a device number that CUDA cannot have")?;
        let mut name = [0u8; 256];
        let (mut context, mut module): (Handle, Handle) = (ptr::null_mut(), ptr::null_mut());
        let (mut busy, mut stream): (Handle, Handle) = (ptr::null_mut(), ptr::null_mut());
        let image = CString::new(BUSY_PTX).context("the PTX has a zero in it")?;
        cu!(library, "cuInit"(0 => c_uint));
        cu!(library, "cuDriverGetVersion"(&raw mut version => *mut c_int));
        cu!(library, "cuDeviceGet"(&raw mut device => *mut c_int, ordinal => c_int));
        cu!(library, "cuDeviceGetName"(name.as_mut_ptr().cast() => *mut c_char, 256 => c_int, device => c_int));
        cu!(library, "cuDeviceTotalMem_v2"(&raw mut total_bytes => *mut usize, device => c_int));
        cu!(library, "cuDevicePrimaryCtxSetFlags_v2"(device => c_int, sync.flag() => c_uint));
        cu!(library, "cuDevicePrimaryCtxRetain"(&raw mut context => *mut Handle, device => c_int));
        cu!(library, "cuCtxSetCurrent"(context => Handle));
        cu!(library, "cuModuleLoadData"(&raw mut module => *mut Handle, image.as_ptr().cast() => *const c_void));
        cu!(library, "cuModuleGetFunction"(&raw mut busy => *mut Handle, module => Handle, c"busy_ns".as_ptr() => *const c_char));
        cu!(library, "cuStreamCreate"(&raw mut stream => *mut Handle, CU_STREAM_NON_BLOCKING => c_uint));
        // SAFETY: the types are those of cuda.h; the addresses stay good while `library` is open,
        // which lives in the same value.
        let (launch, synchronize) = unsafe {
            (
                *library.get::<LaunchKernel>(b"cuLaunchKernel")?,
                *library.get::<unsafe extern "C" fn(Handle) -> CuResult>(b"cuStreamSynchronize")?,
            )
        };
        Ok(Self {
            library,
            launch,
            synchronize,
            stream,
            busy,
            device_name: text(&name),
            version,
            total_bytes: total_bytes as u64,
        })
    }

    /// Takes `bytes` of the GPU's memory for good.
    pub fn allocate(&self, bytes: u64) -> Result<()> {
        let mut address: u64 = 0;
        let bytes = usize::try_from(bytes).context("more memory than this machine can address")?;
        cu!(self.library, "cuMemAlloc_v2"(&raw mut address => *mut u64, bytes => usize));
        Ok(())
    }

    /// Queues the kernel.
    pub fn launch(&self, duration_ns: u64) -> Result<()> {
        let mut duration = duration_ns;
        let mut params = [(&raw mut duration).cast::<c_void>()];
        // SAFETY: function and stream are this context's; the parameter is the one that the kernel
        // takes, and is copied before the call returns.
        let result = unsafe {
            (self.launch)(
                self.busy,
                1,
                1,
                1,
                1,
                1,
                1,
                0,
                self.stream,
                params.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        check(&self.library, "cuLaunchKernel", result)
    }

    /// Waits until the GPU has done all that was queued.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream is this context's.
        let result = unsafe { (self.synchronize)(self.stream) };
        check(&self.library, "cuStreamSynchronize", result)
    }
}

fn check(library: &Library, call: &str, result: CuResult) -> Result<()> {
    if result == 0 {
        return Ok(());
    }
    let mut name: *const c_char = ptr::null();
    // SAFETY: the type is cuda.h's; the string is static in the driver, and null when unknown.
    let name = unsafe {
        library
            .get::<unsafe extern "C" fn(CuResult, *mut *const c_char) -> CuResult>(
                b"cuGetErrorName",
            )
            .ok()
            .map(|describe| describe(result, &raw mut name))
            .filter(|_| !name.is_null())
            .map(|_| CStr::from_ptr(name).to_string_lossy().into_owned())
    };
    let name = name.unwrap_or_else(|| format!("CUresult {result}"));
    bail!("{call} failed: {name}")
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}
