//! A fake daemon with fixed answers.

use std::path::PathBuf;

use axum::Router;

/// Serve on a private socket. The fake daemon lives as long as the directory.
pub fn serve(router: Router) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("control");
    let (ready, wait) = std::sync::mpsc::channel();
    let path = socket.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = tokio::net::UnixListener::bind(path).unwrap();
            ready.send(()).unwrap();
            axum::serve(listener, router).await.unwrap();
        });
    });
    wait.recv().unwrap();
    (folder, socket)
}
