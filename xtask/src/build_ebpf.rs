//! `cargo xtask build-ebpf`: sets up what the kernel programs are built with, builds them, and
//! puts the object where the profiler embeds it.
//!
//! The object is committed, so users need only stable Rust. The build is reproducible: paths
//! are remapped and DWARF (which only names the build) is dropped, so `--check` compares bytes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::cache;

/// The release that goes with the pinned compiler's LLVM.
const BPF_LINKER: &str = "0.13.0";
const TARGET: &str = "bpfel-unknown-none";

/// Arguments of the command.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// Do not write the object: fail when the committed one is not what the source gives.
    #[arg(long)]
    check: bool,
}

/// Where the object is committed and embedded from.
fn object_path(root: &Path) -> PathBuf {
    root.join("profiler-ebpf/profiler.bpf.o")
}

/// Build, then write or compare.
pub(crate) fn run(options: &Options) -> Result<()> {
    let root = cache::workspace_root();
    let sysroot = PathBuf::from(output(Command::new("rustc").args(["--print", "sysroot"]))?);
    let linker = bpf_linker(&sysroot)?;
    library_source(&sysroot)?;
    let built = strip(&sysroot, &build(&root, &sysroot, &linker)?)?;
    let path = object_path(&root);
    if options.check {
        let committed =
            fs::read(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
        if committed != built {
            let fresh = std::env::temp_dir().join("profiler.bpf.o.fresh");
            fs::write(&fresh, &built)?;
            bail!(
                "the committed `{}` ({} bytes) is not what the source gives ({} bytes, kept as `{}`): run `cargo xtask build-ebpf` and commit the object",
                path.display(),
                committed.len(),
                built.len(),
                fresh.display()
            );
        }
        println!(
            "build-ebpf: the committed object is what the source gives ({} bytes)",
            built.len()
        );
    } else {
        fs::write(&path, &built)?;
        println!(
            "build-ebpf: wrote {} ({} bytes)",
            path.display(),
            built.len()
        );
    }
    Ok(())
}

fn output(command: &mut Command) -> Result<String> {
    let out = command
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    ensure!(
        out.status.success(),
        "{command:?} failed: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    Ok(String::from_utf8(out.stdout)?.trim().to_owned())
}

/// The sources of `core`, without which there is no core for the BPF target.
fn library_source(sysroot: &Path) -> Result<()> {
    let library = sysroot.join("lib/rustlib/src/rust/library/core/src/lib.rs");
    if library.exists() {
        return Ok(());
    }
    println!("build-ebpf: adding the component rust-src");
    let status = Command::new("rustup")
        .args(["component", "add", "rust-src"])
        .status();
    if !status.is_ok_and(|status| status.success()) || !library.exists() {
        bail!(
            "the library source is missing at `{}`: type `rustup component add rust-src`; where that cannot be had, unpack Debian's `rust-src` of the same version and put its `library` folder there",
            library.display()
        );
    }
    Ok(())
}

/// bpf-linker, linked against the very LLVM that rustc ships: no other LLVM is needed.
fn bpf_linker(sysroot: &Path) -> Result<PathBuf> {
    let place = cache::folder().join("bpf-linker");
    let program = place.join("bin/bpf-linker");
    let works = |program: &Path| {
        output(Command::new(program).arg("--version"))
            .is_ok_and(|version| version.contains(BPF_LINKER))
    };
    if works(&program) {
        return Ok(program);
    }
    println!(
        "build-ebpf: installing bpf-linker {BPF_LINKER} into {} (about two minutes)",
        place.display()
    );
    let llvm = fs::read_dir(sysroot.join("lib"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("libLLVM.so."))
        })
        .with_context(|| format!("no libLLVM.so.* in `{}/lib`", sysroot.display()))?;
    // The folder stays: it is the program's run path.
    let prefix = cache::folder().join("llvm");
    fs::create_dir_all(prefix.join("lib"))?;
    for name in [
        "libLLVM.so",
        &llvm.file_name().unwrap_or_default().to_string_lossy(),
    ] {
        let link = prefix.join("lib").join(name);
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(&llvm, &link)?;
    }
    let status = Command::new("cargo")
        .args([
            "install",
            "bpf-linker",
            "--version",
            BPF_LINKER,
            "--locked",
            "--force",
        ])
        .args(["--no-default-features", "--features", "llvm-22", "--root"])
        .arg(&place)
        .env("LLVM_PREFIX", &prefix)
        .env_remove("CARGO_TARGET_DIR")
        .status()?;
    ensure!(
        status.success() && works(&program),
        "bpf-linker could not be installed: try `LLVM_PREFIX={} cargo install bpf-linker --version {BPF_LINKER} --no-default-features --features llvm-22 --root {}`",
        prefix.display(),
        place.display()
    );
    Ok(program)
}

/// Compile and link for the BPF target with the pinned stable compiler.
fn build(root: &Path, sysroot: &Path, linker: &Path) -> Result<PathBuf> {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cargo")))
        .context("neither CARGO_HOME nor HOME is set")?;
    let target = cache::target_dir(root).join("ebpf");
    // An unset separator: paths may hold spaces.
    let flags = [
        "-Cdebuginfo=2".to_owned(),
        // Comparisons of 32 bits, which keep the verifier's bounds; kernels have them since 5.1.
        "-Ctarget-cpu=v3".to_owned(),
        "-Clink-arg=--btf".to_owned(),
        format!("-Clinker={}", linker.display()),
        format!("--remap-path-prefix={}=.", root.display()),
        format!("--remap-path-prefix={}=cargo", home.display()),
        format!("--remap-path-prefix={}=rust", sysroot.display()),
    ]
    .join("\u{1f}");
    let status = Command::new("cargo")
        .current_dir(root)
        .args([
            "build",
            "-Z",
            "build-std=core",
            "--profile",
            "ebpf",
            "--locked",
            "--package",
            "profiler-ebpf",
        ])
        .args(["--target", TARGET])
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", flags)
        .env("CARGO_TARGET_DIR", &target)
        .env_remove("RUSTFLAGS")
        .status()?;
    ensure!(status.success(), "the kernel programs do not build");
    Ok(target.join(TARGET).join("ebpf/profiler-ebpf"))
}

/// Drop DWARF and keep BTF: the kernel reads only the latter. rustc brings the tool along.
fn strip(sysroot: &Path, object: &Path) -> Result<Vec<u8>> {
    let tool = sysroot.join("lib/rustlib/x86_64-unknown-linux-gnu/bin/rust-objcopy");
    let stripped = object.with_extension("stripped");
    output(
        Command::new(&tool)
            .arg("--strip-debug")
            .args([object, &stripped])
            .env("LD_LIBRARY_PATH", sysroot.join("lib")),
    )?;
    fs::read(&stripped).with_context(|| format!("cannot read `{}`", stripped.display()))
}
