//! The log: lines on standard error, written by control threads only.

use std::io::{self, Write};

use sluice_config::schema::LogLevel;
use sluice_config::text::escaped;
use tracing::Level;
use tracing_subscriber::fmt::MakeWriter;

/// Start logging. Further calls have no effect.
pub fn start(level: LogLevel) {
    let level = match level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Trace => Level::TRACE,
    };
    let _ = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(Lines(io::stderr))
        .with_target(false)
        .try_init();
}

/// Formatter that writes each event on a single line, even if texts from peers or files contain line breaks.
struct Lines<M>(M);

impl<'a, W: Write, M: Fn() -> W + 'a> MakeWriter<'a> for Lines<M> {
    type Writer = Line<W>;

    fn make_writer(&'a self) -> Self::Writer {
        Line(self.0())
    }
}

/// Writer of one event. The event is written immediately.
struct Line<W>(W);

impl<W: Write> Write for Line<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = escaped(text.strip_suffix('\n').unwrap_or(&text));
        self.0.write_all(format!("{line}\n").as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn event_is_one_line_whatever_it_quotes() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(Lines(move || writer.clone()))
            .without_time()
            .with_target(false)
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(name = "x\ny", "a\u{1b}[2J\nb\u{9b}\u{202e}{}", "\u{7f}c");
        });
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let line = text.strip_suffix('\n').unwrap();
        assert!(!line.chars().any(sluice_config::text::is_hidden), "{line:?}");
        // The tracing subscriber itself also escapes some characters, in a different notation.
        assert!(line.contains("\\u000ab") && line.contains("\\u202e"), "{line:?}");
    }
}
