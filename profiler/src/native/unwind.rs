//! From registers and a copy of the stack to the addresses of the frames on it, leaf first.
//!
//! framehop follows the unwind information. Whatever it follows is believed only if it leads up the
//! stack and to code that is mapped; where there is none, the frame pointer is tried, under the
//! same proof. Everything is bounded: the stack's bytes are the target's.

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{Error, ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder as _};
use rustc_hash::FxHashMap;

use std::fmt;
use std::sync::Arc;

use super::end::{Found, UnwindEnd};
use super::image::{Cover, Image, Images};
use super::modules::{Met, Modules, Place, Target};
use super::prologue::{self, Return};
use super::registers::{Registers, StackCopy};
use crate::words::RemoteAddr;

/// Most frames of a chain: a thousand Python functions that called one another through C are some
/// eight thousand.
pub const MAX_FRAMES: usize = 1 << 14;
/// Most addresses of which it is remembered what they are.
const MAX_REMEMBERED: usize = 1 << 16;
/// Stands in framehop's registers for a frame pointer that is not known: nothing can be read
/// there. (0 would mean the end of the stack to it.)
const UNKNOWN: u64 = 1;

/// Where no stack is: the first page, and the kernel's half.
const LOWEST_STACK: u64 = 4096;
const HIGHEST_STACK: u64 = 1 << 62;
/// `rbp`, as unwind information numbers it.
const X86_64_RBP: u16 = 6;

/// A frame of a native chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NativeIp {
    /// The address to look up: the instruction of the leaf, the last byte of the call of its
    /// callers.
    pub addr: RemoteAddr,
    /// Where its part of the stack begins: up to the next frame's, what lies there is its own.
    pub sp: RemoteAddr,
    /// By what it was found.
    pub found: Found,
}

/// Unwinds the threads of one process.
pub struct Unwinder {
    modules: Modules,
    hop: UnwinderX86_64<Arc<[u8]>>,
    rules: CacheX86_64,
    /// What the unwind information knows of the code at an address.
    known: FxHashMap<u64, Cover>,
    /// What code without any does behind a call.
    returns: FxHashMap<u64, Option<Return>>,
}

impl fmt::Debug for Unwinder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unwinder")
            .field("modules", &self.modules)
            .field("known", &self.known.len())
            .finish_non_exhaustive()
    }
}

impl Unwinder {
    /// One that knows nothing of its process yet.
    #[must_use]
    pub fn new(images: Images) -> Self {
        Self {
            modules: Modules::new(images),
            hop: UnwinderX86_64::new(),
            rules: CacheX86_64::new(),
            known: FxHashMap::default(),
            returns: FxHashMap::default(),
        }
    }

    /// The frames from these registers on, leaf first, at most [`MAX_FRAMES`]; `out` is emptied
    /// before. The leaf's address is there whatever comes after.
    pub fn unwind(
        &mut self,
        target: &Target<'_>,
        registers: Registers,
        stack: StackCopy<'_>,
        out: &mut Vec<NativeIp>,
    ) -> UnwindEnd {
        out.clear();
        if self.modules.is_stale(target.now) {
            self.refresh(target);
        }
        let bp = match registers.bp.0 {
            0 => UNKNOWN,
            bp => bp,
        };
        let mut regs = UnwindRegsX86_64::new(registers.ip.0, registers.sp.0, bp);
        let mut at = FrameAddress::from_instruction_pointer(registers.ip.0);
        let mut found = Found::Registers;
        loop {
            let addr = RemoteAddr(at.address_for_lookup());
            let sp = RemoteAddr(regs.sp());
            if out.len() >= MAX_FRAMES {
                return UnwindEnd::TooManyFrames;
            }
            // That of a caller is proven to be code; of the leaf, this is all that is known.
            out.push(NativeIp { addr, sp, found });
            let Some(cover) = self.code(target, addr) else {
                return UnwindEnd::NotMapped(addr);
            };
            match self.step(target, cover, at, &mut regs, stack) {
                Ok((caller, by)) => (at, found) = (caller, by),
                Err(end) => return end,
            }
        }
    }

    /// One frame up: by the unwind information, else by the frame pointer.
    fn step(
        &mut self,
        target: &Target<'_>,
        cover: Cover,
        at: FrameAddress,
        regs: &mut UnwindRegsX86_64,
        stack: StackCopy<'_>,
    ) -> Result<(FrameAddress, Found), UnwindEnd> {
        let before = *regs;
        let addr = RemoteAddr(at.address_for_lookup());
        let end = match cover {
            Cover::Nothing => UnwindEnd::NoUnwindInfo(addr),
            // framehop reckons around the stack pointer; no stack is at either end of memory.
            _ if !(LOWEST_STACK..HIGHEST_STACK).contains(&before.sp()) => UnwindEnd::Damaged(addr),
            Cover::Function | Cover::Piece => {
                let mut read = |addr| stack.word(addr).ok_or(());
                let hopped = self.hop.unwind_frame(at, regs, &mut self.rules, &mut read);
                match hopped {
                    Ok(None) => return Err(UnwindEnd::Root),
                    Ok(Some(caller)) => match self.proven(target, &before, regs, caller) {
                        Ok(caller) => return Ok((caller, Found::UnwindInfo)),
                        Err(end) => end,
                    },
                    Err(Error::ReturnAddressIsNull) => return Err(UnwindEnd::Root),
                    Err(Error::CouldNotReadStack(wanted)) if wanted >= before.sp() => {
                        // A word that is only half there is not there.
                        return Err(if wanted.saturating_add(8) > stack.end() {
                            UnwindEnd::StackCopyEnded
                        } else {
                            UnwindEnd::Damaged(addr)
                        });
                    }
                    Err(_) if before.bp() == UNKNOWN => UnwindEnd::UnknownRegister(addr),
                    Err(_) => UnwindEnd::Damaged(addr),
                }
            }
        };
        *regs = before;
        if matches!(end, UnwindEnd::UnknownRegister(_)) {
            self.find_frame_pointer(target, addr, regs, stack);
        }
        if cover == Cover::Nothing
            && let Some(caller) = self.by_instructions(target, at, regs, stack)
        {
            return Ok((caller, Found::Instructions));
        }
        match self.by_frame_pointer(target, regs, stack) {
            Some(caller) => Ok((caller, Found::FramePointer)),
            None => Err(end),
        }
    }

    /// Whether a step led up the stack and to code.
    fn proven(
        &mut self,
        target: &Target<'_>,
        before: &UnwindRegsX86_64,
        after: &UnwindRegsX86_64,
        caller: u64,
    ) -> Result<FrameAddress, UnwindEnd> {
        let damaged = UnwindEnd::Damaged(RemoteAddr(before.ip()));
        if after.sp() <= before.sp() {
            return Err(damaged);
        }
        let caller = FrameAddress::from_return_address(caller).ok_or(damaged)?;
        let addr = RemoteAddr(caller.address_for_lookup());
        match self.code(target, addr) {
            None => Err(UnwindEnd::NotMapped(addr)),
            Some(_) => Ok(caller),
        }
    }

    /// Code of no file that returns right behind its call.
    fn by_instructions(
        &mut self,
        target: &Target<'_>,
        at: FrameAddress,
        regs: &mut UnwindRegsX86_64,
        stack: StackCopy<'_>,
    ) -> Option<FrameAddress> {
        let FrameAddress::ReturnAddress(back) = at else {
            return None;
        };
        let read = || {
            let mut behind = [0; 8];
            let read = target.memory.read(RemoteAddr(back.get()), &mut behind);
            read.ok().and_then(|()| Return::of(behind))
        };
        let known = self.returns.entry(back.get()).or_insert_with(read);
        let Return { address, pops_bp } = (*known)?;
        let place = regs.sp().checked_add(address)?;
        let caller = stack.word(place)?;
        let mut after = *regs;
        if pops_bp {
            after.set_bp(stack.word(regs.sp())?);
        }
        after.set_sp(place.checked_add(8)?);
        after.set_ip(caller);
        let caller = self.proven(target, regs, &after, caller).ok()?;
        *regs = after;
        Some(caller)
    }

    fn by_frame_pointer(
        &mut self,
        target: &Target<'_>,
        regs: &mut UnwindRegsX86_64,
        stack: StackCopy<'_>,
    ) -> Option<FrameAddress> {
        let bp = regs.bp();
        let is_aligned = bp.is_multiple_of(8);
        if !is_aligned || bp < regs.sp() {
            return None;
        }
        let (next, caller) = (stack.word(bp)?, stack.word(bp.checked_add(8)?)?);
        let mut after = *regs;
        after.set_bp(if next == 0 { UNKNOWN } else { next });
        after.set_sp(bp.checked_add(16)?);
        after.set_ip(caller);
        let caller = self.proven(target, regs, &after, caller).ok()?;
        *regs = after;
        Some(caller)
    }

    /// The frame pointer of a function that keeps one, where only one place proves itself: it
    /// holds a caller's that is further up, and above it is where a call comes back to.
    fn find_frame_pointer(
        &mut self,
        target: &Target<'_>,
        addr: RemoteAddr,
        regs: &mut UnwindRegsX86_64,
        stack: StackCopy<'_>,
    ) {
        let Some(ends) = self.frame_ends(target, addr) else {
            return;
        };
        let proves = |bytes: &u64| {
            let bp = regs.sp().checked_add(bytes.checked_sub(16)?)?;
            let (next, caller) = (stack.word(bp)?, stack.word(bp.checked_add(8)?)?);
            let mut before = [0; 8];
            let from = RemoteAddr(caller.checked_sub(8)?);
            let leads_up = next > bp && next < stack.end() && next.is_multiple_of(8);
            let is_call = leads_up
                && target.memory.read(from, &mut before).is_ok()
                && prologue::follows_call(before);
            is_call.then_some(bp)
        };
        let mut places = ends.iter().filter_map(proves);
        if let (Some(bp), None) = (places.next(), places.next()) {
            regs.set_bp(bp);
        }
    }

    fn frame_ends(&self, target: &Target<'_>, addr: RemoteAddr) -> Option<Vec<u64>> {
        let place = self.place(addr)?;
        let image = place.image?;
        if image.frame_form(place.vaddr)? != (X86_64_RBP, 16) {
            return None;
        }
        let into = place
            .vaddr
            .checked_sub(image.span(place.vaddr)?.range.start)?;
        let mut code = vec![0; prologue::BEGINNING.min(usize::try_from(into).ok()?)];
        let start = RemoteAddr(addr.0.checked_sub(into)?);
        target.memory.read(start, &mut code).ok()?;
        Some(prologue::ends(&code, image.lowest_saved(place.vaddr)?))
    }

    /// What is known of the code at an address; none when it is no code.
    fn code(&mut self, target: &Target<'_>, addr: RemoteAddr) -> Option<Cover> {
        if let Some(known) = self.known.get(&addr.0) {
            return Some(*known);
        }
        let (met, changed) = self.modules.meet(target, addr);
        if changed {
            self.rebuild();
        }
        // That there is none is not remembered: the next look may find a mapping.
        let Met::Area(index) = met else {
            return None;
        };
        let loaded = self.modules.area(index).and_then(|area| area.loaded());
        let cover = loaded.map_or(Cover::Nothing, |(image, bias)| {
            image.cover(addr.0.wrapping_sub(bias))
        });
        if self.known.len() >= MAX_REMEMBERED {
            self.known.clear();
            self.returns.clear();
        }
        self.known.insert(addr.0, cover);
        Some(cover)
    }

    /// Read the mappings again, for what was unmapped or replaced since.
    pub fn refresh(&mut self, target: &Target<'_>) {
        if self.modules.refresh(target) {
            self.rebuild();
        }
    }

    fn rebuild(&mut self) {
        self.known.clear();
        self.returns.clear();
        self.hop = UnwinderX86_64::new();
        for area in self.modules.areas() {
            if let Some((image, bias)) = area.loaded() {
                let range = area.start..area.end;
                self.hop
                    .add_module(Module::new(String::new(), range, bias, sections_of(image)));
            }
        }
    }

    /// What is at an address, as far as a chain has led there; asks the process nothing, and so
    /// also answers when that is over.
    #[must_use]
    pub fn place(&self, addr: RemoteAddr) -> Option<Place> {
        self.modules.place(addr, self.known.get(&addr.0).copied())
    }

    /// The same of an address that no chain has led to yet.
    pub fn meet(&mut self, target: &Target<'_>, addr: RemoteAddr) -> Option<Place> {
        self.code(target, addr);
        self.place(addr)
    }
}

fn sections_of(image: &Image) -> ExplicitModuleSectionInfo<Arc<[u8]>> {
    let Some(sections) = &image.unwind else {
        return ExplicitModuleSectionInfo::default();
    };
    let range = |vaddr: u64, bytes: &[u8]| Some(vaddr..vaddr.saturating_add(bytes.len() as u64));
    ExplicitModuleSectionInfo {
        eh_frame_svma: range(sections.frames.vaddr, &sections.frames.bytes),
        eh_frame: Some(Arc::clone(&sections.frames.bytes)),
        eh_frame_hdr_svma: range(sections.table.vaddr, &sections.table.bytes),
        eh_frame_hdr: Some(Arc::clone(&sections.table.bytes)),
        ..ExplicitModuleSectionInfo::default()
    }
}

#[cfg(test)]
mod tests;
