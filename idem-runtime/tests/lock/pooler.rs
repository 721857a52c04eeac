//! A pooler in transaction mode, in small: one client, two sessions of the server, and who answers is
//! decided anew for each statement. For clients that send statements as text.

use std::net::SocketAddr;

use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Which of the two sessions answers this statement.
pub(crate) type Choice = fn(&str) -> usize;

/// The options of the server, by way of a pooler that lasts as long as the runtime.
pub(crate) async fn pooled(server: &PgConnectOptions, choice: Choice) -> PgConnectOptions {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = listener.local_addr().unwrap();
    let there = tokio::net::lookup_host((server.get_host(), server.get_port()));
    let there = there.await.unwrap().next().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(serve(client, there, choice));
        }
    });
    server
        .clone()
        .host("127.0.0.1")
        .port(here.port())
        .ssl_mode(PgSslMode::Disable)
}

/// Ends with the client, or the server.
async fn serve(mut client: TcpStream, there: SocketAddr, choice: Choice) -> Option<()> {
    let startup = message(&mut client, None).await?;
    let mut sessions = Vec::new();
    for n in 0..2 {
        let mut session = TcpStream::connect(there).await.ok()?;
        session.write_all(&startup).await.ok()?;
        let hello = until_ready(&mut session).await?;
        if n == 0 {
            client.write_all(&hello).await.ok()?;
        }
        sessions.push(session);
    }
    loop {
        let kind = client.read_u8().await.ok()?;
        let statement = message(&mut client, Some(kind)).await?;
        if kind != b'Q' {
            // A farewell; a prepared statement would have to be parsed.
            return (kind == b'X').then_some(());
        }
        let text = String::from_utf8_lossy(&statement[5..]);
        let session = &mut sessions[choice(&text)];
        session.write_all(&statement).await.ok()?;
        let answer = until_ready(session).await?;
        client.write_all(&answer).await.ok()?;
    }
}

/// The rest of a message whose kind was read; the first one of a connection has none.
async fn message(from: &mut TcpStream, kind: Option<u8>) -> Option<Vec<u8>> {
    let length = from.read_u32().await.ok()?;
    let mut whole: Vec<u8> = kind.into_iter().collect();
    whole.extend(length.to_be_bytes());
    let begin = whole.len();
    whole.resize(begin + length as usize - 4, 0);
    from.read_exact(&mut whole[begin..]).await.ok()?;
    Some(whole)
}

async fn until_ready(session: &mut TcpStream) -> Option<Vec<u8>> {
    let mut answer = Vec::new();
    loop {
        let kind = session.read_u8().await.ok()?;
        answer.extend(message(session, Some(kind)).await?);
        if kind == b'Z' {
            return Some(answer);
        }
    }
}
