// SPDX-License-Identifier: GPL-2.0-only
//! Noisy neighbours: what the bench calls *heavy* noise, on processor, network and disk.

use std::process::{Command, Stdio};
use std::time::Duration;

use nix::libc;
use nix::sys::signal::Signal;

use crate::process::Process;

/// Neighbours, from their start to their end.
pub struct Noise(Vec<Process>);

impl Noise {
    /// Starts stress-ng on all CPUs, with these stressors beside; iperf3 over loopback with ten streams;
    /// fio on the scratch disk with four jobs.
    pub fn heavy(stressors: &str) -> Self {
        let disk = std::env::var("GPUAWARE_LAB_DISK").expect("the lab's scratch disk");
        let server = neighbour("iperf3", "-s -B 127.0.0.1");
        std::thread::sleep(Duration::from_millis(500));
        let stress_ng =
            format!("--temp-path /tmp --cpu 0 --cpu-method fft {stressors} --timeout 0");
        let fio = format!(
            "--name=noise --filename={disk} --rw=randwrite --bs=4k --iodepth=32 --numjobs=4 \
             --direct=1 --ioengine=libaio --time_based --runtime=3600"
        );
        Self(vec![
            neighbour("stress-ng", &stress_ng),
            neighbour("iperf3", "-c 127.0.0.1 -P 10 -t 3600"),
            neighbour("fio", &fio),
            server,
        ])
    }

    /// Fails if one has ended by itself.
    pub fn assert_all_run(&mut self) {
        for process in &mut self.0 {
            assert!(!process.has_ended(), "one ended: {:?}", process.log);
        }
    }

    /// Ends them, with what they have started, so that they disturb nobody else.
    pub fn end(mut self) {
        self.assert_all_run();
        for process in &self.0 {
            process.signal(Signal::SIGINT);
        }
        for process in &mut self.0 {
            process.wait();
        }
    }
}

/// While this lives, the calling thread and what it starts go before the noise, by nice: a test that waits for
/// its own turn takes minutes.
pub struct BeforeNoise(());

impl BeforeNoise {
    pub fn start() -> Self {
        set_nice(-15);
        Self(())
    }
}

impl Drop for BeforeNoise {
    fn drop(&mut self) {
        set_nice(0);
    }
}

fn set_nice(nice: i32) {
    // SAFETY: takes and returns plain integers; 0 is the calling thread.
    let ret = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
    assert_eq!(ret, 0, "nice {nice}: {}", std::io::Error::last_os_error());
}

fn neighbour(program: &str, args: &str) -> Process {
    let mut command = Command::new(program);
    command
        .args(args.split_whitespace())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .current_dir("/tmp");
    Process::start(command)
}
