//! The answer to a `COMMIT` is lost, in a transaction of the framework's own.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use idem_runtime::{Effect, ErrorKind};
use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixListener, UnixStream};

use crate::server::Database;
use crate::service::{Body, pay_alone};

/// What becomes of the first `COMMIT`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// It reaches the server, its answer does not come back.
    AnswerLost,
    /// It does not reach the server.
    RequestLost,
}

/// A pool through a proxy that breaks one connection at its `COMMIT`.
struct Broken {
    pool: MySqlPool,
    socket: PathBuf,
}

impl Drop for Broken {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}

async fn broken(db: &Database, fault: Fault) -> Broken {
    let name = format!("{}.proxy", db.options.get_database().unwrap());
    let socket = std::env::temp_dir().join(name);
    let listener = UnixListener::bind(&socket).unwrap();
    let armed = Arc::new(AtomicBool::new(true));
    let options = db.options.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let armed = Arc::clone(&armed);
            if let Some(socket) = options.get_socket() {
                let server = UnixStream::connect(socket).await.unwrap();
                tokio::spawn(forward(client, server, fault, armed));
            } else {
                let address = (options.get_host(), options.get_port());
                let server = TcpStream::connect(address).await.unwrap();
                tokio::spawn(forward(client, server, fault, armed));
            }
        }
    });
    let pool = MySqlPoolOptions::new().max_connections(2);
    let through = db.options.clone().socket(&socket);
    Broken {
        pool: pool.connect_with(through).await.unwrap(),
        socket,
    }
}

async fn forward<S: AsyncRead + AsyncWrite + Unpin>(
    mut client: UnixStream,
    mut server: S,
    fault: Fault,
    armed: Arc<AtomicBool>,
) {
    let (mut asked, mut answered) = ([0; 16_384], [0; 16_384]);
    loop {
        tokio::select! {
            n = client.read(&mut asked) => {
                let Ok(n @ 1..) = n else { return };
                let commits = asked[..n].ends_with(b"\x03COMMIT");
                let breaks = commits && armed.swap(false, Ordering::SeqCst);
                if !breaks || fault == Fault::AnswerLost {
                    server.write_all(&asked[..n]).await.unwrap();
                }
                if breaks {
                    return;
                }
            }
            n = server.read(&mut answered) => {
                let Ok(n @ 1..) = n else { return };
                if client.write_all(&answered[..n]).await.is_err() {
                    return;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_commit_that_held_is_answered() {
    let db = Database::fresh().await;
    let proxied = broken(&db, Fault::AnswerLost).await;
    let body = Body::default();
    let paid = pay_alone(&proxied.pool, "1", 100, body.clone())
        .await
        .unwrap();
    let again = pay_alone(&proxied.pool, "1", 100, body.clone())
        .await
        .unwrap();
    assert_eq!((paid, body.runs(), db.orders().await), (again, 1, 1));
}

#[tokio::test]
async fn a_commit_that_did_not_hold_is_no_effect_and_the_next_call_runs() {
    let db = Database::fresh().await;
    let proxied = broken(&db, Fault::RequestLost).await;
    let body = Body::default();
    let lost = pay_alone(&proxied.pool, "1", 100, body.clone())
        .await
        .unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::StoreUnavailable);
    assert_eq!(lost.idem().effect(), Effect::None);
    assert_eq!((db.orders().await, db.records().await), (0, 0));
    pay_alone(&proxied.pool, "1", 100, body.clone())
        .await
        .unwrap();
    assert_eq!((body.runs(), db.orders().await), (2, 1));
}
