//! The control socket. Only one daemon uses the socket, and only the socket's owner has access.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Why the control socket can't be created.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another daemon is listening at the path.
    #[error("another daemon answers at {}: stop that daemon first, or write another `socket` in [control]",
         .0.display())]
    Taken(PathBuf),
    /// The path is a file that is not a socket.
    #[error("{} is not a socket: remove this file, or write another `socket` in [control]", .0.display())]
    InTheWay(PathBuf),
    /// The socket can't be created.
    #[error("the control socket {} can't be created: {error}", path.display())]
    Refused {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the kernel.
        error: Error,
    },
}

/// The listening socket. The socket's file is removed on drop.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Listen at a path. No other process may listen at the same path.
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
            // A daemon that was killed has left this socket.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused && is_socket(path) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                return Err(SocketError::InTheWay(path.to_owned()));
            }
            Err(error) => return Err(refused(error)),
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(refused)?;
        // Create the socket in a private directory, set its permissions, and then move it to its path.
        let temporary_folder = folder.join(format!(".sluice-{}", std::process::id()));
        DirBuilder::new()
            .mode(0o700)
            .create(&temporary_folder)
            .map_err(refused)?;
        let fresh = temporary_folder.join("control");
        let made = UnixListener::bind(&fresh).and_then(|listener| {
            fs::set_permissions(&fresh, Permissions::from_mode(0o600))?;
            listener.set_nonblocking(true)?;
            fs::rename(&fresh, path)?;
            Ok(listener)
        });
        let _ = fs::remove_dir_all(&temporary_folder);
        Ok(Self {
            listener: made.map_err(refused)?,
            path: path.to_owned(),
        })
    }

    /// A duplicate of the listener.
    ///
    /// # Errors
    /// No file descriptor is available.
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
