//! Lines of a child's stream, each waited for with a bound, so that a hang is a failure.

use std::io::{BufRead, BufReader, Read};
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// The variable that makes all waits so many times as long: for machines that are emulated.
pub const PATIENCE_VARIABLE: &str = "PROFILER_TEST_PATIENCE";

/// How long an awaited line may take to come: far longer than any target's step.
pub(crate) static PATIENCE: LazyLock<Duration> = LazyLock::new(|| patience(60));

/// How long a program may run on without a line, to its end: a bench's longest run, and more.
static TO_THE_END: LazyLock<Duration> = LazyLock::new(|| patience(280));

fn patience(seconds: u64) -> Duration {
    let times = std::env::var(PATIENCE_VARIABLE).ok();
    let times = times.and_then(|times| times.parse().ok()).unwrap_or(1);
    Duration::from_secs(seconds.saturating_mul(times))
}

/// The lines of one stream, read by a thread of its own.
#[derive(Debug)]
pub(crate) struct Lines {
    name: &'static str,
    receiver: Receiver<(Instant, String)>,
    seen: Vec<String>,
}

impl Lines {
    pub(crate) fn of(name: &'static str, stream: impl Read + Send + 'static) -> Self {
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stream);
            let mut bytes = Vec::new();
            while matches!(reader.read_until(b'\n', &mut bytes), Ok(1..)) {
                let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
                bytes.clear();
                if sender.send((Instant::now(), line)).is_err() {
                    break;
                }
            }
        });
        Self {
            name,
            receiver,
            seen: Vec::new(),
        }
    }

    /// The next line and when it came; none at the end of the stream.
    pub(crate) fn next(&mut self, patience: Duration) -> Result<Option<(Instant, String)>> {
        match self.receiver.recv_timeout(patience) {
            Ok((time, line)) => {
                self.seen.push(line.clone());
                Ok(Some((time, line)))
            }
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => bail!(
                "no line on {} for {} s; before: {:?}",
                self.name,
                patience.as_secs(),
                self.seen
            ),
        }
    }

    /// Everything that came, to the end of the stream.
    pub(crate) fn rest(mut self) -> Result<String> {
        while self.next(*TO_THE_END)?.is_some() {}
        let mut text = self.seen.join("\n");
        if !text.is_empty() {
            text.push('\n');
        }
        Ok(text)
    }

    pub(crate) fn seen(&self) -> &[String] {
        &self.seen
    }
}
