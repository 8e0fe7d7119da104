//! Names, lines and inlined functions of a library that is built here in several ways.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use profiler::native::{LiveSymbols, MAX_STANDING_STACK, NativeFrame};
use profiler::stack::Frame;
use profiler::stack::interleave::Rung as Share;
use profiler::words::{RemoteAddr, Tid};
use tests::on_each;
use tests::parked::Parked;
use tests::pythons::{self, Python};
use tests::rung::{self, Rung};

use crate::look::{Account, Look, Shown};

const SOURCE: &str = include_str!("../../targets/native_library.c");

/// How the library is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    WithDebugInformation,
    WithDebugInformationApart,
    WithDebugInformationByBuildId,
    Stripped,
}

/// The id that the library is given, and where its debug information is by that.
const BUILD_ID: &str = "0x0123456789abcdef";
const BY_BUILD_ID: &str = "01/23456789abcdef.debug";

fn run(folder: &Path, words: &[&str]) -> Result<()> {
    let mut command = Command::new(words[0]);
    let status = command.args(&words[1..]).current_dir(folder).status();
    let status = status.with_context(|| format!("`{}` could not be run", words[0]))?;
    ensure!(status.success(), "{words:?} failed");
    Ok(())
}

fn make(folder: &Path, made: Made) -> Result<()> {
    std::fs::write(folder.join("native_library.c"), SOURCE)?;
    let flags = "-g -O2 -shared -fPIC -fno-optimize-sibling-calls";
    let build_id = format!("-Wl,--build-id={BUILD_ID}");
    let mut words = vec!["cc", &build_id];
    words.extend(flags.split(' '));
    words.extend(["-o", "library.so", "native_library.c"]);
    run(folder, &words)?;
    match made {
        Made::WithDebugInformation => Ok(()),
        Made::WithDebugInformationApart => {
            run(
                folder,
                &[
                    "objcopy",
                    "--only-keep-debug",
                    "library.so",
                    "library.debug",
                ],
            )?;
            run(folder, &["strip", "library.so"])?;
            run(
                folder,
                &["objcopy", "--add-gnu-debuglink=library.debug", "library.so"],
            )
        }
        Made::WithDebugInformationByBuildId => {
            std::fs::create_dir(folder.join("01"))?;
            run(
                folder,
                &["objcopy", "--only-keep-debug", "library.so", BY_BUILD_ID],
            )?;
            run(folder, &["strip", "library.so"])
        }
        Made::Stripped => run(folder, &["strip", "library.so"]),
    }
}

/// The line of the source that says so of itself.
fn line(of: &str) -> Option<u32> {
    let mark = format!("/* line {of} */");
    let at = SOURCE.lines().position(|line| line.contains(&mark))?;
    u32::try_from(at + 1).ok()
}

fn shows(python: &Python, made: Made, is_deleted: bool) -> Result<()> {
    let below = python.root().join("tmp");
    let folder = tempfile::Builder::new()
        .prefix("profiler-library-")
        .tempdir_in(&below)?;
    make(folder.path(), made)?;
    let inside = Path::new("/").join(folder.path().strip_prefix(python.root())?);
    let library = inside.join("library.so").to_string_lossy().into_owned();
    let mut arguments = vec![&*library];
    arguments.extend(is_deleted.then_some("gone"));
    let parked = Parked::start(python, "native_library.py", &arguments)?;
    let account: Account = serde_json::from_str(&parked.line).context(parked.line.clone())?;
    let pid = parked.pid().parse()?;
    let mut look = Look::with_debug_files(pid, &account, folder.path())?;
    let tid = account.threads.keys().next().context("a thread")?;
    let stack = look.stack(Tid(*tid), MAX_STANDING_STACK)?;
    ensure!(stack.merged.rung == Share::Full, "{:?}", stack.merged);
    let own: Vec<&NativeFrame> = stack
        .frames
        .iter()
        .filter_map(|frame| match frame {
            Shown::Native(frame) if frame.module() == Some("library.so") => Some(frame),
            _ => None,
        })
        .collect();
    is_right(&own, made, is_deleted)?;
    // The file is kept open: names do not take the process.
    drop(parked);
    let again = look.named_afterwards();
    let again: Vec<&NativeFrame> = again
        .iter()
        .filter(|frame| frame.module() == Some("library.so"))
        .collect();
    is_right(&again, made, is_deleted).context("when the process was over")
}

/// The library's functions, leaf first, as they are called and compiled.
fn is_right(own: &[&NativeFrame], made: Made, is_deleted: bool) -> Result<()> {
    // Debug information apart is looked for where the file says and beside it; of a file that is
    // deleted, nobody knows where that was.
    let has_lines = match made {
        Made::WithDebugInformation | Made::WithDebugInformationByBuildId => true,
        Made::WithDebugInformationApart => !is_deleted,
        Made::Stripped => false,
    };
    let with_lines = [
        (Some("called_last"), line("called_last")),
        (Some("inlined"), line("inlined")),
        (Some("called_first"), line("called_first")),
        (Some("crate::module::function"), line("rust_like")),
        (Some("space::Type::method(int)"), line("cpp_like")),
        (Some("splits"), line("splits")),
        (Some("enter"), line("enter")),
    ];
    let nameless = (None, None);
    let without_lines = [0, 2, 3, 4, 5, 6].map(|index| {
        // The two that are not exported: one, and the piece that is elsewhere.
        let is_named = index != 0 && index != 5;
        (with_lines[index].0.filter(|_| is_named), None)
    });
    let expected: &[_] = if has_lines {
        &with_lines
    } else {
        &without_lines
    };
    ensure!(
        has_lines || expected[0] == nameless,
        "the first has no name"
    );
    let got: Vec<_> = own
        .iter()
        .map(|frame| match frame {
            NativeFrame::Known { function, line, .. } => (Some(&**function), *line),
            NativeFrame::Unknown { .. } => nameless,
        })
        .collect();
    ensure!(got == expected, "{got:?} instead of {expected:?}");
    for frame in own {
        let label = Frame::from(*frame).to_string();
        let fits = match frame {
            NativeFrame::Known { .. } if has_lines => label.contains("native_library.c:"),
            NativeFrame::Known { .. } => label.ends_with(" (library.so)"),
            NativeFrame::Unknown { .. } => label.starts_with("library.so+0x"),
        };
        ensure!(fits, "`{label}`");
    }
    Ok(())
}

fn check(python: &Python) -> Result<()> {
    for made in [
        Made::WithDebugInformation,
        Made::WithDebugInformationApart,
        Made::WithDebugInformationByBuildId,
        Made::Stripped,
    ] {
        for is_deleted in [false, true] {
            shows(python, made, is_deleted).with_context(|| format!("{made:?}, {is_deleted}"))?;
        }
    }
    Ok(())
}

on_each! {
    Rung::Live, check;
    a_librarys_functions_have_their_names_and_lines_on_3_8: 8;
    a_librarys_functions_have_their_names_and_lines_on_3_12: 12;
    a_librarys_functions_have_their_names_and_lines_on_3_14: 14;
}

/// The vdso has no file, and its place is another one in each process.
#[test]
fn the_vdsos_functions_have_names() -> Result<()> {
    if !rung::reached(Rung::Live) {
        return Ok(());
    }
    let python = pythons::required().first().context("an interpreter")?;
    let parked = Parked::start(python, "native_border.py", &[])?;
    let account: Account = serde_json::from_str(&parked.line)?;
    let mut look = Look::at(parked.pid().parse()?, &account)?;
    let named = look.vdso()?;
    let is_known = |frame: &&NativeFrame| {
        let function = frame.function().unwrap_or_default();
        frame.module() == Some("[vdso]") && function.contains("clock_gettime")
    };
    ensure!(named.iter().any(|frame| is_known(&frame)), "{named:?}");
    Ok(())
}

/// An address of the kernel has the name that the kernel's own list gives it.
#[test]
fn the_kernels_functions_have_names() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let list = std::fs::read_to_string("/proc/kallsyms")?;
    let row = list.lines().find(|row| row.ends_with(" T vfs_read"));
    let row = row.context("`vfs_read` is not in /proc/kallsyms")?;
    let addr = u64::from_str_radix(row.split(' ').next().unwrap_or_default(), 16)?;
    let frames = LiveSymbols::default().kernel(RemoteAddr(addr + 8));
    let names: Vec<_> = frames.iter().map(NativeFrame::function).collect();
    ensure!(names == [Some("vfs_read")], "{names:?}");
    Ok(())
}
