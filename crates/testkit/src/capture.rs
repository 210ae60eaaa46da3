//! Writes a capture file with the frames of a failed test.

use std::path::PathBuf;
use std::time::Duration;

use pcap_file::PcapError;
use pcap_file::pcap::{PcapPacket, PcapWriter};

/// Frames of a test, written to a file when the test fails.
#[derive(Debug)]
pub struct Capture {
    name: String,
    frames: Vec<(Duration, Vec<u8>)>,
}

/// The directory for captures of failed tests: `test-captures` in the target directory.
pub fn folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target
        .unwrap_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target")))
        .join("test-captures")
}

/// Record `frames`, and write them to `<name>.pcap` if the test panics while the returned value is alive.
#[must_use = "nothing is written once the value is dropped"]
pub fn on_failure<F: AsRef<[u8]>>(name: &str, frames: impl IntoIterator<Item = F>) -> Capture {
    let mut capture = Capture {
        name: name.to_owned(),
        frames: Vec::new(),
    };
    frames
        .into_iter()
        .for_each(|frame| capture.record(Duration::ZERO, frame.as_ref()));
    capture
}

impl Capture {
    /// Record a further frame.
    pub fn record(&mut self, at: Duration, frame: &[u8]) {
        self.frames.push((at, frame.to_vec()));
    }

    /// Write the file now. Returns the file's path.
    pub fn write(&self) -> Result<PathBuf, PcapError> {
        let folder = folder();
        std::fs::create_dir_all(&folder).map_err(PcapError::IoError)?;
        let path = folder.join(format!("{}.pcap", self.name));
        let mut writer = PcapWriter::new(std::io::BufWriter::new(
            std::fs::File::create(&path).map_err(PcapError::IoError)?,
        ))?;
        for (at, frame) in &self.frames {
            writer.write_packet(&PcapPacket::new(*at, frame.len() as u32, frame))?;
        }
        Ok(path)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if std::thread::panicking() {
            match self.write() {
                Ok(path) => eprintln!("what the test saw: {}", path.display()),
                Err(error) => eprintln!("no capture of what the test saw: {error}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capture_of_a_failed_test_is_written_and_read_back() {
        let failed = std::panic::catch_unwind(|| {
            let _capture = on_failure("capture-self-test", [[1u8; 60], [2; 60]]);
            std::panic::resume_unwind(Box::new("a failure"));
        });
        assert!(failed.is_err());
        let path = folder().join("capture-self-test.pcap");
        let mut reader = pcap_file::pcap::PcapReader::new(std::fs::File::open(&path).unwrap()).unwrap();
        assert_eq!([1; 60], *reader.next_packet().unwrap().unwrap().data);
        assert_eq!([2; 60], *reader.next_packet().unwrap().unwrap().data);
        assert!(reader.next_packet().is_none());
        std::fs::remove_file(path).unwrap();
    }
}
