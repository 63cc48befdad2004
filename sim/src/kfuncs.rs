// SPDX-License-Identifier: GPL-2.0-only
//! What the scheduler calls: kfuncs and helpers over the kernel's state, by the names in `shim/sim/env.h`. What the
//! kernel refuses ends the simulation, as it would end the scheduler.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::rc::Rc;

use crate::abi::{
    CpuMask, DSQ_BUILTIN, DSQ_ITER_REV, DSQ_LOCAL, DsqIter, ENQ_PREEMPT, ITER_SET_VTIME,
    ITER_STARTED, KICK_IDLE, Map, TaskStruct,
};
use crate::dsq::Key;
use crate::events::Event;
use crate::idle::Waker;
use crate::memory::Timer;
use crate::state::{Context, Kernel, Place, local_dsq};
use crate::switch::ENQ_DSQ_PRIQ;

const EBUSY: i32 = 16;
const EEXIST: i32 = 17;
const ENOENT: i32 = 2;
const E2BIG: i32 = 7;
const NOEXIST: u64 = 1;

/// The kernel behind the pointer that every function gets.
///
/// # Safety
///
/// The pointer is what [`Kernel::enter`] set, inside the callback that it was set for.
unsafe fn kernel<'a>(kernel: *mut c_void) -> &'a mut Kernel {
    // SAFETY: the caller's promise; the callback's caller uses no reference meanwhile.
    unsafe { &mut *kernel.cast() }
}

/// Defines functions that C calls, whose first argument stands for the kernel, and a table of them.
macro_rules! kfuncs {
    ($(fn $name:ident($kernel:ident $(, $argument:ident: $type:ty)*) $(-> $result:ty)? $body:block)*) => {
        $(unsafe extern "C" fn $name($kernel: *mut c_void $(, $argument: $type)*) $(-> $result)? {
            // SAFETY: the shim passes sim_env.kernel on.
            let $kernel = unsafe { kernel($kernel) };
            if let Some(meter) = &mut $kernel.meter {
                meter.kfunc(stringify!($name));
            }
            fn body($kernel: &mut Kernel $(, $argument: $type)*) $(-> $result)? $body
            let result = body($kernel $(, $argument)*);
            if let Some(meter) = &mut $kernel.meter {
                meter.kfunc_returns();
            }
            result
        })*
        /// All of them by name.
        pub fn table() -> Vec<(&'static str, *const c_void)> {
            vec![$((stringify!($name), $name as *const c_void)),*]
        }
    };
}

fn index(p: *const TaskStruct) -> usize {
    // SAFETY: schedulers have only tasks that the kernel gave them, which live as long as it.
    unsafe { (*p).index.get() as usize }
}

/// A queue by the id that a scheduler uses, seen from the CPU that it runs on.
fn resolve(kernel: &Kernel, dsq: u64) -> u64 {
    if dsq == DSQ_LOCAL {
        local_dsq(kernel.this_cpu())
    } else {
        dsq
    }
}

fn insert(kernel: &mut Kernel, p: *const TaskStruct, dsq: u64, slice_ns: u64, flags: u64) -> bool {
    let id = index(p);
    let pid = kernel.tasks[id].body.pid.get();
    if kernel.context != Context::Insert(id) {
        kernel.fail(format!(
            "scx_bpf_dsq_insert() of {pid} outside of its select_cpu and enqueue: the kernel refuses that, or \
             (in dispatch) it is not modelled"
        ));
        return false;
    }
    if kernel.tasks[id].direct.is_some() {
        kernel.fail(format!("{pid} already direct-dispatched"));
        return false;
    }
    if dsq & DSQ_BUILTIN != 0 && dsq != DSQ_LOCAL && dsq != crate::abi::DSQ_GLOBAL {
        kernel.fail("SCX_DSQ_LOCAL_ON is not modelled");
        return false;
    }
    let task = &mut kernel.tasks[id];
    match slice_ns {
        0 => task.body.slice.set(task.body.slice.get().max(1)),
        _ => task.body.slice.set(slice_ns),
    }
    task.direct = Some((dsq, flags));
    true
}

fn move_task(
    kernel: &mut Kernel,
    it: &DsqIter,
    p: *const TaskStruct,
    dsq: u64,
    flags: u64,
) -> bool {
    if !matches!(kernel.context, Context::Dispatch | Context::Unlocked) {
        kernel.fail("scx_bpf_dsq_move() where run queues are locked: the kernel refuses that");
        return false;
    }
    let id = index(p);
    let Place::Queued(from, key) = kernel.tasks[id].place else {
        return false;
    };
    // Or it was here before and is back, which whoever walks the queue does not see.
    if from != it.dsq || key.seq >= it.limit {
        return false;
    }
    let to_local = dsq == DSQ_LOCAL && kernel.context == Context::Dispatch;
    if dsq & DSQ_BUILTIN != 0 && !to_local {
        kernel
            .fail("scx_bpf_dsq_move() to a built-in DSQ other than the CPU's own is not modelled");
        return false;
    }
    if to_local && kernel.is_switching_from(id) {
        return false;
    }
    kernel.dsqs.remove(from, key);
    if to_local {
        kernel.tasks[id].body.cpu.set(kernel.this_cpu() as i32);
    }
    if it.state & ITER_SET_VTIME != 0 {
        kernel.tasks[id].body.dsq_vtime.set(it.vtime);
    }
    kernel.dispatch_enqueue(resolve(kernel, dsq), id, flags);
    true
}

/// Of the thread that wakes, on the CPU that runs this.
fn waker(kernel: &Kernel, wake_flags: u64) -> Waker {
    let cpu = kernel.this_cpu();
    let queue = kernel.dsqs.get(local_dsq(cpu));
    Waker {
        cpu,
        wake_flags,
        has_empty_queue: queue.is_some_and(|queue| queue.is_empty()),
    }
}

kfuncs! {
    fn create_dsq(kernel, dsq: u64, _node: i32) -> i32 {
        if kernel.dsqs.create(dsq) { 0 } else { -EEXIST }
    }

    fn dsq_nr_queued(kernel, dsq: u64) -> i32 {
        let queue = kernel.dsqs.get(resolve(kernel, dsq));
        queue.map_or(-ENOENT, |queue| queue.len() as i32)
    }

    fn dsq_insert(
        kernel, p: *const TaskStruct, dsq: u64, slice_ns: u64, vtime: u64, flags: u64, by_vtime: bool
    ) {
        let order = if by_vtime { ENQ_DSQ_PRIQ } else { 0 };
        if insert(kernel, p, dsq, slice_ns, flags | order) && by_vtime {
            kernel.tasks[index(p)].body.dsq_vtime.set(vtime);
        }
    }

    fn dsq_move_to_local(kernel, dsq: u64) -> bool {
        if kernel.context != Context::Dispatch {
            kernel.fail("scx_bpf_dsq_move_to_local() outside of dispatch: the kernel refuses that");
            return false;
        }
        kernel.move_to_local(kernel.this_cpu(), dsq)
    }

    fn dsq_iter_new(kernel, it: *mut DsqIter) {
        // SAFETY: the scheduler's own variable.
        unsafe { (*it).limit = kernel.dsqs.seq() + 1 };
    }

    fn dsq_iter_next(kernel, it: *mut DsqIter) -> *const TaskStruct {
        // SAFETY: the scheduler's own variable.
        let it = unsafe { &mut *it };
        it.state &= !ITER_SET_VTIME;
        let at = (it.state & ITER_STARTED != 0).then_some(Key { order: it.order, seq: it.seq });
        let queue = kernel.dsqs.get(resolve(kernel, it.dsq));
        let reversed = it.flags & DSQ_ITER_REV != 0;
        if let Some(meter) = &mut kernel.meter {
            meter.locks_queue(it.dsq, 1);
        }
        let Some((key, task)) = queue.and_then(|queue| queue.next(at, reversed, it.limit)) else {
            return ptr::null();
        };
        it.state |= ITER_STARTED;
        (it.order, it.seq) = (key.order, key.seq);
        kernel.body(task)
    }

    fn dsq_move(
        kernel, it: *mut DsqIter, p: *const TaskStruct, dsq: u64, flags: u64, by_vtime: bool
    ) -> bool {
        // SAFETY: the scheduler's own variable.
        let it = unsafe { &*it };
        let order = if by_vtime { ENQ_DSQ_PRIQ } else { 0 };
        move_task(kernel, it, p, dsq, flags & !ENQ_PREEMPT | order)
    }

    fn kick_cpu(kernel, cpu: i32, flags: u64) {
        let Some(target) = usize::try_from(cpu).ok().filter(|&cpu| cpu < kernel.cpus.len()) else {
            return kernel.fail(format!("scx_bpf_kick_cpu() of CPU {cpu}"));
        };
        // A CPU whose run queue is locked is looked at when the kick arrives.
        let is_busy = !kernel.cpus[target].is_idle() && target != kernel.this_cpu();
        if flags & KICK_IDLE != 0 && is_busy && !kernel.is_locked(target) {
            return;
        }
        let by = kernel.this_cpu();
        let at = kernel.now_ns + kernel.costs.kick_ns + kernel.cpus[by].owed_ns;
        kernel.events.push(at, Event::Kick { cpu: target, flags, by });
    }

    fn test_and_clear_cpu_idle(kernel, cpu: i32) -> bool {
        let cpu = usize::try_from(cpu).ok().filter(|&cpu| cpu < kernel.cpus.len());
        cpu.is_some_and(|cpu| kernel.idle.test_and_clear(cpu))
    }

    fn pick_idle_cpu(kernel, allowed: *const CpuMask, flags: u64) -> i32 {
        // SAFETY: a mask of the kernel or of the scheduler.
        let picked = kernel.idle.pick(unsafe { &*allowed }, flags, kernel.this_cpu());
        picked.map_or(-EBUSY, |cpu| cpu as i32)
    }

    fn select_cpu_dfl(
        kernel, p: *const TaskStruct, prev_cpu: i32, wake_flags: u64, is_idle: *mut bool
    ) -> i32 {
        let waker = waker(kernel, wake_flags);
        let mask = Rc::clone(&kernel.tasks[index(p)].mask);
        let found = kernel.idle.select(prev_cpu as usize, &mask, waker);
        // SAFETY: the scheduler's own variable.
        unsafe { *is_idle = found.is_some() };
        found.map_or(prev_cpu, |cpu| cpu as i32)
    }

    fn select_cpu_and(
        kernel, p: *const TaskStruct, prev_cpu: i32, wake_flags: u64, allowed: *const CpuMask
    ) -> i32 {
        let waker = waker(kernel, wake_flags);
        let mask = Rc::clone(&kernel.tasks[index(p)].mask);
        // SAFETY: a mask of the kernel or of the scheduler.
        let allowed = unsafe { &*allowed };
        let found = kernel.idle.select(prev_cpu as usize, &mask.and(allowed), waker);
        found.map_or(-EBUSY, |cpu| cpu as i32)
    }

    fn idle_cpumask(kernel) -> *const CpuMask {
        ptr::from_ref(&kernel.idle.cpus)
    }

    fn idle_smtmask(kernel) -> *const CpuMask {
        ptr::from_ref(&kernel.idle.cores)
    }

    fn online_cpumask(kernel) -> *const CpuMask {
        ptr::from_ref(&kernel.online)
    }

    fn cpu_curr(kernel, cpu: i32) -> *const TaskStruct {
        match usize::try_from(cpu).ok().filter(|&cpu| cpu < kernel.cpus.len()) {
            Some(cpu) => kernel.current(cpu),
            None => ptr::null(),
        }
    }

    fn reenqueue_local(kernel) -> u32 {
        kernel.reenqueue_local()
    }

    fn cpumask_create(kernel) -> *const CpuMask {
        kernel.memory.create_mask()
    }

    fn map_create(kernel, kind: u32, key_size: u32, value_size: u32, max_entries: u32) -> *const Map {
        let nr_cpus = kernel.cpus.len();
        let made = kernel.memory.create_map(kind, key_size, value_size, max_entries, nr_cpus);
        made.unwrap_or_else(|error| {
            kernel.fail(error);
            ptr::null()
        })
    }

    fn hash_lookup(kernel, map: *const Map, key: *const u8) -> *mut u64 {
        // SAFETY: the shim knows the map's type.
        unsafe { kernel.memory.lookup(map, key) }
    }

    fn hash_update(kernel, map: *const Map, key: *const u8, value: *const u8, flags: u64) -> i32 {
        // SAFETY: the shim knows the map's type.
        if flags == NOEXIST && !unsafe { kernel.memory.lookup(map, key) }.is_null() {
            return -EEXIST;
        }
        // SAFETY: the shim knows the map's type.
        if unsafe { kernel.memory.update(map, key, value) } { 0 } else { -E2BIG }
    }

    fn hash_delete(kernel, map: *const Map, key: *const u8) -> i32 {
        // SAFETY: the shim knows the map's type.
        if unsafe { kernel.memory.delete(map, key) } { 0 } else { -ENOENT }
    }

    fn storage_create(kernel, p: *const TaskStruct, number: u32, size: u32) -> *mut u64 {
        // SAFETY: see index().
        let task = unsafe { &*p };
        kernel.memory.create_storage(task, number as usize, size as usize)
    }

    fn timer_init(kernel, map: *mut c_void, value: *mut c_void) -> u64 {
        // SAFETY: the first member of the variable, and the value was looked up in it.
        let array = unsafe { &**map.cast::<*const Map>() };
        let index = (value as u64 - array.values as u64) / array.value_size;
        let index = index as i32;
        let timer = Timer { map, value, index, callback: ptr::null(), starts: 0, cpu: 0 };
        kernel.memory.timers.push(timer);
        kernel.memory.timers.len() as u64 - 1
    }

    fn timer_set_callback(kernel, timer: u64, callback: *const c_void) -> i32 {
        kernel.memory.timers[timer as usize].callback = callback;
        0
    }

    fn timer_start(kernel, timer: u64, ns: u64) -> i32 {
        let (at, cpu) = (kernel.now_ns + ns, kernel.this_cpu());
        let entry = &mut kernel.memory.timers[timer as usize];
        entry.starts += 1;
        entry.cpu = cpu;
        let starts = entry.starts;
        kernel.events.push(at, Event::Timer(timer as usize, starts));
        0
    }

    fn interleave(kernel) {
        kernel.let_others_go_on();
    }

    fn error(kernel, text: *const c_char) {
        // SAFETY: sim_report() ends its text with a zero.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
        kernel.fail(format!("scx_bpf_error(): {text}"));
    }
}
