//! TCP-MD5 keys (RFC 2385) of FPM peers.

use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use sluice_config::{Config, Fault};
use sluice_dpdk::tcp_md5::{MAX_KEY, sign};

/// Mode bits that give access to users other than the owner.
const OTHERS: u32 = 0o077;

/// Why a key can't be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The key file can't be read.
    #[error("the TCP-MD5 key {} can't be read: {error}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the kernel.
        error: io::Error,
    },
    /// The key file is accessible to other users.
    #[error("the file of the TCP-MD5 key {} is accessible to users other than its owner (mode {mode:o})",
         path.display())]
    Mode {
        /// Path of the file.
        path: PathBuf,
        /// Mode of the file.
        mode: u32,
    },
    /// The file does not contain a valid key.
    #[error("the key file {} must contain a single line of 1 to {MAX_KEY} bytes", .0.display())]
    NoKey(PathBuf),
    /// The kernel rejects the key.
    #[error("the kernel refuses the TCP-MD5 key for {peer}: {error}")]
    Kernel {
        /// Address of the peer.
        peer: IpAddr,
        /// Error of the kernel.
        error: io::Error,
    },
}

impl KeyError {
    fn hint(&self) -> String {
        match self {
            Self::File { .. } => "write the path of a file that this process may read".into(),
            Self::Mode { path, .. } => format!("chmod 600 {}", path.display()),
            Self::NoKey(_) => "write the same key as for the peer, such as a key printed by `openssl rand -hex \
                 16`"
            .into(),
            Self::Kernel { .. } => {
                "TCP-MD5 needs a kernel with CONFIG_TCP_MD5SIG and without FIPS mode; if this is not possible, remove \
                 `md5-key-files` and restrict access to the port in the network"
                    .into()
            }
        }
    }
}

/// Read the key from a file.
fn read(path: &Path) -> Result<Vec<u8>, KeyError> {
    let failed = |error| KeyError::File {
        path: path.to_owned(),
        error,
    };
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.mode() & 0o7777;
    if mode & OTHERS != 0 {
        let path = path.to_owned();
        return Err(KeyError::Mode { path, mode });
    }
    let mut key = Vec::new();
    // Read two bytes more: one for the line feed, one to detect a key that is too long.
    let read = file.take(MAX_KEY as u64 + 2).read_to_end(&mut key);
    read.map_err(failed)?;
    if key.last() == Some(&b'\n') {
        key.pop();
    }
    match key.len() {
        1..=MAX_KEY if !key.contains(&b'\n') => Ok(key),
        _ => Err(KeyError::NoKey(path.to_owned())),
    }
}

/// Set the key of a peer on a socket that will listen at this address.
pub(super) fn set(socket: impl AsFd, listen: SocketAddr, peer: IpAddr, path: &Path) -> Result<(), KeyError> {
    let key = read(path)?;
    sign(socket, listen.is_ipv6(), peer, &key).map_err(|error| KeyError::Kernel { peer, error })
}

/// Create a TCP socket of the same family as an address.
pub(super) fn socket(listen: SocketAddr) -> io::Result<std::os::fd::OwnedFd> {
    let family = match listen {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(family, SocketType::STREAM, flags, None)?)
}

/// Check the configured keys. Each key is read and set on a temporary socket. Returns the faults.
pub fn faults(config: &Config) -> Vec<Fault> {
    let mut faults = Vec::new();
    for router in &config.routers {
        let Some(fpm) = &router.fpm else { continue };
        let Some(listen) = fpm.listen else { continue };
        for (peer, path) in &fpm.md5_key_files {
            let failed = |error| KeyError::Kernel { peer: *peer, error };
            let tried = socket(listen).map_err(failed);
            if let Err(error) = tried.and_then(|socket| set(socket, listen, *peer, Path::new(path))) {
                let key = ["routers", &router.name, "fpm", "md5-key-files", &peer.to_string()];
                faults.push(Fault {
                    key: key.map(str::to_owned).to_vec(),
                    description: error.to_string(),
                    hint: Some(error.hint()),
                });
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(folder: &Path, text: &[u8], mode: u32) -> PathBuf {
        let path = folder.join(format!("{mode:o}-{}", text.len()));
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn key_is_the_line_of_a_file_that_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let of = |text: &[u8], mode| read(&file(folder.path(), text, mode));
        assert_eq!(b"secret".to_vec(), of(b"secret\n", 0o600).unwrap());
        assert_eq!(vec![7; MAX_KEY], of(&[7; MAX_KEY], 0o400).unwrap());
        for mode in [0o640, 0o604, 0o620, 0o601] {
            assert!(matches!(of(b"secret", mode), Err(KeyError::Mode { mode: found, .. }) if found == mode));
        }
        for text in [&b""[..], b"\n", b"one\ntwo\n", &[7; MAX_KEY + 1]] {
            assert!(matches!(of(text, 0o600), Err(KeyError::NoKey(_))), "{text:?}");
        }
        assert!(matches!(read(&folder.path().join("none")), Err(KeyError::File { .. })));
    }
}
