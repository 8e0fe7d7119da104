//! Records `targets/known_stacks.py` as an image on every interpreter of this machine:
//! `cargo xtask image`. An example, for the harness itself does not know the profiler's library.
//!
//! An image holds what `tests/recorded/reading.rs` reads of the target and the target's own
//! account of its stacks. No path of the machine gets into it: interpreters run through a link
//! of a neutral name and with an environment of their own.

#[path = "../tests/recorded/account.rs"]
mod account;
#[path = "../tests/recorded/reading.rs"]
mod reading;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use account::Account;
use anyhow::{Context, Result, anyhow, bail, ensure};
use profiler::pipeline::Attached;
use profiler::target::{Backing, Image, ImageMeta, InKernel, Mapping, Maps, Process, Recorder};
use profiler::words::{Pid, RemoteAddr};
use tests::pythons::{self, Python};

const TARGET: &str = include_str!("../targets/known_stacks.py");
/// Gives the source a file name that is the same for every interpreter and in every root.
const BOOTSTRAP: &str =
    "import sys; exec(compile(sys.argv.pop(1), '/targets/known_stacks.py', 'exec'), globals())";
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("images");
    for python in pythons::required() {
        if !wanted.is_empty() && !wanted.iter().any(|it| python.label.starts_with(it)) {
            continue;
        }
        let image = record(python).with_context(|| format!("on {}", python.label))?;
        let path = folder.join(format!("python-{}.img", python.label));
        std::fs::write(&path, &image).with_context(|| format!("{}", path.display()))?;
        println!("{} bytes: {}", image.len(), path.display());
    }
    println!("now read them anew: BLESS=1 cargo test -p tests --test recorded");
    Ok(())
}

fn record(python: &Python) -> Result<Vec<u8>> {
    let target = Target::start(python)?;
    let account = Account::parse(&target.account).map_err(|wrong| anyhow!(wrong))?;
    let attached = Attached::open(Pid(target.child.id()))?;
    let process = &attached.process;
    wait_until_all_block(process, account.threads.len())?;
    let mut found = attached.discover()?.found().clone();
    found.image = target.neutral(&found.image);
    let (mut pointers, mut places) = (Vec::new(), vec![found.runtime]);
    for tid in process.tids()? {
        let place = process.in_kernel(tid)?.stack_pointer();
        let sp = place.context("a thread that is blocked has a place")?;
        pointers.push(format!("{tid} {sp}"));
        places.push(sp);
    }
    places.extend(process.all_tasks()?.iter().filter_map(|it| it.start_stack));
    let mut facts = reading::facts_of(&found);
    facts.insert(reading::STACK_POINTERS.to_owned(), pointers.join(" "));
    facts.insert(reading::ACCOUNT.to_owned(), target.account.clone());
    let meta = ImageMeta {
        pid: process.pid(),
        recipe: format!(
            "cargo xtask image {0}: tests/targets/known_stacks.py on CPython {0}, all threads \
             parked, read once by tests/tests/recorded/reading.rs",
            python.label
        ),
        maps: target.maps(process, &places)?,
        tasks: process.all_tasks()?,
        facts,
    };
    let recorder = Recorder::new(&attached.memory);
    let reading = reading::read(&recorder, &meta, found)?;
    account
        .agrees_with(&reading)
        .map_err(|wrong| anyhow!("what was read is wrong: {wrong}"))?;
    let file = recorder.image(meta).to_bytes()?;
    target.is_not_named_in(&file)?;
    // It serves only if it can stand in for the process.
    let image = Image::from_bytes(&file)?;
    let found = reading::found(&image.meta.facts).context("its facts tell no find")?;
    let again = reading::read(&image.memory, &image.meta, found)?;
    ensure!(
        again.to_string() == reading.to_string(),
        "the image reads otherwise than the process"
    );
    Ok(file)
}

fn wait_until_all_block(process: &Process, threads: usize) -> Result<()> {
    let started = Instant::now();
    loop {
        let tids = process.tids()?;
        let blocked = |&tid| matches!(process.in_kernel(tid), Ok(InKernel::Blocked { .. }));
        if tids.len() == threads && tids.iter().all(blocked) {
            return Ok(());
        }
        if started.elapsed() > PATIENCE {
            bail!("its threads never block");
        }
        std::thread::yield_now();
    }
}

/// The target, which dies with its value.
struct Target {
    child: Child,
    account: String,
    /// What of the machine's paths is called what in the image: the interpreter's prefix and a
    /// link to it, or another root and nothing.
    renamed: Option<(PathBuf, PathBuf)>,
}

impl Target {
    fn start(python: &Python) -> Result<Self> {
        let mut words = python.command.clone();
        let program = PathBuf::from(&words[0]);
        let mut renamed = python.root.clone().map(|root| (root, PathBuf::new()));
        if python.root.is_none() && !program.starts_with("/usr") {
            let prefix = program.ancestors().nth(2).context("its prefix")?;
            let link = std::env::temp_dir().join(format!("python-{}", python.label));
            // One that was left by a run that was ended is in the way.
            let _ = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(prefix, &link).context("a link to its prefix")?;
            words[0] = link
                .join(program.strip_prefix(prefix)?)
                .to_string_lossy()
                .into_owned();
            renamed = Some((prefix.to_owned(), link));
        }
        let mut command = Command::new("setarch");
        command
            .arg("--addr-no-randomize")
            .args(words)
            .args(["-B", "-S", "-X", "utf8", "-c", BOOTSTRAP, TARGET])
            .env_clear()
            .envs([("LC_ALL", "C.UTF-8"), ("PYTHONHASHSEED", "0")])
            // What was compiled before knows the files by other names.
            .env("PYTHONPYCACHEPREFIX", "/nowhere")
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some((_, link)) = &renamed
            && python.root.is_none()
        {
            command.env("PYTHONHOME", link);
        }
        let mut child = command.spawn().context("`setarch` of util-linux")?;
        let stdout = child.stdout.take().context("its stdout")?;
        let mut target = Self {
            child,
            account: String::new(),
            renamed,
        };
        BufReader::new(stdout).read_line(&mut target.account)?;
        ensure!(!target.account.is_empty(), "it ended without an account");
        Ok(target)
    }

    fn neutral(&self, path: &str) -> String {
        match &self.renamed {
            Some((prefix, link)) => {
                path.replace(&*prefix.to_string_lossy(), &link.to_string_lossy())
            }
            None => path.to_owned(),
        }
    }

    /// Holds the image to the promise that it names no folder of the machine.
    fn is_not_named_in(&self, image: &[u8]) -> Result<()> {
        let Some((prefix, _)) = &self.renamed else {
            return Ok(());
        };
        let mut plain = Vec::new();
        // The eight bytes before the stream are the format's mark.
        flate2::read::ZlibDecoder::new(&image[8..]).read_to_end(&mut plain)?;
        let prefix = prefix.as_os_str().as_encoded_bytes();
        let named = plain.windows(prefix.len()).any(|it| it == prefix);
        ensure!(!named, "the image names a folder of this machine");
        Ok(())
    }

    /// The mappings that hold one of these places.
    fn maps(&self, process: &Process, places: &[RemoteAddr]) -> Result<Maps> {
        let all = process.maps()?;
        let holds = |mapping: &&Mapping| places.iter().any(|place| mapping.contains(*place));
        let mut kept: Vec<Mapping> = all.iter().filter(holds).cloned().collect();
        for mapping in &mut kept {
            mapping.dev = (0, 0);
            if let Backing::File { path, .. } = &mut mapping.backing {
                *path = self.neutral(&path.to_string_lossy()).into();
            }
        }
        Ok(Maps::new(kept))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some((_, link)) = &self.renamed {
            // An empty one is no link.
            let _ = std::fs::remove_file(link);
        }
    }
}
