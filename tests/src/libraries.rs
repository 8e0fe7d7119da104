//! The libraries of `native_calls.py`, built from its sources where they lie.
//!
//! It builds and judges nothing else: what is loaded is the target's affair.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::pythons::{self, Python};

/// How the half in C is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// An extension module, by the interpreter's own headers or by those of an earlier one.
    Extension,
    /// A library that ctypes loads.
    Library,
}

impl Made {
    /// How all that an interpreter can load are made: where there are no headers for it, libraries
    /// alone.
    #[must_use]
    pub fn all_of(python: &Python) -> &'static [Self] {
        match headers(python) {
            Some(_) => &[Self::Extension, Self::Library],
            None => &[Self::Library],
        }
    }
}

/// Builds `native_calls.c` in its folder; gives the library's name.
///
/// # Errors
///
/// When there is no C compiler, or no headers for an extension.
pub fn in_c(python: &Python, made: Made, folder: &Path) -> Result<&'static str> {
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-g", "-shared", "-fPIC", "-pthread"]);
    let name = match made {
        Made::Extension => {
            let headers = headers(python).context("there are no headers for it")?;
            cc.arg("-DEXTENSION").args(headers);
            "native_calls.extension.so"
        }
        Made::Library => "native_calls.c.so",
    };
    cc.args(["-o", name, "native_calls.c"]);
    run(&mut cc, folder)?;
    Ok(name)
}

/// Builds `native_calls.rs` in its folder; gives the library's name.
///
/// # Errors
///
/// When there is no Rust compiler.
pub fn in_rust(folder: &Path) -> Result<&'static str> {
    let name = "native_calls.rust.so";
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc
        .args(["--edition", "2021", "--crate-type", "cdylib", "-g", "-O"])
        .args(["-o", name, "native_calls.rs"]);
    run(&mut rustc, folder)?;
    Ok(name)
}

fn run(compiler: &mut Command, folder: &Path) -> Result<()> {
    let output = compiler.current_dir(folder).output();
    let output = output.with_context(|| format!("{compiler:?} could not be run"))?;
    ensure!(
        output.status.success(),
        "{compiler:?} could not build it: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// What tells the compiler where `Python.h` is: the interpreter's own one, or where it has none that
/// of an earlier one, of which an extension may use what is the same in all (the stable ABI).
fn headers(python: &Python) -> Option<Vec<String>> {
    if let Some(own) = own_headers(python) {
        return Some(vec![format!("-I{own}")]);
    }
    // The stable ABI is that of interpreters with a GIL.
    let is_earlier = |other: &&Python| {
        !python.free_threaded && !other.free_threaded && other.minor() <= python.minor()
    };
    let mut others = pythons::all().iter().filter(is_earlier).rev();
    let earlier = others.find_map(own_headers)?;
    let first = "-DPy_LIMITED_API=0x03080000".to_owned();
    Some(vec![format!("-I{earlier}"), first])
}

/// The folder of `Python.h`, if the interpreter has one and is of this root.
fn own_headers(python: &Python) -> Option<String> {
    if python.root.is_some() {
        return None;
    }
    let (program, words) = python.command.split_first()?;
    let ask = "import sysconfig; print(sysconfig.get_paths()['include'])";
    let output = Command::new(program)
        .args(words)
        .args(["-I", "-c", ask])
        .output()
        .ok()?;
    let folder = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    Path::new(&folder)
        .join("Python.h")
        .exists()
        .then_some(folder)
}
