//! Processes as they come and go: rung 2, own children.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use profiler::target::{Backing, Process, TargetError};
use profiler::words::Pid;
use tests::rung::{self, Rung};

const PATIENCE: Duration = Duration::from_secs(20);

/// A child that waits for its input to end, and is collected whatever happens.
struct Cat(Child);

impl Cat {
    fn start(program: &str) -> Self {
        let child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a copy of cat runs");
        Self(child)
    }

    /// A new program has its mappings and its command line a moment after `spawn` returns.
    fn open(&self) -> Process {
        let process = Process::open(Pid(self.0.id())).expect("our own child");
        let started = Instant::now();
        while process.command_line().expect("it runs").is_empty() {
            assert!(started.elapsed() < PATIENCE, "a program that never starts");
            std::thread::yield_now();
        }
        process
    }
}

impl Drop for Cat {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_end_is_seen_and_a_zombie_is_told_apart() {
    if !rung::reached(Rung::Live) {
        return;
    }
    let mut cat = Cat::start("cat");
    let process = cat.open();
    assert!(!process.has_ended());
    assert_eq!(process.command_line().expect("it runs"), ["cat"]);
    cat.0.stdin.take();
    assert!(process.ends_within(PATIENCE));
    let error = Process::open(process.pid()).expect_err("it has ended");
    assert_eq!(error, TargetError::Zombie { pid: process.pid() });
    cat.0.wait().expect("ours to collect");
    let error = Process::open(process.pid()).expect_err("it is gone");
    assert_eq!(error, TargetError::NoSuchProcess { pid: process.pid() });
    let gone = TargetError::Gone { pid: process.pid() };
    assert_eq!(process.all_tasks(), Err(gone.clone()));
    assert_eq!(process.maps(), Err(gone));
}

#[test]
fn a_kernel_thread_is_no_target() {
    if !rung::reached(Rung::Live) {
        return;
    }
    let is_kernels = fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n");
    if !is_kernels {
        rung::leave_out("no thread of the kernel is visible from here");
        return;
    }
    let error = Process::open(Pid(2)).expect_err("no memory");
    assert_eq!(error, TargetError::KernelThread { pid: Pid(2) });
}

#[test]
fn a_mapped_file_that_was_replaced_is_not_mistaken_for_its_successor() {
    if !rung::reached(Rung::Live) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a cat");
    // By a program of its own: a child of another test's could inherit the file while it is
    // being written, and what is open for writing cannot be run.
    let copied = Command::new("cp").arg("/bin/cat").arg(&path).status();
    assert!(copied.is_ok_and(|status| status.success()));
    let mut cat = Cat::start(path.to_str().expect("text"));
    let process = cat.open();
    let maps = process.maps().expect("our own child");
    let mapping = maps
        .iter()
        .find(|mapping| mapping.path() == Some(&path))
        .expect("its program is mapped");
    let inode = fs::metadata(&path).expect("the copy").ino();
    assert_eq!(mapping.inode, inode);
    assert!(process.open_mapped(mapping).is_ok());

    let other = folder.path().join("other");
    fs::write(&other, "not a cat").expect("ours");
    fs::rename(&other, &path).expect("ours");
    let later = process.maps().expect("our own child");
    let replaced = later.at(mapping.start).expect("still mapped");
    assert!(matches!(
        replaced.backing,
        Backing::File { deleted: true, .. }
    ));
    match process.open_mapped(replaced) {
        Ok(mut file) => {
            assert_eq!(file.metadata().expect("open").ino(), inode);
            let mut magic = [0; 4];
            file.read_exact(&mut magic).expect("a program");
            assert_eq!(&magic, b"\x7fELF");
        }
        // The way through the mapping takes a privilege.
        Err(_) => assert!(!nix::unistd::geteuid().is_root()),
    }
    cat.0.stdin.take();
    assert!(process.ends_within(PATIENCE));
}
