//! One virtual machine, from the switch to its end.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::image::Image;

/// Emulated, the whole takes some tens of minutes.
const LIMIT_S: &str = "7200";

/// What the machine has, whatever the host has: two CPUs and enough memory for the tests.
const SIZE: [&str; 4] = ["-smp", "2", "-m", "2560"];

/// Boots the image with the host's files and the job's folder, shows what it says, and waits until
/// it switches itself off; gives how long that took.
pub(super) fn boot(image: &Image, job: &Path) -> Result<Duration> {
    let initramfs = job.join("initramfs");
    image.pack(&initramfs)?;
    let start = Instant::now();
    // `timeout` since a kernel that hangs says nothing.
    let mut machine = Command::new("timeout");
    machine
        .args(["--foreground", "--kill-after", "10", LIMIT_S])
        .arg("qemu-system-x86_64")
        .args(["-accel", accelerator(), "-cpu", "max"])
        .args(SIZE)
        .args(["-nodefaults", "-no-reboot", "-display", "none"])
        .args(["-serial", "stdio"])
        .arg("-kernel")
        .arg(image.kernel())
        .arg("-initrd")
        .arg(&initramfs)
        // On a busy host an emulated timer is late, and a kernel that tests it at its start gives up.
        .args(["-append", "console=ttyS0 panic=-1 quiet no_timer_check"])
        .args(share(
            "host",
            Path::new("/"),
            ",readonly=on,multidevs=remap",
        ))
        .args(share("job", job, ""))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut machine = machine.spawn().context("QEMU could not be started")?;
    let console = machine.stdout.take().context("QEMU has no stdout")?;
    let mut said = String::new();
    for line in BufReader::new(console).split(b'\n') {
        let line = line.context("the machine's console")?;
        let line = String::from_utf8_lossy(&line);
        eprintln!("  | {}", line.trim_end());
        said.push_str(&line);
        said.push('\n');
    }
    fs::write(job.join("console"), said)?;
    let status = machine.wait().context("QEMU is not a child")?;
    ensure!(status.success(), "QEMU ended with {status}");
    Ok(start.elapsed())
}

/// A folder of the host for the guest to mount by its name.
fn share(name: &str, folder: &Path, more: &str) -> [String; 4] {
    [
        "-fsdev".to_owned(),
        format!(
            "local,id={name},path={},security_model=none{more}",
            folder.display()
        ),
        "-device".to_owned(),
        format!("virtio-9p-pci,fsdev={name},mount_tag={name}"),
    ]
}

/// The processor's own virtual machines where it has them; otherwise it is emulated, some ten
/// times slower. A `/dev/kvm` alone does not tell: there are such that run only kernels made for
/// them.
fn accelerator() -> &'static str {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = cpu.lines().find(|line| line.starts_with("flags"));
    let has = |flag| flags.is_some_and(|flags| flags.split(' ').any(|it| it == flag));
    let open = || fs::File::options().read(true).write(true).open("/dev/kvm");
    if (has("vmx") || has("svm")) && open().is_ok() {
        "kvm"
    } else {
        eprintln!("no virtual machines by this processor: it is emulated");
        "tcg,thread=multi"
    }
}
