//! The one seam between the server and whatever carries requests to it.
//!
//! A transport moves whole messages of the FUSE protocol and knows nothing of what is in them. The server is written against the
//! trait, so its tests run over a queue in memory, and another carrier (rings shared with the kernel, a virtual machine's queue)
//! replaces one file.

use std::io;

/// What became of a reply.
#[must_use = "what the reply gave the client has to be taken back if it was refused"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The client has it.
    Taken,
    /// The client does not have it: its request is over, or the connection is.
    Refused,
}

/// Carries requests to the server and replies back. All threads of a server share one.
pub(crate) trait Transport: Send + Sync {
    /// Waits for a request and puts it, whole, at the front of `buf`. `None` when no more will come.
    ///
    /// # Errors
    /// Those that no later call would get over.
    fn receive(&self, buf: &mut [u8]) -> io::Result<Option<usize>>;

    /// Hands over one whole reply.
    fn reply(&self, message: &[u8]) -> Delivery;
}
