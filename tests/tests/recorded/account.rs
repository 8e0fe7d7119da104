//! What `targets/known_stacks.py` says of its own stacks, to compare with what was read.

use std::collections::BTreeMap;

use profiler::pystack::PyFrame;
use serde::Deserialize;

use super::reading::{MAX_FRAMES, Reading, ThreadReading, show};

/// The account.
#[derive(Debug, Deserialize)]
pub(crate) struct Account {
    /// `sys.hexversion`.
    pub(crate) hexversion: u32,
    /// By pthread id.
    pub(crate) threads: BTreeMap<u64, ThreadAccount>,
}

/// One thread's.
#[derive(Debug, Deserialize)]
pub(crate) struct ThreadAccount {
    /// Its name.
    pub(crate) name: String,
    /// Its kernel id, as the target sees it.
    pub(crate) native_id: u32,
    /// Name, base name of the file, line; leaf first.
    pub(crate) stack: Vec<(String, String, u32)>,
}

impl Account {
    /// The account in the line that the target prints.
    ///
    /// # Errors
    ///
    /// When it is none.
    pub(crate) fn parse(line: &str) -> Result<Self, String> {
        serde_json::from_str(line).map_err(|error| format!("no account ({error}): {line}"))
    }

    /// Holds a reading to the account.
    ///
    /// # Errors
    ///
    /// Where the two first differ.
    pub(crate) fn agrees_with(&self, reading: &Reading) -> Result<(), String> {
        let version = profiler::cpython::Version::from_hex(self.hexversion);
        same("version", reading.runtime.version(), version)?;
        same("threads", reading.threads.len(), self.threads.len())?;
        same("contradictions", reading.contradictions, 0)?;
        same("changed codes", reading.changed, 0)?;
        for thread in &reading.threads {
            let id = thread.state.pthread_id;
            let Some(account) = self.threads.get(&id.0) else {
                return Err(format!("the target has no thread {id}"));
            };
            account
                .agrees_with(thread, version.is_at_least(11))
                .map_err(|wrong| format!("`{}`: {wrong}", account.name))?;
        }
        Ok(())
    }
}

impl ThreadAccount {
    fn agrees_with(&self, thread: &ThreadReading, has_native_id: bool) -> Result<(), String> {
        same("name", thread.name.as_ref(), Some(&self.name))?;
        let native = has_native_id.then_some(self.native_id);
        let read = thread.state.native_thread_id.map(|id| id.0);
        same("native id", read, native)?;
        let found = thread.thread.as_ref().map(|(tid, _)| tid.0);
        same("thread", found, Some(self.native_id))?;
        same("state by TLS", thread.by_hops, Some(thread.state.addr))?;
        let mut want: Vec<String> = self
            .stack
            .iter()
            .map(|(name, file, line)| format!("{name} ({file}:{line})"))
            .collect();
        if let Some(cut) = want.len().checked_sub(MAX_FRAMES as usize)
            && cut > 0
        {
            let half = MAX_FRAMES as usize / 2;
            want.splice(half..half + cut, [format!("[{cut} frames cut]")]);
        }
        let got: Vec<String> = thread.frames.iter().map(short).collect();
        if let Some(at) = got.iter().zip(&want).position(|(got, want)| got != want) {
            return same(&format!("frame {at}"), &got[at], &want[at]);
        }
        same("frames", got.len(), want.len())
    }
}

/// The same with the base name of the file, which is all that the target tells.
fn short(frame: &PyFrame) -> String {
    let shown = show(frame);
    match frame {
        PyFrame::Known { code, .. } => {
            let base = code.file.rsplit('/').next().unwrap_or_default();
            shown.replacen(&*code.file, base, 1)
        }
        _ => shown,
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: T, want: T) -> Result<(), String> {
    if got == want {
        return Ok(());
    }
    Err(format!("{what} is {got:?}, not {want:?}"))
}
