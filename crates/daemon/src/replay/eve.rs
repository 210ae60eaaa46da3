//! Writes the records of a replay as lines of EVE JSON. Records are written synchronously, so that no record is lost.

use std::io::{BufWriter, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sluice_config::api;
use sluice_config::config::EveTarget;
use sluice_config::schema::{self, EveType};
use sluice_engine::control::plane::ControlPlane;
use sluice_engine::worker::request::Filter;

use super::records::EveEvent;
use super::world::World;
use crate::alerts::shown;
use crate::api::inspection::statistics;
use crate::eve::{self, Scene, Statistics};
use crate::files::{self, Log};
use crate::known::KnownRules;

/// Records can't be written.
#[derive(Debug, thiserror::Error)]
#[error("inspection records can't be written to {}: {error}", path.display())]
pub struct EveError {
    path: PathBuf,
    error: std::io::Error,
}

/// Target to which the lines are written.
enum Sink {
    /// A file to which the daemon may also append lines.
    File(Log),
    /// A newly created file, or a stream.
    Lines(Box<dyn Write>),
    /// A socket that receives one datagram per line.
    Datagrams(UnixDatagram),
}

/// Writer of the lines of a replay.
pub struct Lines {
    path: PathBuf,
    sink: Sink,
    types: Vec<EveType>,
    /// Interval between statistics in nanoseconds.
    every: u64,
    /// Time at which the next statistics are written.
    next: u64,
    written: u64,
}

impl Lines {
    /// Write to the configured target. If the target is an existing file, lines are appended, as the daemon does.
    ///
    /// # Errors
    /// The file can't be opened, or no process listens at the socket.
    pub fn configured(target: &EveTarget, written: &schema::Eve) -> Result<Self, EveError> {
        let (EveTarget::File(path) | EveTarget::Stream(path) | EveTarget::Datagram(path)) = target;
        let sink = match target {
            EveTarget::File(path) => Log::open(path, eve::rotation(written)).map(Sink::File),
            EveTarget::Stream(path) => {
                UnixStream::connect(path).map(|stream| Sink::Lines(Box::new(BufWriter::new(stream))))
            }
            EveTarget::Datagram(path) => UnixDatagram::unbound()
                .and_then(|socket| socket.connect(path).map(|()| socket))
                .map(Sink::Datagrams),
        };
        Self::to(sink, path, written)
    }

    /// Write to a new or truncated file.
    ///
    /// # Errors
    /// The file can't be created.
    pub fn create(path: &Path, written: &schema::Eve) -> Result<Self, EveError> {
        let file = files::output(path).map(|file| Sink::Lines(Box::new(BufWriter::new(file))));
        Self::to(file, path, written)
    }

    fn to(sink: std::io::Result<Sink>, path: &Path, written: &schema::Eve) -> Result<Self, EveError> {
        let path = path.to_owned();
        match sink {
            Err(error) => Err(EveError { path, error }),
            Ok(sink) => Ok(Self {
                path,
                sink,
                types: written.types.clone(),
                every: written.stats_interval.duration().as_nanos() as u64,
                next: 0,
                written: 0,
            }),
        }
    }

    fn write(&mut self, line: &[u8]) -> Result<(), EveError> {
        let written = match &mut self.sink {
            Sink::File(file) => file.write_line(line),
            Sink::Lines(lines) => lines.write_all(line),
            // Each datagram contains one line, so the line feed is omitted.
            Sink::Datagrams(socket) => socket.send(line.trim_ascii_end()).map(|_| ()),
        };
        self.written += 1;
        written.map_err(|error| EveError {
            path: self.path.clone(),
            error,
        })
    }

    /// Write alerts and records.
    ///
    /// # Errors
    /// A line can't be written.
    pub fn write_events(
        &mut self,
        scene: &Scene<'_>,
        known: &KnownRules,
        recorded: &[EveEvent],
    ) -> Result<(), EveError> {
        for recorded in recorded {
            let line = match recorded {
                EveEvent::Alert(alert) if self.types.contains(&EveType::Alert) => {
                    shown(alert, known, scene).map(|shown| eve::alert_line(scene, alert, &shown))
                }
                EveEvent::Alert(_) => None,
                EveEvent::Record(record) => eve::record_line(scene, known, record),
            };
            if let Some(line) = line {
                self.write(&line)?;
            }
        }
        Ok(())
    }

    /// Write the inspection statistics if the statistics interval has passed. At the end, write the statistics in any
    /// case.
    ///
    /// # Errors
    /// A line can't be written.
    pub fn statistics(
        &mut self,
        scene: &Scene<'_>,
        now: u64,
        ends: bool,
        count: impl FnOnce(Duration, [u64; 2]) -> Statistics,
    ) -> Result<(), EveError> {
        if !self.types.contains(&EveType::Stats) || (now < self.next && !ends) {
            return Ok(());
        }
        self.next = now + self.every;
        let counted = count(Duration::from_nanos(now), [self.written, 0]);
        self.write(&scene.statistics(now, counted))
    }

    /// Flush all lines. Returns the number of lines.
    ///
    /// # Errors
    /// The lines can't be written.
    pub fn finish(mut self) -> Result<u64, EveError> {
        let flushed = match &mut self.sink {
            Sink::Lines(lines) => lines.flush(),
            Sink::File(_) | Sink::Datagrams(_) => Ok(()),
        };
        match flushed {
            Ok(()) => Ok(self.written),
            Err(error) => Err(EveError { path: self.path, error }),
        }
    }
}

/// Callback that receives an alert in the form of the API. The second argument is a function that creates the EVE JSON
/// line of the alert.
pub type Each<'e> = dyn FnMut(&api::Alert, &dyn Fn() -> Vec<u8>) + 'e;

/// Converts the alerts and records of a replay and writes them.
pub struct Journal {
    /// Writer of the lines; `None` if nothing is written.
    lines: Option<Lines>,
    known: KnownRules,
    names: Vec<String>,
    started: SystemTime,
}

impl Journal {
    /// Create the journal of a replay. The clock of the replay starts with the first captured frame.
    pub fn new(lines: Option<Lines>, world: &World<'_>, start: Duration) -> Self {
        let policy = world.plane().snapshot();
        let mut known = KnownRules::default();
        if let Some(inspection) = &policy.inspection {
            known.learn(policy.inspected, &inspection.rules);
        }
        Self {
            lines,
            known,
            names: policy.interfaces.iter().map(|on| on.name.clone()).collect(),
            started: SystemTime::UNIX_EPOCH + start,
        }
    }

    /// Use the same name for all interfaces.
    pub fn rename(&mut self, name: &str) {
        self.names.fill(name.to_owned());
    }

    fn scene<'s>(&'s self, plane: &'s ControlPlane) -> Scene<'s> {
        let seeking = plane.snapshot().applications.as_deref();
        Scene {
            interfaces: &self.names,
            started: self.started,
            applications: seeking.map(|seeking| &*seeking.names),
        }
    }

    /// Write the alerts and records that were collected since the last call, and return them. The statistics are also
    /// written if the statistics interval has passed or `ends` is true.
    ///
    /// # Errors
    /// A line can't be written.
    pub fn write_events(&mut self, world: &mut World<'_>, ends: bool) -> Result<Vec<EveEvent>, EveError> {
        let recorded = world.recorded();
        let Some(mut lines) = self.lines.take() else {
            return Ok(recorded);
        };
        let (plane, scene) = (world.plane(), self.scene(world.plane()));
        lines.write_events(&scene, &self.known, &recorded)?;
        let count = |uptime, counts| statistics(plane.counters(), uptime, counts);
        lines.statistics(&scene, world.now(), ends, count)?;
        self.lines = Some(lines);
        Ok(recorded)
    }

    /// Pass each alert to `each`, with a function that creates the EVE JSON line of the alert.
    pub fn alerts(&self, plane: &ControlPlane, recorded: &[EveEvent], each: &mut Each<'_>) {
        let scene = self.scene(plane);
        for recorded in recorded {
            if let EveEvent::Alert(alert) = recorded
                && let Some(shown) = shown(alert, &self.known, &scene)
            {
                each(&shown, &|| eve::alert_line(&scene, alert, &shown));
            }
        }
    }

    /// End all flows, write their last records, and flush all lines. Returns the number of lines.
    ///
    /// # Errors
    /// The lines can't be written.
    pub fn finish(mut self, world: &mut World<'_>) -> Result<u64, EveError> {
        world.end_sessions(&Filter::default());
        self.write_events(world, true)?;
        self.lines.map_or(Ok(0), Lines::finish)
    }
}
