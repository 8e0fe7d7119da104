//! The command lines of the tools, and what differs between them at their start and end.

use std::path::{Path, PathBuf};
use std::process::Command;

use ::tests::profiler::Running;
use ::tests::pythons::Python;
use anyhow::{Context, Result, bail, ensure};
use nix::unistd::Pid;

use super::{Tool, Watched, Watching};
use crate::bench::measure;
use crate::cache::Cache;

/// The version whose interpreter brings its own sampler; it watches only its own version.
const OF_ITS_OWN: (u8, u8) = (3, 15);

/// By then a tool that is loaded samples.
const PATIENCE_S: f64 = 3.0;

/// Between two looks whether it does.
const LOOK_S: f64 = 0.05;

/// The flags by which a tool watches what it would not by itself.
fn more(tool: Tool, watched: Watched) -> &'static [&'static str] {
    match (watched, tool) {
        (Watched::Itself, _) => &[],
        (Watched::Children, Tool::Austin(_)) => &["-C"],
        (Watched::Children, _) => &["--subprocesses"],
    }
}

pub(super) fn start(
    tool: Tool,
    python: &Python,
    pid: Pid,
    rate: u32,
    watched: Watched,
) -> Result<Watching> {
    let more = more(tool, watched);
    let files = tempfile::tempdir().context("a folder for the tool's files")?;
    let file = files.path().join("profile");
    let (of_pid, of_rate) = (pid.to_string(), rate.to_string());
    let mut inside = None;
    let running = match tool {
        Tool::Ours(mode) => {
            let words = [&["--mode", mode, "-r", &of_rate], more].concat();
            Running::in_detail(pid, &words)?
        }
        Tool::OursEven(mode) => {
            let words = ["--mode", mode, "-r", &of_rate, "--no-jitter"];
            Running::in_detail(pid, &[&words, more].concat())?
        }
        Tool::PySpy(flags) => {
            let program = Cache::open()?.peers().join("bin/py-spy");
            let mut command = on_stderr(&program.to_string_lossy(), &[])?;
            command
                .args(["record", "--format", "raw", "--duration", "100000"])
                .args(["--pid", &of_pid, "--rate", &of_rate])
                .args(flags)
                .args(more)
                .arg("--output")
                .arg(&file);
            Running::spawn(command, files)?
        }
        Tool::Austin(flags) => {
            let words = austin()?;
            let (program, rest) = words.split_first().context("no words")?;
            let mut command = on_stderr(program, rest)?;
            let interval = format!("{}us", 1_000_000 / rate);
            command
                .args(["-i", &interval, "-p", &of_pid])
                .args(flags)
                .args(more)
                .arg("-o")
                .arg(&file);
            Running::spawn(command, files)?
        }
        Tool::CPython(flags) => {
            ensure!(
                python.minor() == OF_ITS_OWN,
                "it comes with 3.15 and watches only its own version"
            );
            // It may live in another root, and writes its file there.
            let folder = tempfile::tempdir_in(python.root().join("tmp"))?;
            let below = folder.path().strip_prefix(python.root())?;
            let seen = Path::new("/").join(below).join("profile");
            let (program, rest) = python.command.split_first().context("no words")?;
            let mut command = on_stderr(program, rest)?;
            command
                .env("LC_ALL", "C")
                .args(["-m", "profiling.sampling", "attach", "--all-threads"])
                .args(["--collapsed", "-r", &of_rate])
                .args(flags)
                .args(more)
                .arg("-o")
                .arg(seen)
                .arg(&of_pid);
            inside = Some(folder);
            Running::spawn(command, files)?
        }
    };
    let file: PathBuf = match &inside {
        Some(folder) => folder.path().join("profile"),
        None => file,
    };
    Ok(Watching {
        tool,
        running,
        file,
        rate,
        _files: inside,
    })
}

/// A command whose stdout is its stderr: there the lines are read that tools write for people. A
/// bench in the background of a shell ignores Ctrl-C, and so would a Python that it starts.
fn on_stderr(program: &str, words: &[String]) -> Result<Command> {
    let path = Path::new(program);
    ensure!(
        !path.is_absolute() || path.exists(),
        "`{program}` is not there: pip could not install it"
    );
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "exec env --default-signal=INT \"$0\" \"$@\" >&2",
        program,
    ]);
    command.args(words);
    Ok(command)
}

/// The words that start austin. It wants a newer C library than many machines have; Debian sid's
/// folder has one, and a program can be run by another library's loader.
fn austin() -> Result<Vec<String>> {
    let cache = Cache::open()?;
    let program = cache.peers().join("bin/austin");
    ensure!(
        program.exists(),
        "`{}` is not there: pip could not install it",
        program.display()
    );
    let sid = cache.sid().join("usr/lib/x86_64-linux-gnu");
    let loader = sid.join("ld-linux-x86-64.so.2");
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let behind = vec![
        text(&loader),
        "--library-path".to_owned(),
        text(&sid),
        text(&program),
    ];
    let mut refusals = Vec::new();
    for words in [vec![text(&program)], behind] {
        let mut ask = Command::new(&words[0]);
        let output = ask.args(&words[1..]).arg("--version").output();
        match output {
            Ok(output) if output.status.success() => return Ok(words),
            Ok(output) => refusals.push(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => refusals.push(error.to_string()),
        }
    }
    bail!("it does not run here: {}", refusals.join("; "))
}

/// Waits until a process sleeps as often as one that samples at that rate: for a tool that does not
/// say when it begins. One that never gets to sleep is taken to have begun after a while.
pub(super) fn samples(pid: Pid, rate: u32) -> Result<()> {
    let slept = || -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let mut lines = status.lines();
        let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count
            .context("it ended")?
            .trim()
            .parse()
            .context("no count")
    };
    let enough = u64::from(rate).div_ceil(40);
    let (mut before, mut steady, mut waited) = (slept()?, 0, 0.0);
    while steady < 2 && waited < PATIENCE_S {
        measure::wait(LOOK_S);
        waited += LOOK_S;
        let now = slept()?;
        steady = if now - before >= enough {
            steady + 1
        } else {
            0
        };
        before = now;
    }
    Ok(())
}

/// The first sentence that a tool said to people, without colours and pictures; of a Python's
/// traceback its end.
pub(super) fn sentence(said: &str) -> String {
    let letters = |word: &&str| word.chars().filter(|it| it.is_alphabetic()).count() > 1;
    let is_one = |line: &&str| line.split_whitespace().filter(letters).count() > 3;
    if said.contains("Traceback (") {
        return said.trim().lines().last().unwrap_or_default().to_owned();
    }
    let lines: Vec<&str> = said.lines().filter(is_one).collect();
    let text = lines.join(" ");
    let first = text.split(". ").next().unwrap_or_default();
    let begin = first.find(|it: char| it.is_ascii_alphanumeric());
    first[begin.unwrap_or(0)..].chars().take(200).collect()
}

/// What CPython's samplers of the children wrote: each has one of its own, and a file beside the
/// parent's. One whose child was over before it began has none.
pub(super) fn of_children(file: &Path) -> Result<String> {
    let mut text = String::new();
    let (folder, name) = file.parent().zip(file.file_name()).context("no file")?;
    let begin = format!("{}_", name.to_string_lossy());
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&begin) {
            text += &std::fs::read_to_string(entry.path())?;
        }
    }
    Ok(text)
}

/// CPython's own folded form in the usual one: `file:name:line` is `name (file:line)`, and the
/// first frame, the thread's id, is left out.
pub(super) fn labels(text: &str) -> String {
    let label = |frame: &str| {
        let parts = frame.rsplit_once(':').and_then(|(rest, line)| {
            let (file, name) = rest.split_once(':')?;
            Some(format!("{name} ({file}:{line})"))
        });
        parts.unwrap_or_else(|| frame.to_owned())
    };
    let line = |line: &str| {
        let (frames, count) = line.rsplit_once(' ')?;
        let frames = frames.split(';').filter(|it| !it.starts_with("tid:"));
        let frames: Vec<String> = frames.map(label).collect();
        Some(format!("{} {count}\n", frames.join(";")))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sentence_is_the_reason() {
        let banner =
            "\u{1b}[1m  _   _  \u{1b}[0m\n\n🔢 Cannot tell the version. This could be due\nto it";
        assert_eq!(sentence(banner), "Cannot tell the version");
        let traceback = "Traceback (most recent call last):\n  File x\nOSError: no memory\n";
        assert_eq!(sentence(traceback), "OSError: no memory");
        assert_eq!(sentence(""), "");
    }

    #[test]
    fn cpython_s_labels_become_the_usual_ones() {
        let text = "tid:7;a.py:<module>:3;a.py:C.run:12 5\n";
        assert_eq!(labels(text), "<module> (a.py:3);C.run (a.py:12) 5\n");
        assert_eq!(labels("tid:7;<GC> 1\n"), "<GC> 1\n");
    }
}
