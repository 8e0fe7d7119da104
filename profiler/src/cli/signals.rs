//! Ctrl-C and `kill`: the first one ends the run, the second one gives up, whatever the program
//! is busy with. `kill -USR1` asks for the profile so far.

use std::{io, sync::Arc, thread};

use tokio::{
    runtime::Builder,
    signal::unix::{Signal, SignalKind, signal},
    sync::{Notify, oneshot},
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

/// What is heard.
#[derive(Debug)]
pub(super) struct Heard {
    /// The first word that ends the run; the second one ends the process.
    pub(super) word: oneshot::Receiver<Word>,
    /// The profile so far is asked for.
    pub(super) asked: Arc<Notify>,
}

/// Listen from now on.
///
/// A thread of its own listens, so that writing a large profile does not make it deaf.
pub(super) fn listen() -> io::Result<Heard> {
    let (sender, receiver) = oneshot::channel();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mut signals = {
        let _reactor = runtime.enter();
        Signals {
            interrupts: signal(SignalKind::interrupt())?,
            terminations: signal(SignalKind::terminate())?,
            hangups: signal(SignalKind::hangup())?,
            questions: signal(SignalKind::user_defined1())?,
            asked: Arc::new(Notify::new()),
        }
    };
    let asked = Arc::clone(&signals.asked);
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
    Ok(Heard {
        word: receiver,
        asked,
    })
}

struct Signals {
    interrupts: Signal,
    terminations: Signal,
    hangups: Signal,
    questions: Signal,
    asked: Arc<Notify>,
}

impl Signals {
    async fn next(&mut self) -> Word {
        loop {
            return tokio::select! {
                _ = self.interrupts.recv() => Word::Interrupt,
                _ = self.terminations.recv() => Word::Terminate,
                // The terminal is gone, and the command heard of it too.
                _ = self.hangups.recv() => Word::Interrupt,
                _ = self.questions.recv() => {
                    // Several before the first is answered are one.
                    self.asked.notify_one();
                    continue;
                }
            };
        }
    }
}
