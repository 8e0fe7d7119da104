//! Output files: opened before the run, whole at its end.

use std::fs;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::thread;

use profiler::export::{Sink, SinkError};
use tempfile::TempDir;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn write(path: &Path, text: &str) -> Result<(), SinkError> {
    Sink::open(path)?.finish(|out| out.write_all(text.as_bytes()))
}

fn names(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("it can be listed");
    entries.flatten().map(|entry| entry.path()).collect()
}

#[test]
fn a_new_file_appears_whole_at_the_end() {
    let folder = folder();
    let path = folder.path().join("a.folded");
    let sink = Sink::open(&path).expect("it opens");
    assert!(!path.exists(), "not before there is something in it");
    sink.finish(|out| out.write_all(b"new"))
        .expect("it is written");
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "new");
    assert_eq!(names(folder.path()), [path], "and nothing else is");
}

#[test]
fn an_old_file_is_replaced_only_by_a_whole_one_and_keeps_its_mode() {
    let folder = folder();
    let path = folder.path().join("a.folded");
    fs::write(&path, "old").expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("allowed");
    let old = || fs::read_to_string(&path).expect("it is there");

    drop(Sink::open(&path).expect("it opens"));
    assert_eq!(old(), "old");
    let failed = Sink::open(&path).expect("it opens").finish(|out| {
        out.write_all(b"half")?;
        Err(io::Error::other("the profile broke"))
    });
    let expected = format!(
        "cannot write `{}`: the profile broke: name another place with --output",
        path.display()
    );
    assert_eq!(failed.map_err(|e| e.to_string()), Err(expected));
    assert_eq!(old(), "old");
    write(&path, "new").expect("it is written");
    assert_eq!(old(), "new");
    let mode = fs::metadata(&path)
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o640);
    assert_eq!(names(folder.path()).len(), 1);
}

#[test]
fn the_file_behind_a_link_is_replaced_and_the_link_stays() {
    let folder = folder();
    let file = folder.path().join("file");
    let link = folder.path().join("link");
    fs::write(&file, "old").expect("written");
    symlink(&file, &link).expect("linked");
    write(&link, "new").expect("it is written");
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "new");
    assert!(
        fs::symlink_metadata(&link)
            .expect("it is there")
            .is_symlink()
    );
}

#[test]
fn a_pipe_is_written_to_as_it_is_and_may_close_early() {
    let (mut reader, writer) = io::pipe().expect("a pipe");
    let path = PathBuf::from(format!("/proc/self/fd/{}", writer.as_raw_fd()));
    let sink = Sink::open(&path).expect("it opens");
    let early = Sink::open(&path).expect("it opens");
    drop(writer);
    let read = thread::spawn(move || {
        let mut text = [0; 5];
        reader.read_exact(&mut text).map(|()| text)
    });
    sink.finish(|out| out.write_all(b"hello"))
        .expect("it is written");
    let text = read.join().expect("no panic").expect("it is read");
    assert_eq!(&text, b"hello");
    // The reader is gone by now, and there is more than a pipe or a buffer holds.
    early
        .finish(|out| out.write_all(&[0; 1 << 20]))
        .expect("no error");
}

#[test]
fn what_cannot_be_written_is_said_before_the_run_with_what_to_do() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("file"), "").expect("written");
    let check = |path: PathBuf, says: &str, next: &str| {
        let error = Sink::open(&path).map(|_| ()).map_err(|e| e.to_string());
        let error = error.expect_err("it must not open");
        assert!(error.starts_with("cannot write `"), "{error}");
        assert!(error.contains(says) && error.contains(next), "{error}");
    };
    check(at("no/such/a.svg"), "there is no folder", "mkdir -p");
    check(at("."), "it is a folder", "profile.svg`");
    check(at("file/a.svg"), "is not a folder", "--output");
    check(PathBuf::from("/"), "it is a folder", "profile.svg");
    check(PathBuf::from(""), "cannot write", "");
}

#[test]
fn what_the_shell_has_opened_is_added_to_and_not_replaced() {
    let folder = folder();
    let path = folder.path().join("log");
    fs::write(&path, "before\n").expect("it is written");
    let open = fs::OpenOptions::new().append(true).open(&path);
    let open = open.expect("it opens");
    for fds in ["/dev/fd", "/proc/self/fd"] {
        let named = Path::new(fds).join(open.as_raw_fd().to_string());
        write(&named, "profile\n").expect("it is written");
    }
    let text = fs::read_to_string(&path).expect("it is there");
    assert_eq!(text, "before\nprofile\nprofile\n");
    assert_eq!(names(folder.path()), [path], "and nothing else is");
}
