//! One CPU's clock that ticks: a perf event with a program on it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use perf_event_open_sys as perf;

use crate::words::{Cpu, DurationNs};

/// A ticking CPU; it stops when dropped.
#[derive(Debug)]
pub struct PerfClock {
    event: OwnedFd,
}

impl PerfClock {
    /// Run `program` every `period` on `cpu`, whoever is there.
    ///
    /// # Errors
    /// As the kernel has it: `EACCES` and `EPERM` when it is not allowed.
    #[expect(
        unsafe_code,
        reason = "a union is set, and the calls are raw system calls"
    )]
    pub fn start(cpu: Cpu, period: DurationNs, program: BorrowedFd<'_>) -> io::Result<Self> {
        let mut attr = perf::bindings::perf_event_attr {
            type_: perf::bindings::PERF_TYPE_SOFTWARE,
            size: size_of::<perf::bindings::perf_event_attr>() as u32,
            config: u64::from(perf::bindings::PERF_COUNT_SW_CPU_CLOCK),
            ..Default::default()
        };
        attr.__bindgen_anon_1.sample_period = period.0;
        attr.set_disabled(1);
        let cpu = i32::try_from(cpu.0).map_err(|_| io::ErrorKind::InvalidInput)?;
        let flags = u64::from(perf::bindings::PERF_FLAG_FD_CLOEXEC);
        // SAFETY: the attributes are whole and outlive the call.
        let fd = unsafe { perf::perf_event_open(&raw mut attr, -1, cpu, -1, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor for us, and nobody else has seen it.
        let event = unsafe { OwnedFd::from_raw_fd(fd) };
        let clock = Self { event };
        let program =
            u32::try_from(program.as_raw_fd()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: both descriptors are open, and the calls touch no memory of ours.
        clock.check(unsafe { perf::ioctls::SET_BPF(clock.fd(), program) })?;
        // SAFETY: as above.
        clock.check(unsafe { perf::ioctls::ENABLE(clock.fd(), 0) })?;
        Ok(clock)
    }

    /// Tick at another period from now on; the first tick is one such period away.
    ///
    /// # Errors
    /// As the kernel has it.
    #[expect(unsafe_code, reason = "a raw system call")]
    pub fn set_period(&self, period: DurationNs) -> io::Result<()> {
        // The binding takes the word itself; the kernel wants its address.
        let address = (&raw const period.0).addr() as u64;
        // SAFETY: the kernel reads a word that is on our stack until the call is over.
        self.check(unsafe { perf::ioctls::PERIOD(self.fd(), address) })
    }

    fn fd(&self) -> i32 {
        self.event.as_raw_fd()
    }

    fn check(&self, outcome: i32) -> io::Result<()> {
        if outcome < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }
}
