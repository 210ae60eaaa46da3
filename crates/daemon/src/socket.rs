//! The control socket: one daemon's, and for its owner alone.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Why there is no control socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// A daemon has it.
    #[error("another daemon answers at {}: end it first, or name another socket under [control]", .0.display())]
    Taken(PathBuf),
    /// A file that is no socket stands in the way.
    #[error("{} is no socket: remove it, or name another one under [control]", .0.display())]
    InTheWay(PathBuf),
    /// It can't be made.
    #[error("the control socket {} can't be made: {error}", path.display())]
    Refused {
        /// The socket.
        path: PathBuf,
        /// What the kernel says.
        error: Error,
    },
}

/// The listening socket; its file goes with it.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Listen at a path that nobody else listens at.
    ///
    /// # Errors
    /// See [`SocketError`].
    pub fn claim(path: &Path) -> Result<Self, SocketError> {
        let refused = |error| SocketError::Refused {
            path: path.to_owned(),
            error,
        };
        match UnixStream::connect(path) {
            Ok(_) => return Err(SocketError::Taken(path.to_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // Left by a daemon that was killed.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused && is_socket(path) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                return Err(SocketError::InTheWay(path.to_owned()));
            }
            Err(error) => return Err(refused(error)),
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(refused)?;
        // Made where nobody else may look, and put in its place when it is closed to others.
        let nursery = folder.join(format!(".sluice-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&nursery).map_err(refused)?;
        let fresh = nursery.join("control");
        let made = UnixListener::bind(&fresh).and_then(|listener| {
            fs::set_permissions(&fresh, Permissions::from_mode(0o600))?;
            listener.set_nonblocking(true)?;
            fs::rename(&fresh, path)?;
            Ok(listener)
        });
        let _ = fs::remove_dir_all(&nursery);
        Ok(Self {
            listener: made.map_err(refused)?,
            path: path.to_owned(),
        })
    }

    /// The listener.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn listener(&self) -> Result<UnixListener, Error> {
        self.listener.try_clone()
    }
}

fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket())
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_is_for_its_owner_alone_and_goes_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/control");
        let socket = Socket::claim(&path).unwrap();
        assert_eq!(0o600, fs::metadata(&path).unwrap().permissions().mode() & 0o777);
        assert!(matches!(Socket::claim(&path), Err(SocketError::Taken(_))));
        drop(socket);
        assert!(!path.exists());
        assert_eq!(0, fs::read_dir(path.parent().unwrap()).unwrap().count());
    }

    #[test]
    fn socket_left_behind_is_taken_over_and_a_file_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        drop(UnixListener::bind(&path).unwrap());
        assert!(Socket::claim(&path).is_ok());
        fs::write(&path, "mine").unwrap();
        assert!(matches!(Socket::claim(&path), Err(SocketError::InTheWay(_))));
        assert_eq!("mine", fs::read_to_string(&path).unwrap());
    }
}
