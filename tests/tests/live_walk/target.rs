//! Starting interpreters on target programs, and the memory of a child.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use profiler::cpython::{MappedFile, OpenImage, ReadSeek};
use profiler::target::{Memory, ReadError, ReadErrorKind};
use profiler::words::RemoteAddr;
use tests::pythons;
use tests::rung::{self, Rung};

/// Runs its argument under a file name of its own, so that a target needs no file where the
/// interpreter sees another root.
const BOOTSTRAP: &str =
    "import sys; exec(compile(sys.argv.pop(1), '/targets/target.py', 'exec'), globals())";
const PATIENCE: Duration = Duration::from_secs(30);

/// Interpreters that are older than what is supported.
///
/// By pyenv alone: the harness knows only those that are supported.
pub(crate) fn old_pythons() -> Vec<PathBuf> {
    let pyenv = Command::new("pyenv").arg("root").output();
    let root = pyenv
        .ok()
        .and_then(|output| String::from_utf8(output.stdout).ok());
    let root = PathBuf::from(root.unwrap_or_default().trim()).join("versions");
    let mut versions: Vec<PathBuf> = std::fs::read_dir(root)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    versions.sort();
    let pythons = versions
        .iter()
        .flat_map(|version| (5..=7).map(|minor| version.join(format!("bin/python3.{minor}"))));
    pythons.filter(|python| python.exists()).collect()
}

/// Runs `test` on every interpreter and tells all that went wrong.
pub(crate) fn on_every_python(test: impl Fn(&[String]) -> Result<String, String>) {
    if !rung::reached(Rung::Live) {
        return;
    }
    let mut failures = Vec::new();
    for python in pythons::required() {
        match test(&python.command) {
            Ok(said) => println!("{}: {said}", python.label),
            Err(wrong) => failures.push(format!("{}: {wrong}", python.label)),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A target process; it dies with its value.
pub(crate) struct Target {
    pub(crate) child: Child,
    /// What it printed first.
    pub(crate) line: String,
}

impl Target {
    pub(crate) fn start(
        python: &[String],
        source: &str,
        arguments: &[&str],
    ) -> Result<Self, String> {
        let child = Command::new(&python[0])
            .args(&python[1..])
            .args(["-X", "utf8", "-c", BOOTSTRAP, source])
            .args(arguments)
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start: {error}"))?;
        let mut target = Self {
            child,
            line: String::new(),
        };
        let stdout = target.child.stdout.take().ok_or("no stdout")?;
        BufReader::new(stdout)
            .read_line(&mut target.line)
            .map_err(|error| format!("cannot read its account: {error}"))?;
        Ok(target)
    }

    pub(crate) fn memory(&self) -> Result<LiveMemory, String> {
        LiveMemory::open(self.child.id()).map_err(|error| format!("cannot open memory: {error}"))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The memory and the mapped files of a child, by way of `/proc`.
pub(crate) struct LiveMemory {
    pid: u32,
    mem: File,
}

impl LiveMemory {
    fn open(pid: u32) -> io::Result<Self> {
        let mem = File::open(format!("/proc/{pid}/mem"))?;
        Ok(Self { pid, mem })
    }

    pub(crate) fn mappings(&self) -> io::Result<Vec<MappedFile>> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid))?;
        Ok(maps.lines().filter_map(mapping).collect())
    }
}

fn mapping(line: &str) -> Option<MappedFile> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let flags = words.next()?.as_bytes();
    let file_offset = u64::from_str_radix(words.next()?, 16).ok()?;
    let inode = words.nth(1)?.parse().ok()?;
    Some(MappedFile {
        path: line.find('/').map_or("", |at| &line[at..]).to_owned(),
        start: RemoteAddr(u64::from_str_radix(start, 16).ok()?),
        end: RemoteAddr(u64::from_str_radix(end, 16).ok()?),
        file_offset,
        executable: flags[2] == b'x',
        writable: flags[1] == b'w',
        inode,
    })
}

impl Memory for LiveMemory {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        let bytes = buf.len();
        let error = |kind| ReadError { addr, bytes, kind };
        if i64::try_from(addr.0).is_err() {
            return Err(error(ReadErrorKind::Unmapped));
        }
        self.mem
            .read_exact_at(buf, addr.0)
            .map_err(|_| error(ReadErrorKind::Unmapped))
    }
}

impl OpenImage for LiveMemory {
    fn open(&self, file: &MappedFile) -> io::Result<Box<dyn ReadSeek>> {
        let (pid, start, end) = (self.pid, file.start.0, file.end.0);
        let file = File::open(format!("/proc/{pid}/map_files/{start:x}-{end:x}"))
            .or_else(|_| File::open(format!("/proc/{pid}/root{}", file.path)))
            .or_else(|_| File::open(&file.path))?;
        Ok(Box::new(file))
    }
}

/// Asks until the answer is yes; the program under test gets there in its own time.
pub(crate) fn until(mut question: impl FnMut() -> Result<bool, String>) -> Result<(), String> {
    let start = Instant::now();
    while !question()? {
        if start.elapsed() > PATIENCE {
            return Err("it never came".to_owned());
        }
    }
    Ok(())
}
