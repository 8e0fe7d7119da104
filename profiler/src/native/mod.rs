//! Names for native addresses: what a thread does when it runs no Python.
//!
//! The only room that imports blazesym. It names one address at a time and unwinds nothing yet.
//! An address without a name is a result with its reason, never an error.

use std::sync::Arc;

use blazesym::symbolize::{
    Input, Symbolized, Symbolizer,
    source::{Process, Source},
};
use rustc_hash::FxHashMap;

use crate::words::{Pid, RemoteAddr};

/// What a native address is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NativeFrame {
    /// In this function.
    Known {
        /// The demangled name.
        function: Arc<str>,
        /// File name of the module, where it is known.
        module: Option<Arc<str>>,
    },
    /// No name was found.
    Unknown {
        /// The address.
        addr: RemoteAddr,
        /// Why.
        reason: &'static str,
    },
}

/// Gives names to addresses; the trait keeps the pipeline testable without files.
pub trait Symbols {
    /// What is at `addr` in `pid`.
    fn name(&mut self, pid: Pid, addr: RemoteAddr) -> NativeFrame;
}

/// Most names kept; when there are more, all are forgotten and learned anew.
const MAX_NAMES: usize = 1 << 16;

/// Most threads that are asked for one that lives.
const MAX_ASKED: usize = 64;

/// Names from ELF symbols, perf maps and the vdso.
pub struct LiveSymbols {
    symbolizer: Symbolizer,
    names: FxHashMap<Pid, FxHashMap<RemoteAddr, NativeFrame>>,
    kept: usize,
}

impl std::fmt::Debug for LiveSymbols {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveSymbols")
            .field("names", &self.kept)
            .finish_non_exhaustive()
    }
}

impl Default for LiveSymbols {
    fn default() -> Self {
        Self {
            symbolizer: Symbolizer::builder().enable_code_info(false).build(),
            names: FxHashMap::default(),
            kept: 0,
        }
    }
}

impl LiveSymbols {
    /// A process is over or runs another program: its addresses mean something else from now on.
    pub fn forget(&mut self, pid: Pid) {
        if let Some(names) = self.names.remove(&pid) {
            self.kept = self.kept.saturating_sub(names.len());
        }
    }

    fn look_up(&self, pid: Pid, addr: RemoteAddr) -> NativeFrame {
        let mut process = Process::new(with_memory(pid).0.into());
        process.debug_syms = false;
        let source = Source::Process(process);
        let unknown = |reason| NativeFrame::Unknown { addr, reason };
        match self
            .symbolizer
            .symbolize_single(&source, Input::AbsAddr(addr.0))
        {
            Ok(Symbolized::Sym(symbol)) => NativeFrame::Known {
                function: symbol.name.as_ref().into(),
                module: symbol.module.map(|module| {
                    let path = module.to_string_lossy();
                    path.rsplit('/').next().unwrap_or(&path).into()
                }),
            },
            Ok(Symbolized::Unknown(reason)) => unknown(match reason {
                blazesym::symbolize::Reason::Unmapped => "not mapped any more",
                blazesym::symbolize::Reason::MissingComponent => "code of no file",
                blazesym::symbolize::Reason::MissingSyms => "module without symbols",
                blazesym::symbolize::Reason::UnknownAddr => "no symbol at the address",
                _ => "not understood",
            }),
            // A zombie has no memory map any more.
            Err(_) if !has_memory(with_memory(pid)) => {
                unknown("the process had ended before its name was read")
            }
            Err(_) => unknown("module could not be read"),
        }
    }
}

/// Who is asked about a process: its first thread, or, when that has ended, another one, which can
/// be named as if it were a process.
fn with_memory(pid: Pid) -> Pid {
    if has_memory(pid) {
        return pid;
    }
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let ids = tasks.into_iter().flatten().flatten().filter_map(|task| {
        let name = task.file_name();
        name.to_str()?.parse().ok().map(Pid)
    });
    ids.take(MAX_ASKED)
        .find(|id| has_memory(*id))
        .unwrap_or(pid)
}

fn has_memory(pid: Pid) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}

impl Symbols for LiveSymbols {
    fn name(&mut self, pid: Pid, addr: RemoteAddr) -> NativeFrame {
        let known = self.names.get(&pid).and_then(|names| names.get(&addr));
        if let Some(known) = known {
            return known.clone();
        }
        if self.kept >= MAX_NAMES {
            self.names.clear();
            self.kept = 0;
        }
        let found = self.look_up(pid, addr);
        let names = self.names.entry(pid).or_default();
        names.insert(addr, found.clone());
        self.kept += 1;
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_this_program_has_its_name_and_a_wild_one_has_a_reason() {
        let mut symbols = LiveSymbols::default();
        let pid = Pid(std::process::id());
        let here = an_address_of_this_program_has_its_name_and_a_wild_one_has_a_reason as fn();
        let here = RemoteAddr(here as usize as u64);
        let NativeFrame::Known { function, .. } = symbols.name(pid, here) else {
            panic!("{:?}", symbols.name(pid, here));
        };
        assert!(
            function.contains("an_address_of_this_program"),
            "{function}"
        );
        assert_eq!(
            symbols.name(pid, RemoteAddr(8)),
            NativeFrame::Unknown {
                addr: RemoteAddr(8),
                reason: "not mapped any more"
            }
        );
    }
}
