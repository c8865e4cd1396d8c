//! The loop of a server thread: receive, answer, reply, keep.
//!
//! Any number of threads run it over one front end and one transport. A request is answered by the thread that received it.
//!
//! # Panics
//! A request whose code panics is answered with `EIO`; the thread and the session go on. What the request had been given goes
//! back on the way, as with any error. Locks are the core's, and it has none that a panic of a backend leaves locked.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use vfscale::{Errno, FileSystem};

use crate::crew::Crew;
use crate::dispatch::{self, Done, Rules};
use crate::front_end::FrontEnd;
use crate::transport::{Delivery, Transport};
use crate::wire::{REQUEST_BYTES, Reply, Request};

/// Serves until no more requests come.
pub(crate) fn run<F: FileSystem>(
    front: &FrontEnd<F>,
    rules: &Rules,
    transport: &dyn Transport,
    crew: &Crew,
) -> io::Result<()> {
    let mut message = vec![0; REQUEST_BYTES];
    let mut reply = Reply::new();
    let mut result = Ok(());
    while crew.enter() {
        let received = transport.receive(&mut message);
        crew.leave();
        match received {
            Ok(Some(len)) => match Request::parse(&message[..len]) {
                Some(request) => serve_one(front, rules, transport, &request, &mut reply),
                None => tracing::error!(len, "not a request; nobody to answer"),
            },
            Ok(None) => break,
            Err(error) => {
                result = Err(error);
                break;
            }
        }
    }
    crew.end();
    result
}

fn serve_one<F: FileSystem>(
    front: &FrontEnd<F>,
    rules: &Rules,
    transport: &dyn Transport,
    request: &Request<'_>,
    reply: &mut Reply,
) {
    front.count_request();
    reply.clear();
    // The front end is shared with other threads as it is, and the reply is cleared on error: no broken state is seen later.
    let answer = catch_unwind(AssertUnwindSafe(|| dispatch::answer(front, rules, request, reply)));
    let answer = answer.unwrap_or_else(|panic| {
        let opcode = request.opcode;
        tracing::error!(opcode, node = request.node, panic = text(&*panic), "a request panicked");
        Err(Errno::EIO)
    });
    match answer {
        Ok(Done::Silent) => {}
        Ok(done) => {
            // No lock of ours is held here. A refused reply drops `done`, and with it what was given.
            if transport.reply(reply.finish(request.unique, None)) == Delivery::Taken {
                done.keep();
            }
        }
        Err(error) => {
            // Gave nothing; delivered or not, it is over.
            let _ = transport.reply(reply.finish(request.unique, Some(error)));
        }
    }
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let literal = panic.downcast_ref::<&str>().copied();
    literal.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
