//! Memory that the kernel writes and we read: a map's values, mapped into this process.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

/// An array of `T` shared with the kernel.
///
/// `T` must be made of integers alone: what is read may be half old and half new, which no
/// integer minds. Whether it belongs together is the caller's to prove.
#[derive(Debug)]
pub struct SharedArray<T> {
    start: NonNull<T>,
    len: usize,
}

impl<T: Copy> SharedArray<T> {
    /// Map `len` values of the map behind `fd`.
    ///
    /// # Errors
    /// When the kernel refuses, or the values have no size.
    #[expect(unsafe_code, reason = "nix leaves mmap unsafe")]
    pub fn map(fd: impl AsFd, len: usize) -> io::Result<Self> {
        let bytes = len.checked_mul(size_of::<T>()).and_then(NonZeroUsize::new);
        let bytes = bytes.ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory of ours.
        let start = unsafe {
            mmap(
                None,
                bytes,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_SHARED,
                fd,
                0,
            )
        }?;
        let start = start.cast();
        Ok(Self { start, len })
    }

    /// A copy of the value at `index`; none past the end.
    #[must_use]
    #[expect(unsafe_code, reason = "the memory is the kernel's")]
    pub fn read(&self, index: usize) -> Option<T> {
        // SAFETY: within the mapping, page-aligned at its start; volatile, since the kernel
        // writes at any time.
        (index < self.len).then(|| unsafe { self.start.add(index).read_volatile() })
    }

    /// The 64-bit word `offset` bytes into the value at `index`; none where there is none.
    #[must_use]
    pub fn word(&self, index: usize, offset: usize) -> Option<u64> {
        let at = self.word_at(index, offset)?;
        #[expect(unsafe_code, reason = "the memory is the kernel's")]
        // SAFETY: `word_at` has checked place and alignment; volatile as in `read`.
        Some(unsafe { at.read_volatile() })
    }

    /// Write such a word; nothing past the end.
    pub fn set_word(&self, index: usize, offset: usize, word: u64) {
        if let Some(at) = self.word_at(index, offset) {
            #[expect(unsafe_code, reason = "the memory is the kernel's")]
            // SAFETY: as in `word`; the mapping may be written.
            unsafe {
                at.write_volatile(word);
            }
        }
    }

    #[expect(unsafe_code, reason = "pointer arithmetic within the mapping")]
    fn word_at(&self, index: usize, offset: usize) -> Option<NonNull<u64>> {
        let fits = index < self.len
            && offset.is_multiple_of(size_of::<u64>())
            && offset + size_of::<u64>() <= size_of::<T>()
            && size_of::<T>().is_multiple_of(size_of::<u64>());
        // SAFETY: within the mapping by the checks above.
        fits.then(|| unsafe { self.start.add(index).cast::<u8>().add(offset).cast() })
    }
}

impl<T> Drop for SharedArray<T> {
    #[expect(unsafe_code, reason = "nix leaves munmap unsafe")]
    fn drop(&mut self) {
        // SAFETY: the whole of a mapping that only we know.
        let _ = unsafe { munmap(self.start.cast(), self.len * size_of::<T>()) };
    }
}

// SAFETY: it is memory of the process like any other, and only ever accessed word by word.
#[expect(unsafe_code, reason = "a raw pointer is not Send by itself")]
unsafe impl<T: Send> Send for SharedArray<T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn what_lies_past_the_end_is_not_there() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&[1; 4096]).expect("a page");
        let array: SharedArray<[u64; 4]> = SharedArray::map(&file, 128).expect("a mapping");
        let ones = u64::from_ne_bytes([1; 8]);
        assert_eq!(array.read(127), Some([ones; 4]));
        assert_eq!(array.read(128), None);
        assert_eq!(array.word(127, 24), Some(ones));
        for (index, offset) in [(128, 0), (0, 32), (0, 4), (0, 28), (usize::MAX, 0)] {
            assert_eq!(array.word(index, offset), None, "{index} {offset}");
            array.set_word(index, offset, 7);
        }
        array.set_word(3, 8, 7);
        assert_eq!(array.read(3), Some([ones, 7, ones, ones]));
        assert!(SharedArray::<u64>::map(&file, 0).is_err());
    }
}
