//! Records of a replay as lines of EVE JSON: each is written when it is its turn, and none is lost.

use std::io::{BufWriter, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sluice_config::api;
use sluice_config::config::EveTarget;
use sluice_config::schema::{self, EveType};
use sluice_engine::control::plane::ControlPlane;
use sluice_engine::worker::request::Filter;

use super::records::Told;
use super::world::World;
use crate::alerts::shown;
use crate::api::inspection::statistics;
use crate::eve::{self, Scene, Statistics};
use crate::files::{self, Log};
use crate::known::KnownRules;

/// Records can't be written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}: records of inspection are to be written there", path.display())]
pub struct EveError {
    path: PathBuf,
    error: std::io::Error,
}

/// Where lines go.
enum Sink {
    /// To a file that the daemon would write, too.
    File(Log),
    /// To a file or a stream.
    Lines(Box<dyn Write>),
    /// Each in a datagram.
    Datagrams(UnixDatagram),
}

/// The lines of a replay.
pub struct Lines {
    path: PathBuf,
    sink: Sink,
    types: Vec<EveType>,
    /// Nanoseconds between statistics.
    every: u64,
    /// When they are written next.
    next: u64,
    written: u64,
}

impl Lines {
    /// To where a configuration says: a file that is there already is appended to, as the daemon does.
    ///
    /// # Errors
    /// A file that can't be opened, a socket that nobody listens at.
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

    /// To a file that is made anew.
    ///
    /// # Errors
    /// It can't be made.
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
            // A datagram has an end of its own.
            Sink::Datagrams(socket) => socket.send(line.trim_ascii_end()).map(|_| ()),
        };
        self.written += 1;
        written.map_err(|error| EveError {
            path: self.path.clone(),
            error,
        })
    }

    /// Write what was told.
    ///
    /// # Errors
    /// It can't be written.
    pub fn tell(&mut self, scene: &Scene<'_>, known: &KnownRules, told: &[Told]) -> Result<(), EveError> {
        for told in told {
            let line = match told {
                Told::Alert(alert) if self.types.contains(&EveType::Alert) => {
                    shown(alert, known, scene).map(|shown| eve::alert_line(scene, alert, &shown))
                }
                Told::Alert(_) => None,
                Told::Record(record) => eve::record_line(scene, known, record),
            };
            if let Some(line) = line {
                self.write(&line)?;
            }
        }
        Ok(())
    }

    /// Write how inspection goes, where it is time to, or anyway at the end.
    ///
    /// # Errors
    /// It can't be written.
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

    /// Bring everything to the file. Returns how many lines there are.
    ///
    /// # Errors
    /// It can't be written.
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

/// Takes an alert in words, and what makes its line of EVE JSON.
pub type Each<'e> = dyn FnMut(&api::Alert, &dyn Fn() -> Vec<u8>) + 'e;

/// What it takes to put what a world tells into words, and to write it.
pub struct Journal {
    /// Where it is written; none where it is not.
    lines: Option<Lines>,
    known: KnownRules,
    names: Vec<String>,
    started: SystemTime,
}

impl Journal {
    /// The lines of a world whose clock began with the first frame of its captures.
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

    /// Call all interfaces by one name.
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

    /// Write what a world has told since the last call, and how inspection goes where it is time to, or at the end. Returns what
    /// was told.
    ///
    /// # Errors
    /// It can't be written.
    pub fn tell(&mut self, world: &mut World<'_>, ends: bool) -> Result<Vec<Told>, EveError> {
        let told = world.told();
        let Some(mut lines) = self.lines.take() else {
            return Ok(told);
        };
        let (plane, scene) = (world.plane(), self.scene(world.plane()));
        lines.tell(&scene, &self.known, &told)?;
        let count = |uptime, counts| statistics(plane.counters(), uptime, counts);
        lines.statistics(&scene, world.now(), ends, count)?;
        self.lines = Some(lines);
        Ok(told)
    }

    /// The alerts among what was told, in words, with the line of EVE JSON of each for who wants it.
    pub fn alerts(&self, plane: &ControlPlane, told: &[Told], each: &mut Each<'_>) {
        let scene = self.scene(plane);
        for told in told {
            if let Told::Alert(alert) = told
                && let Some(shown) = shown(alert, &self.known, &scene)
            {
                each(&shown, &|| eve::alert_line(&scene, alert, &shown));
            }
        }
    }

    /// End every flow, whose last records are written, and bring everything to the file. Returns the number of lines.
    ///
    /// # Errors
    /// It can't be written.
    pub fn finish(mut self, world: &mut World<'_>) -> Result<u64, EveError> {
        world.end_sessions(&Filter::default());
        self.tell(world, true)?;
        self.lines.map_or(Ok(0), Lines::finish)
    }
}
