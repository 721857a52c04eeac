//! Just enough of the protocol to set servers up and to look at what is on them.

use std::{
    io::{BufRead, BufReader, Error, ErrorKind, Result, Write},
    net::TcpStream,
    time::Duration,
};

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nothing.
    Nil,
    /// A number.
    Number(i64),
    /// A string or a status.
    Bytes(Vec<u8>),
    /// An error's text.
    Error(String),
    /// A list.
    List(Vec<Reply>),
}

impl Reply {
    /// A string as text.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => panic!("not a string: {other:?}"),
        }
    }

    /// A number.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn number(&self) -> i64 {
        match self {
            Self::Number(number) => *number,
            other => panic!("not a number: {other:?}"),
        }
    }

    /// The texts of a list.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        match self {
            Self::List(items) => items.iter().map(Self::text).collect(),
            other => panic!("not a list: {other:?}"),
        }
    }
}

/// Sends one command over a connection of its own.
pub(super) fn ask(port: u16, command: &[&[u8]]) -> Result<Reply> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut request = format!("*{}\r\n", command.len()).into_bytes();
    for part in command {
        request.extend(format!("${}\r\n", part.len()).bytes());
        request.extend_from_slice(part);
        request.extend(b"\r\n");
    }
    (&stream).write_all(&request)?;
    reply(&mut BufReader::new(&stream))
}

fn reply(from: &mut impl BufRead) -> Result<Reply> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let Some((kind, rest)) = line.trim_end().split_at_checked(1) else {
        return Err(ErrorKind::UnexpectedEof.into());
    };
    let number = || rest.parse::<i64>().map_err(Error::other);
    Ok(match kind {
        "+" => Reply::Bytes(rest.as_bytes().to_vec()),
        "-" => Reply::Error(rest.to_owned()),
        ":" => Reply::Number(number()?),
        "$" => match usize::try_from(number()?) {
            Err(_) => Reply::Nil,
            Ok(length) => {
                let mut bytes = vec![0; length + 2];
                from.read_exact(&mut bytes)?;
                bytes.truncate(length);
                Reply::Bytes(bytes)
            }
        },
        "*" => match usize::try_from(number()?) {
            Err(_) => Reply::Nil,
            Ok(length) => Reply::List((0..length).map(|_| reply(from)).collect::<Result<_>>()?),
        },
        _ => return Err(Error::other(format!("not an answer: {line:?}"))),
    })
}
