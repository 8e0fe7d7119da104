//! The ring: records as bytes, copied out in batches.

use std::os::fd::{AsRawFd as _, RawFd};

use aya::maps::{MapData, RingBuf};
use bytes::{Bytes, BytesMut};
use tokio::io::{Interest, unix::AsyncFd};

/// A file descriptor owned by the ring, lent to the reactor.
#[derive(Debug)]
struct Fd(RawFd);

impl std::os::fd::AsRawFd for Fd {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

/// The consumer's end of the ring.
pub struct Ring {
    ready: AsyncFd<Fd>,
    ring: RingBuf<MapData>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("ready", &self.ready)
            .finish_non_exhaustive()
    }
}

impl Ring {
    /// Register with the reactor of the current runtime.
    ///
    /// # Errors
    /// When the reactor refuses the descriptor.
    pub fn new(ring: RingBuf<MapData>) -> std::io::Result<Self> {
        #[expect(
            deprecated,
            reason = "what replaces it is unsafe; the ring owns the descriptor and outlives its registration"
        )]
        let ready = AsyncFd::with_interest(Fd(ring.as_raw_fd()), Interest::READABLE)?;
        Ok(Self { ready, ring })
    }

    /// Wait until the kernel says that enough is there to be worth a visit.
    ///
    /// # Errors
    /// When the reactor fails.
    pub async fn readable(&self) -> std::io::Result<()> {
        self.ready.readable().await?.clear_ready();
        Ok(())
    }

    /// Append the records that are there now to `records`, at most `most` of them.
    ///
    /// A batch shares one buffer; it lives as long as its last record.
    pub fn drain(&mut self, records: &mut Vec<Bytes>, most: usize) {
        let mut buffer = BytesMut::with_capacity(64 * 1024);
        for _ in 0..most {
            let Some(item) = self.ring.next() else { return };
            buffer.extend_from_slice(&item);
            records.push(buffer.split().freeze());
        }
    }
}
