//! The memory of a live process, read by both ways: rung 2, nothing but this process itself.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use profiler::target::{LiveMemory, Memory, Piece, Process, ReadErrorKind, Way};
use profiler::words::{Pid, RemoteAddr};
use tests::pythons;
use tests::rung::{self, Rung};

fn ourselves() -> Process {
    Process::open(Pid(std::process::id())).expect("this process is ours")
}

/// The last bytes of a readable mapping with nothing behind it.
fn edge(process: &Process) -> RemoteAddr {
    let maps = process.maps().expect("our mappings");
    let mapping = maps
        .iter()
        .find(|mapping| mapping.perms.write && maps.at(mapping.end).is_none())
        .expect("a mapping with a hole behind it");
    RemoteAddr(mapping.end.0 - 8)
}

fn both_ways(process: &Process) -> [LiveMemory; 2] {
    [
        LiveMemory::new(process),
        LiveMemory::through_proc_mem(process).expect("our own memory"),
    ]
}

fn here(bytes: &[u8]) -> RemoteAddr {
    RemoteAddr(bytes.as_ptr() as u64)
}

#[test]
fn what_is_read_is_what_is_there() {
    if !rung::reached(Rung::Live) {
        return;
    }
    let process = ourselves();
    let truth: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    for (memory, way) in both_ways(&process).iter().zip([Way::VmReadv, Way::ProcMem]) {
        let mut read = vec![0; truth.len()];
        assert_eq!(memory.read(here(&truth), &mut read), Ok(()));
        assert_eq!(read, truth);
        assert_eq!(memory.way(), way);
        assert_eq!(memory.u64(here(&truth)), Ok(0x0706_0504_0302_0100));
    }
}

#[test]
fn a_hole_spoils_its_own_piece_and_no_other() {
    if !rung::reached(Rung::Live) {
        return;
    }
    let process = ourselves();
    let truth: Vec<u8> = (0..200).collect();
    let edge = edge(&process);
    // More than two calls' worth, with every kind of hole at every seventh place.
    let bad = [
        RemoteAddr(8),
        edge.plus(4),
        RemoteAddr(u64::MAX - 3),
        RemoteAddr(0xffff_8880_0000_0000),
        RemoteAddr(0x0080_0000_0000_0000),
    ];
    for memory in &both_ways(&process) {
        let mut bufs = vec![[0; 8]; 2500];
        let addr = |index: usize| match index % 7 {
            3 => bad[index / 7 % bad.len()],
            _ => here(&truth).plus((index % 150) as u64),
        };
        let mut pieces: Vec<Piece<'_>> = bufs
            .iter_mut()
            .enumerate()
            .map(|(index, buf)| Piece::new(addr(index), buf))
            .collect();
        memory.read_many(&mut pieces);
        for (index, piece) in pieces.iter().enumerate() {
            if index % 7 == 3 {
                let error = piece.result.expect_err("a hole");
                assert_eq!((error.addr, error.bytes), (piece.addr, 8));
                assert_eq!(error.kind, ReadErrorKind::Unmapped, "{error}");
            } else {
                assert_eq!(piece.result, Ok(()), "piece {index}");
                assert_eq!(*piece.buf, truth[index % 150..][..8]);
            }
        }
    }
}

#[test]
fn pieces_of_nothing_and_batches_of_one_are_fine() {
    if !rung::reached(Rung::Live) {
        return;
    }
    let process = ourselves();
    for memory in &both_ways(&process) {
        let (mut none, mut other, mut bad) = ([], [], [0; 4]);
        let mut pieces = [
            Piece::new(RemoteAddr(0), &mut none),
            Piece::new(RemoteAddr(0), &mut bad),
            Piece::new(RemoteAddr(0), &mut other),
        ];
        memory.read_many(&mut pieces);
        let fine = pieces.map(|piece| piece.result.is_ok());
        assert_eq!(fine, [true, false, true]);
        memory.read_many(&mut []);
        assert_eq!(memory.read(RemoteAddr(0), &mut []), Ok(()));
    }
}

#[test]
fn the_memory_of_an_ended_process_is_gone() {
    if !rung::reached(Rung::Live) {
        return;
    }
    let mut child = Command::new("cat")
        .stdin(std::process::Stdio::piped())
        .spawn()
        .expect("cat runs");
    let process = Process::open(Pid(child.id())).expect("our own child");
    let memories = both_ways(&process);
    child.kill().expect("ours to kill");
    child.wait().expect("ours to collect");
    for memory in memories {
        let error = memory.u64(RemoteAddr(0x1000)).expect_err("nothing left");
        assert_eq!(error.kind, ReadErrorKind::Gone, "{error}");
    }
    assert!(process.has_ended());
}

/// Run one test of this file again under a wrapper; the variable tells it so.
fn again(wrapper: &mut Command, test: &str) {
    let output = wrapper
        .args(["--exact", test, "--nocapture"])
        .env(WRAPPED, "1")
        .output()
        .expect("the wrapper runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    assert!(text.contains("1 passed"), "{text}{errors}");
}

const WRAPPED: &str = "PROFILER_TEST_WRAPPED";

#[test]
fn where_the_call_is_refused_the_file_serves() {
    if !rung::reached(Rung::Live) {
        return;
    }
    if std::env::var_os(WRAPPED).is_some() {
        let process = ourselves();
        let memory = LiveMemory::new(&process);
        let truth = *b"these eight and more";
        assert_eq!(memory.way(), Way::VmReadv);
        assert_eq!(
            memory.u64(here(&truth)),
            Ok(u64::from_le_bytes(*b"these ei"))
        );
        assert_eq!(memory.way(), Way::ProcMem);
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("targets/deny_call.py");
    let exe = std::env::current_exe().expect("this test's program");
    // One of the machine's own root, where this test's program is seen.
    let mut here = pythons::required().iter().rev();
    let Some(python) = here.find(|python| python.root.is_none()) else {
        rung::leave_out("there is no Python outside of a root of its own");
        return;
    };
    let (program, rest) = python.command.split_first().expect("a command");
    again(
        Command::new(program)
            .args(rest)
            .arg(script)
            .arg("process_vm_readv")
            .arg(exe),
        "where_the_call_is_refused_the_file_serves",
    );
}

#[test]
fn another_users_process_is_refused_with_what_to_type() {
    if !rung::reached(Rung::Live) {
        return;
    }
    const NOBODY: u32 = 65534;
    let may_look = nix::unistd::geteuid().is_root();
    if may_look {
        // A place that everyone may run programs from, wherever this one was built.
        let folder = tempfile::tempdir().expect("a folder");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).expect("ours");
        let exe = folder.path().join("again");
        let this = std::env::current_exe().expect("this program");
        // By a program of its own: a child of another test's could inherit the file while it is
        // being written, and what is open for writing cannot be run.
        let copied = Command::new("cp").args([&this, &exe]).status();
        assert!(copied.is_ok_and(|status| status.success()));
        again(
            Command::new(exe).uid(NOBODY).gid(NOBODY).current_dir("/"),
            "another_users_process_is_refused_with_what_to_type",
        );
        return;
    }
    let error = Process::open(Pid(1)).expect_err("it is root's");
    let text = error.to_string();
    assert!(
        text.contains("user id 0") && text.contains("`sudo`"),
        "{text}"
    );
}
