//! The kernel programs' own diagnostics, carried over by aya-log into the `log` crate.

use aya::Ebpf;
use aya_log::EbpfLogger;

/// The level at which the programs speak, as aya-log numbers them; 0 is silent, and then the
/// verifier removes the calls.
#[must_use]
pub fn level() -> u8 {
    log::max_level() as u8
}

/// Reads the programs' log; [`KernelLog::flush`] hands on what has come.
pub struct KernelLog(Option<EbpfLogger<&'static dyn log::Log>>);

impl std::fmt::Debug for KernelLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("KernelLog").field(&self.0.is_some()).finish()
    }
}

impl KernelLog {
    /// Open the log of `ebpf`. Without it everything works, but silently.
    pub fn open(ebpf: &mut Ebpf) -> Self {
        match EbpfLogger::init(ebpf) {
            Ok(logger) => Self(Some(logger)),
            Err(error) => {
                log::debug!("the kernel programs' log cannot be read: {error}");
                Self(None)
            }
        }
    }

    /// Hand on what the programs said since the last call.
    pub fn flush(&mut self) {
        if let Some(logger) = &mut self.0 {
            logger.flush();
        }
    }
}
