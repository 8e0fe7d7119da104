//! Names for native addresses.
//!
//! An address in an image that unwinding met is named from the file that is kept open, also when
//! the process is over; any other from the process itself. Where there is debug information, in
//! the file or apart from it, functions that the compiler inlined have names too, and all have
//! their lines.

use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;

use blazesym::symbolize::{
    CodeInfo, Input, Reason, Sym, Symbolized, Symbolizer,
    source::{Elf, Kernel, Process, Source},
};
use rustc_hash::FxHashMap;

use super::alive::{has_memory, with_memory};
use super::evaluator::{EVALUATOR, Evaluator};
use super::frame::NativeFrame;
use super::image::Image;
use super::modules::Place;
use super::perf_maps::{PerfMaps, Renamed, Said};
use crate::words::{Pid, RemoteAddr};

/// Gives names to addresses; the trait keeps the pipeline testable without files.
pub trait Symbols {
    /// What is at `addr` in `pid`: the function whose code it is, inlined ones aside.
    fn name(&mut self, pid: Pid, addr: RemoteAddr) -> NativeFrame;

    /// All functions at `addr` in `pid`, leaf first: those that were inlined, the innermost
    /// first, and last the one whose code it is. Never empty. `place` is what unwinding found
    /// there.
    fn frames(&mut self, pid: Pid, addr: RemoteAddr, place: Option<&Place>) -> Arc<[NativeFrame]>;
}

/// Most names kept; when there are more, all are forgotten and learned anew.
const MAX_NAMES: usize = 1 << 16;

/// Where distributions put debug information, by build ids.
const DEBUG_FILES: &str = "/usr/lib/debug/.build-id";

/// Why an address has no name, where nothing covers it.
const NO_SYMBOL: &str = "no symbol at the address";

/// Longest name or path taken over, in bytes.
const MAX_TEXT: usize = 4096;

/// How much is read to name an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Symbols alone.
    #[default]
    Symbols,
    /// Debug information too, for lines and inlined functions.
    Lines,
}

/// What an image is known by while it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Image(usize, u64),
    Process(Pid, u64),
    Kernel(u64),
}

/// Names from ELF symbols, debug information, perf maps, the vdso and the kernel.
pub struct LiveSymbols {
    symbolizer: Symbolizer,
    detail: Detail,
    debug_files: PathBuf,
    names: FxHashMap<Pid, FxHashMap<RemoteAddr, NativeFrame>>,
    frames: FxHashMap<Key, Arc<[NativeFrame]>>,
    /// Those whose addresses are in keys: an address is given to no other while it is held.
    held: FxHashMap<usize, Arc<Image>>,
    evaluators: FxHashMap<usize, Option<Evaluator>>,
    perf_maps: PerfMaps,
    kept: usize,
}

impl std::fmt::Debug for LiveSymbols {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveSymbols")
            .field("names", &self.kept)
            .field("frames", &self.frames.len())
            .finish_non_exhaustive()
    }
}

impl Default for LiveSymbols {
    fn default() -> Self {
        Self::new(Detail::default())
    }
}

impl LiveSymbols {
    /// One that has read nothing yet.
    #[must_use]
    pub fn new(detail: Detail) -> Self {
        let lines = detail == Detail::Lines;
        Self {
            symbolizer: Symbolizer::builder()
                .enable_code_info(lines)
                .enable_inlined_fns(lines)
                .build(),
            detail,
            debug_files: DEBUG_FILES.into(),
            names: FxHashMap::default(),
            frames: FxHashMap::default(),
            held: FxHashMap::default(),
            evaluators: FxHashMap::default(),
            perf_maps: PerfMaps::default(),
            kept: 0,
        }
    }

    /// The same with debug information, by build ids, from another folder than the system's.
    #[must_use]
    pub fn with_debug_files(self, debug_files: PathBuf) -> Self {
        Self {
            debug_files,
            ..self
        }
    }

    /// A process is over or runs another program: its addresses mean something else from now on.
    pub fn forget(&mut self, pid: Pid) {
        self.perf_maps.forget(pid);
        self.forget_names(pid);
    }

    /// What a process has said since about the code that it makes: whether anything that was asked
    /// for has another name now.
    pub fn follow(&mut self, pid: Pid) -> bool {
        match self.perf_maps.follow(pid) {
            Renamed::None => return false,
            Renamed::All => self.forget_names(pid),
            Renamed::Some(addrs) => {
                for addr in addrs {
                    self.frames.remove(&Key::Process(pid, addr));
                    let names = self.names.get_mut(&pid);
                    let old = names.and_then(|names| names.remove(&RemoteAddr(addr)));
                    self.kept -= usize::from(old.is_some());
                }
            }
        }
        true
    }

    fn forget_names(&mut self, pid: Pid) {
        if let Some(names) = self.names.remove(&pid) {
            self.kept = self.kept.saturating_sub(names.len());
        }
        let is_its = |key: &Key| matches!(key, Key::Process(of, _) if *of == pid);
        self.frames.retain(|key, _| !is_its(key));
    }

    /// What is at an address of the kernel; one frame, as a rule.
    pub fn kernel(&mut self, addr: RemoteAddr) -> Arc<[NativeFrame]> {
        self.remembered(Key::Kernel(addr.0), |symbols| {
            let source = Source::Kernel(Kernel {
                debug_syms: false,
                ..Kernel::default()
            });
            symbols.look_up(
                &source,
                Input::AbsAddr(addr.0),
                addr,
                None,
                || "the kernel's symbols could not be read",
            )
        })
    }

    fn remembered(
        &mut self,
        key: Key,
        find: impl FnOnce(&mut Self) -> Vec<NativeFrame>,
    ) -> Arc<[NativeFrame]> {
        if let Some(known) = self.frames.get(&key) {
            return Arc::clone(known);
        }
        if self.frames.len() >= MAX_NAMES {
            self.frames.clear();
            self.held.clear();
            self.evaluators.clear();
        }
        let found: Arc<[NativeFrame]> = find(self).into();
        self.frames.insert(key, Arc::clone(&found));
        found
    }

    fn of_process(&mut self, pid: Pid, addr: RemoteAddr, detail: Detail) -> Vec<NativeFrame> {
        let said = self.perf_maps.ask(pid, addr);
        if let Said::Known(frame) = said {
            return vec![frame];
        }
        let mut process = Process::new(with_memory(pid).0.into());
        process.debug_syms = detail == Detail::Lines;
        process.perf_map = false;
        let source = Source::Process(process);
        let mut found = self.look_up(&source, Input::AbsAddr(addr.0), addr, None, || {
            // A zombie has no memory map any more.
            if has_memory(with_memory(pid)) {
                "code of no file, or of one that cannot be read"
            } else {
                "the process had ended before its name was read"
            }
        });
        if let (Said::Unknown(why), [NativeFrame::Unknown { reason, .. }]) = (said, &mut *found)
            && *reason == NO_SYMBOL
        {
            *reason = why;
        }
        found
    }

    fn of_image(&self, image: &Image, vaddr: u64, addr: RemoteAddr) -> Option<Vec<NativeFrame>> {
        let file = image.file.as_ref()?;
        // Where there is no name, the function goes by where it begins.
        let begins = image.span(vaddr).map_or(vaddr, |span| span.range.start);
        let module = Some((image.name(), begins));
        let look_up = |elf| {
            let input = Input::VirtOffset(vaddr);
            self.look_up(
                &Source::Elf(elf),
                input,
                addr,
                module,
                || "module could not be read",
            )
        };
        if self.detail == Detail::Lines
            && let Some(path) = image.debug_file(&self.debug_files)
        {
            let frames = look_up(Elf::new(path));
            if frames.iter().any(|frame| frame.function().is_some()) {
                return Some(frames);
            }
        }
        let mut elf = Elf::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
        elf.debug_syms = self.detail == Detail::Lines;
        Some(look_up(elf))
    }

    /// The vdso is the kernel's, and so the same in every process.
    fn of_vdso(&self, image: &Image, vaddr: u64, addr: RemoteAddr) -> Vec<NativeFrame> {
        let own = own_vdso();
        let module = Some((image.name(), vaddr));
        let Some(own) = own else {
            return vec![unknown(addr, module, "the vdso could not be read")];
        };
        let source = Source::Process(Process::new(blazesym::Pid::Slf));
        let input = Input::AbsAddr(own.wrapping_add(vaddr));
        self.look_up(
            &source,
            input,
            addr,
            module,
            || "the vdso could not be read",
        )
    }

    fn look_up(
        &self,
        source: &Source<'_>,
        input: Input<u64>,
        addr: RemoteAddr,
        module: Option<(&Arc<str>, u64)>,
        why_not: impl FnOnce() -> &'static str,
    ) -> Vec<NativeFrame> {
        match self.symbolizer.symbolize_single(source, input) {
            Ok(Symbolized::Sym(symbol)) if symbol.name.is_empty() => {
                vec![unknown(addr, module, NO_SYMBOL)]
            }
            // One that has no size reaches to the next, over whatever is between: a linkage table.
            Ok(Symbolized::Sym(symbol))
                if symbol.size.unwrap_or(0) == 0
                    && symbol.code_info.is_none()
                    && module.is_some_and(|(_, begins)| symbol.addr < begins) =>
            {
                vec![unknown(addr, module, NO_SYMBOL)]
            }
            Ok(Symbolized::Sym(symbol)) => frames_of(&symbol, module.map(|(name, _)| name)),
            Ok(Symbolized::Unknown(reason)) => vec![unknown(addr, module, word_of(reason))],
            Err(_) => vec![unknown(addr, module, why_not())],
        }
    }
}

/// Where the vdso is in the profiler itself.
fn own_vdso() -> Option<u64> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let row = maps.lines().find(|row| row.ends_with("[vdso]"))?;
    u64::from_str_radix(row.split_once('-')?.0, 16).ok()
}

fn unknown(
    addr: RemoteAddr,
    module: Option<(&Arc<str>, u64)>,
    reason: &'static str,
) -> NativeFrame {
    NativeFrame::Unknown {
        addr,
        module: module.map(|(name, vaddr)| (Arc::clone(name), vaddr)),
        reason,
    }
}

fn word_of(reason: Reason) -> &'static str {
    match reason {
        Reason::Unmapped => "not mapped any more",
        Reason::MissingComponent => "code of no file",
        Reason::MissingSyms => "module without symbols",
        Reason::UnknownAddr => NO_SYMBOL,
        _ => "not understood",
    }
}

/// The function and what was inlined into it. Its own line is where the outermost inlined one was
/// called; blazesym puts the line of the address itself on the innermost.
fn frames_of(symbol: &Sym<'_>, module: Option<&Arc<str>>) -> Vec<NativeFrame> {
    let module = module.cloned().or_else(|| {
        let path = symbol.module.as_ref()?.to_string_lossy();
        Some(path.rsplit('/').next().unwrap_or(&path).into())
    });
    let frame = |name: &str, code: Option<&CodeInfo<'_>>, bytes| NativeFrame::Known {
        function: bounded(name),
        module: module.clone(),
        file: code.map(|code| bounded(&code.to_path().to_string_lossy())),
        line: code.and_then(|code| code.line),
        bytes,
    };
    let inlined = symbol.inlined.iter().rev();
    let mut frames: Vec<NativeFrame> = inlined
        .map(|inlined| frame(&inlined.name, inlined.code_info.as_ref(), None))
        .collect();
    let bytes = symbol.size.map(|size| size as u64);
    frames.push(frame(&symbol.name, symbol.code_info.as_deref(), bytes));
    // A function that is inlined into a copy of itself under the same name is one.
    frames.dedup_by(|later, first| later.function() == first.function());
    frames
}

/// Names are of files that anyone may have made.
fn bounded(text: &str) -> Arc<str> {
    Arc::from(&text[..text.floor_char_boundary(MAX_TEXT)])
}

impl Symbols for LiveSymbols {
    fn name(&mut self, pid: Pid, addr: RemoteAddr) -> NativeFrame {
        let known = self.names.get(&pid).and_then(|names| names.get(&addr));
        if let Some(known) = known {
            return known.clone();
        }
        if self.kept >= MAX_NAMES {
            self.names.clear();
            self.kept = 0;
        }
        // Debug information takes long to read, and a lone name is all that is wanted here.
        let found = self.of_process(pid, addr, Detail::Symbols).pop();
        let found = found.unwrap_or_else(|| unknown(addr, None, "not understood"));
        let names = self.names.entry(pid).or_default();
        names.insert(addr, found.clone());
        self.kept += 1;
        found
    }

    fn frames(&mut self, pid: Pid, addr: RemoteAddr, place: Option<&Place>) -> Arc<[NativeFrame]> {
        let image = place.and_then(|place| Some((place.image.as_ref()?, place.vaddr)));
        let Some((image, vaddr)) = image else {
            return self.remembered(Key::Process(pid, addr.0), |symbols| {
                symbols.of_process(pid, addr, symbols.detail)
            });
        };
        let id = Arc::as_ptr(image) as usize;
        let key = Key::Image(id, vaddr);
        if let Some(known) = self.frames.get(&key) {
            return Arc::clone(known);
        }
        let mut found = if image.is_vdso {
            self.of_vdso(image, vaddr, addr)
        } else {
            let of_file = self.of_image(image, vaddr, addr);
            of_file.unwrap_or_else(|| self.of_process(pid, addr, self.detail))
        };
        if let Some(own) = found.last_mut() {
            let is_piece = place.is_some_and(Place::is_piece);
            self.complete(image, vaddr, is_piece, own);
        }
        let found = self.remembered(key, |_| found);
        self.held.entry(id).or_insert_with(|| Arc::clone(image));
        found
    }
}

impl LiveSymbols {
    /// The evaluator's pieces have its name, and all of it is as long as all its pieces.
    fn complete(&mut self, image: &Arc<Image>, vaddr: u64, is_piece: bool, own: &mut NativeFrame) {
        let is_its = own
            .function()
            .is_some_and(|function| function.starts_with(EVALUATOR));
        let may_be_its = is_piece && own.function().is_none();
        if !is_its && !may_be_its {
            return;
        }
        let id = Arc::as_ptr(image) as usize;
        let find = || Evaluator::of(image);
        let evaluator = self.evaluators.entry(id).or_insert_with(find);
        self.held.entry(id).or_insert_with(|| Arc::clone(image));
        let Some(evaluator) = evaluator else { return };
        if may_be_its && evaluator.has(vaddr) {
            *own = NativeFrame::Known {
                function: EVALUATOR.into(),
                module: Some(Arc::clone(image.name())),
                file: None,
                line: None,
                bytes: Some(evaluator.bytes),
            };
        } else if is_its && let NativeFrame::Known { bytes, .. } = own {
            *bytes = Some(evaluator.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_this_program_has_its_name_and_a_wild_one_has_a_reason() {
        let mut symbols = LiveSymbols::default();
        let pid = Pid(std::process::id());
        let here = an_address_of_this_program_has_its_name_and_a_wild_one_has_a_reason as fn();
        let here = RemoteAddr(here as usize as u64);
        let NativeFrame::Known { function, .. } = symbols.name(pid, here) else {
            panic!("{:?}", symbols.name(pid, here));
        };
        assert!(
            function.contains("an_address_of_this_program"),
            "{function}"
        );
        assert_eq!(
            symbols.name(pid, RemoteAddr(8)),
            NativeFrame::Unknown {
                addr: RemoteAddr(8),
                module: None,
                reason: "not mapped any more"
            }
        );
    }

    #[test]
    fn with_debug_information_a_frame_has_its_file_and_line() {
        let mut symbols = LiveSymbols::new(Detail::Lines);
        let pid = Pid(std::process::id());
        let here = with_debug_information_a_frame_has_its_file_and_line as fn();
        let frames = symbols.frames(pid, RemoteAddr(here as usize as u64), None);
        let Some(NativeFrame::Known { file, line, .. }) = frames.last() else {
            panic!("{frames:?}");
        };
        let file = file.as_deref().unwrap_or_default();
        assert!(file.ends_with("native/names.rs"), "{frames:?}");
        assert!(line.is_some_and(|line| line > 300), "{frames:?}");
    }
}
