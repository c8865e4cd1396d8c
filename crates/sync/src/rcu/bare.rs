//! Read-copy-update where nobody knows when a thread begins or ends: readers register with a [`Domain`].
//!
//! With `std` there is a domain of the process beside it, whose readers do not register.

#[allow(dead_code, unreachable_pub, reason = "the process's domain and the models use all of it")]
mod domain;
mod explicit;

pub use explicit::{Domain, DomainCell, Registration, Section};
