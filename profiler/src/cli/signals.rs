//! Ctrl-C and `kill`: the first one ends the run, the second one gives up, whatever the program
//! is busy with.

use std::{io, thread};

use tokio::{
    runtime::Builder,
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

use super::FAILED;

/// What ended a run from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// Ctrl-C, which the terminal also sent to the command.
    Interrupt,
    /// `kill`, which only the profiler heard.
    Terminate,
}

/// Listen from now on. The receiver gets the first signal; the second one ends the process.
///
/// A thread of its own listens, so that writing a large profile does not make it deaf.
pub(super) fn listen() -> io::Result<oneshot::Receiver<Word>> {
    let (sender, receiver) = oneshot::channel();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mut signals = {
        let _reactor = runtime.enter();
        Signals {
            interrupts: signal(SignalKind::interrupt())?,
            terminations: signal(SignalKind::terminate())?,
            hangups: signal(SignalKind::hangup())?,
        }
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                let word = signals.next().await;
                // A run that is over already has nobody who listens.
                let _ = sender.send(word);
                signals.next().await;
            });
            std::process::exit(FAILED.into());
        })?;
    Ok(receiver)
}

struct Signals {
    interrupts: Signal,
    terminations: Signal,
    hangups: Signal,
}

impl Signals {
    async fn next(&mut self) -> Word {
        tokio::select! {
            _ = self.interrupts.recv() => Word::Interrupt,
            _ = self.terminations.recv() => Word::Terminate,
            // The terminal is gone, and the command heard of it too.
            _ = self.hangups.recv() => Word::Interrupt,
        }
    }
}
