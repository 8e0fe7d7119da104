//! The same interpreter in other clothes: copied under another name, stripped, loaded by a program
//! that is no Python, linked into one.
//!
//! Everything is made in a temporary folder below the interpreter's own root, from what the
//! machine has: its files, `cc` and `strip`.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::pythons::{self, Python};

/// The C halves of targets, as they are in `tests/targets`.
const EMBED: &str = include_str!("../targets/embed.c");
const OWN_PYTHON: &str = include_str!("../targets/own_python.c");

/// An interpreter made of files of its own.
#[derive(Debug)]
pub struct Made {
    /// It, to be started as any other.
    pub python: Python,
    /// Its files, as the machine sees them.
    files: Vec<PathBuf>,
    _folder: TempDir,
}

impl Made {
    /// Changes each of its files, before it is started.
    ///
    /// # Errors
    ///
    /// The first one's.
    pub fn change(self, how: impl Fn(&Path) -> Result<()>) -> Result<Self> {
        for file in &self.files {
            how(file).with_context(|| format!("`{}`", file.display()))?;
        }
        Ok(self)
    }

    /// Deletes its files, while it runs.
    ///
    /// # Errors
    ///
    /// When they are gone already.
    pub fn delete(&self) -> Result<()> {
        for file in &self.files {
            std::fs::remove_file(file).with_context(|| format!("`{}`", file.display()))?;
        }
        Ok(())
    }
}

/// The program of an interpreter and its library, if that is one of its own; as it sees them.
fn files_of(python: &Python) -> Result<(PathBuf, Option<PathBuf>)> {
    const ASK: &str = "import os; print(os.readlink('/proc/self/exe'));\
        print(*{line.split()[-1] for line in open('/proc/self/maps') if '/libpython3.' in line})";
    let output = Command::new(&python.command[0])
        .args(&python.command[1..])
        .args(["-I", "-c", ASK])
        .env("LC_ALL", "C")
        .output()
        .with_context(|| format!("`{}`", python.command.join(" ")))?;
    let text = String::from_utf8(output.stdout).context("paths of text")?;
    let mut lines = text.lines();
    let program = lines.next().context("it does not say what it is")?;
    let library = lines.next().filter(|path| !path.is_empty());
    Ok((PathBuf::from(program), library.map(PathBuf::from)))
}

/// Its shared library, as it sees it; none when the interpreter is in the program itself.
///
/// # Errors
///
/// When it does not run.
pub fn library_of(python: &Python) -> Result<Option<PathBuf>> {
    Ok(files_of(python)?.1)
}

/// A folder below the interpreter's root, and the same as it sees it.
fn folder(python: &Python) -> Result<(TempDir, PathBuf)> {
    let folder = tempfile::Builder::new()
        .prefix("profiler-kind-")
        .tempdir_in(python.root().join("tmp"))?;
    let inside = folder.path().strip_prefix(python.root())?;
    let inside = Path::new("/").join(inside);
    Ok((folder, inside))
}

/// The words that start a program of this interpreter's root.
fn words(python: &Python, program: &[String]) -> Vec<String> {
    let before = python.command.len().saturating_sub(1);
    [&python.command[..before], program].concat()
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Copies of its files, the program under a name that says nothing of Python.
///
/// # Errors
///
/// When it does not run or cannot be copied.
pub fn copied(python: &Python) -> Result<Made> {
    let (program, library) = files_of(python)?;
    let (folder, inside) = folder(python)?;
    let outside = |path: &Path| python.root().join(path.strip_prefix("/").unwrap_or(path));
    let mut files = vec![folder.path().join("worker")];
    std::fs::copy(outside(&program), &files[0])?;
    let mut start = vec![text(&inside.join("worker"))];
    if let Some(library) = &library {
        let name = library.file_name().context("a library without a name")?;
        files.push(folder.path().join(name));
        std::fs::copy(outside(library), &files[1])?;
        // The program asks for it by its inner name, which is then there already.
        let preload = format!("LD_PRELOAD={}", text(&inside.join(name)));
        start = vec!["env".to_owned(), preload, start.remove(0)];
    }
    Ok(Made {
        python: Python {
            command: words(python, &start),
            ..python.clone()
        },
        files,
        _folder: folder,
    })
}

fn compile(source: &str, program: &Path, arguments: &[&str]) -> Result<()> {
    let file = program.with_extension("c");
    std::fs::write(&file, source)?;
    let built = Command::new("cc")
        .args(["-O1", "-w", "-o"])
        .arg(program)
        .arg(&file)
        .args(arguments)
        .output()
        .context("`cc` could not be run: type `cargo xtask setup`")?;
    let said = String::from_utf8_lossy(&built.stderr);
    ensure!(built.status.success(), "`cc` could not build it: {said}");
    std::fs::remove_file(&file)?;
    Ok(())
}

/// A C program that loads the interpreter's library late, on a thread of its own, and under a
/// name that says nothing; with `second`, an idle interpreter beside it. None when the interpreter
/// has no library.
///
/// # Errors
///
/// When there is no C compiler.
pub fn embedded(python: &Python, second: Option<&Python>) -> Result<Option<Made>> {
    let Some(library) = library_of(python)? else {
        return Ok(None);
    };
    let (folder, inside) = folder(python)?;
    let program = folder.path().join("embed");
    compile(EMBED, &program, &["-ldl", "-lpthread"])?;
    let renamed = folder.path().join("plugin.so");
    std::fs::copy(python.root().join(library.strip_prefix("/")?), &renamed)?;
    let mut libraries = text(&inside.join("plugin.so"));
    if let Some(second) = second {
        let library = library_of(second)?.context("the second has no library")?;
        libraries = format!("{libraries},{}", text(&library));
    }
    Ok(Some(Made {
        python: Python {
            command: words(python, &[text(&inside.join("embed")), libraries]),
            ..python.clone()
        },
        files: vec![program, renamed],
        _folder: folder,
    }))
}

/// Its static library, and the words with which its own libraries are linked.
fn static_library(python: &Python) -> Result<Option<(PathBuf, Vec<String>)>> {
    const ASK: &str = "import sysconfig as s; v = s.get_config_var; print(v('LIBPL'));\
        print(v('LIBS'), v('SYSLIBS'), v('MODLIBS'))";
    let output = Command::new(&python.command[0])
        .args(["-I", "-c", ASK])
        .output()?;
    let said = String::from_utf8(output.stdout)?;
    let mut lines = said.lines();
    let place = lines
        .next()
        .context("it does not say where its library is")?;
    let needs = lines.next().unwrap_or_default().split(' ');
    let needs = needs.filter(|word| word.starts_with("-l"));
    let (major, minor) = python.minor();
    // Where there are two, the other one is for fixed addresses.
    let names = [
        format!("libpython{major}.{minor}-pic.a"),
        format!("libpython{major}.{minor}.a"),
    ];
    let mut libraries = names.iter().map(|name| Path::new(place).join(name));
    let library = libraries.find(|path| path.is_file());
    Ok(library.map(|library| (library, needs.map(str::to_owned).collect())))
}

/// Whether a program can be linked with it.
#[must_use]
pub fn has_static_library(python: &Python) -> bool {
    matches!(static_library(python), Ok(Some(_)))
}

/// A program of another name with the interpreter's static library in it.
///
/// # Errors
///
/// When the machine has none of it, or it cannot be built from it.
pub fn linked(python: &Python, arguments: &[&str]) -> Result<Made> {
    let (library, needs) = static_library(python)?.context("it has no static library")?;
    let (folder, inside) = folder(python)?;
    let program = folder.path().join("worker");
    let library = text(&library);
    let mut all = vec![library.as_str()];
    all.extend(arguments);
    all.extend(needs.iter().map(String::as_str));
    compile(OWN_PYTHON, &program, &all)?;
    Ok(Made {
        python: Python {
            command: vec![text(&inside.join("worker"))],
            ..python.clone()
        },
        files: vec![program],
        _folder: folder,
    })
}

/// Takes away all that `strip` can take.
///
/// # Errors
///
/// When there is no `strip`.
pub fn strip(file: &Path) -> Result<()> {
    let status = Command::new("strip").arg("-s").arg(file).status()?;
    ensure!(status.success(), "`strip` ended with {status}");
    Ok(())
}

/// Takes away the headers of the sections too, as `sstrip` does: nothing that runs needs them.
///
/// # Errors
///
/// When the file cannot be written.
pub fn drop_section_headers(file: &Path) -> Result<()> {
    let file = std::fs::OpenOptions::new().write(true).open(file)?;
    // `e_shoff`, then `e_shentsize`, `e_shnum` and `e_shstrndx`.
    file.write_all_at(&[0; 8], 0x28)?;
    file.write_all_at(&[0; 6], 0x3a)?;
    Ok(())
}

/// Debian's debug build.
#[must_use]
pub fn debug() -> Option<Python> {
    let folder = pythons::cache()?.join("debug/usr/bin");
    let names = std::fs::read_dir(folder).ok()?.flatten();
    let is_it = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("python3.") && name.ends_with('d'))
    };
    let program = names.map(|entry| entry.path()).find(is_it)?;
    Python::ask(vec![text(&program)], None)
}

/// An interpreter built against musl.
#[must_use]
pub fn musl() -> Option<Python> {
    let program = pythons::cache()?.join("musl/bin/python3");
    Python::ask(vec![text(&program)], None)
}

/// `spin.py` packed into one file.
///
/// # Errors
///
/// When it was not packed.
pub fn packed() -> Result<PathBuf> {
    match pythons::cache().map(|cache| cache.join("packed/dist/spin")) {
        Some(path) if path.is_file() => Ok(path),
        _ => bail!("there is no packed program: type `cargo xtask setup`"),
    }
}
