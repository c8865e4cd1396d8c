//! What is said about a run, on standard error: a line that starts with `vfscale: ` for each message.
//!
//! Names of files come into messages, and a name may hold a line break, or what makes a terminal do things. So control
//! characters are shown as what one would type for them, `\n` or `\u{1b}`. What the crates below log as a warning or an error becomes
//! a message as well.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write as _};

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

/// Prints a message. A closed standard error is no reason to stop.
pub(crate) fn say(message: &str) {
    let _ = writeln!(io::stderr(), "vfscale: {}", one_line(message));
}

/// Prints a message with a table below it.
pub(crate) fn say_above(message: &str, table: &impl fmt::Display) {
    let _ = writeln!(io::stderr(), "vfscale: {}\n{table}", one_line(message));
}

/// The text with its control characters escaped.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(text.len() + 8);
    for char in text.chars() {
        if char.is_control() {
            line.extend(char.escape_default());
        } else {
            line.push(char);
        }
    }
    Cow::Owned(line)
}

/// From now on, what is logged as a warning or an error is printed.
pub(crate) fn print_log() {
    // Fails only if somebody did so before, and then it is done.
    let _ = tracing::subscriber::set_global_default(log_to(io::stderr));
}

fn log_to(
    out: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
) -> impl Subscriber + Send + Sync {
    tracing_subscriber::fmt()
        .with_max_level(Level::WARN)
        .event_format(AsMessage)
        .with_writer(out)
        .finish()
}

struct AsMessage;

impl<S, N> FormatEvent<S, N> for AsMessage
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        context.format_fields(Writer::new(&mut text), event)?;
        writeln!(out, "vfscale: {}", one_line(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn control_characters_are_shown() {
        assert_eq!(one_line("plain \u{e4}"), "plain \u{e4}");
        assert_eq!(one_line("a\nb\t\x1b[31m\u{9b}\0"), "a\\nb\\t\\u{1b}[31m\\u{9b}\\u{0}");
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("not poisoned").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn warnings_are_messages_and_less_is_not_said() {
        let lines = Lines::default();
        let out = lines.clone();
        tracing::subscriber::with_default(log_to(move || out.clone()), || {
            tracing::warn!(node = 7, name = "a\nb", "refused");
            tracing::info!("started");
            tracing::error!("left mounted");
        });
        let said = String::from_utf8(lines.0.lock().expect("not poisoned").clone()).expect("text");
        assert_eq!(said, "vfscale: refused node=7 name=\"a\\nb\"\nvfscale: left mounted\n");
    }
}
