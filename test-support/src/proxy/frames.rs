//! The traffic taken apart: bytes into frames, frames into the statements they execute.

use std::{collections::HashMap, mem};

use super::Wire;

const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const COM_QUERY: u8 = 0x03;
const COM_STMT_PREPARE: u8 = 0x16;
const COM_STMT_EXECUTE: u8 = 0x17;

/// One message, or with [`Wire::Raw`] what one read gave.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) bytes: Vec<u8>,
    /// The message's type; none for the untyped ones at the start and for raw bytes.
    pub(super) tag: Option<u8>,
}

impl Frame {
    /// After length and type in Postgres; after length, number and command in MySQL.
    fn body(&self) -> &[u8] {
        self.bytes.get(5..).unwrap_or_default()
    }

    /// Whether the client asks to encrypt. The server answers with a single byte.
    pub(super) fn asks_to_encrypt(&self) -> bool {
        self.tag.is_none() && matches!(start_code(&self.bytes), Some(SSL_REQUEST | GSS_REQUEST))
    }

    /// Whether the server sends a `ReadyForQuery` for it.
    pub(super) fn asks_for_ready(&self) -> bool {
        matches!(self.tag, Some(b'Q' | b'S' | b'F'))
    }

    pub(super) fn is_ready(&self) -> bool {
        self.tag == Some(b'Z')
    }
}

fn start_code(message: &[u8]) -> Option<u32> {
    message.get(4..8)?.try_into().ok().map(u32::from_be_bytes)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Before the client's first typed message.
    Start,
    /// The server's one byte that answers a wish to encrypt.
    Encryption,
    Messages,
    /// Of MySQL.
    Packets,
    /// Encrypted or another protocol: nothing to be read.
    Opaque,
}

/// Cuts one direction's bytes into frames.
#[derive(Debug)]
pub(super) struct Framer {
    pub(super) buffer: Vec<u8>,
    phase: Phase,
}

impl Framer {
    pub(super) fn of_client(wire: Wire) -> Self {
        Self::in_phase(match wire {
            Wire::Postgres => Phase::Start,
            Wire::MySql => Phase::Packets,
            Wire::Raw => Phase::Opaque,
        })
    }

    pub(super) fn of_server(wire: Wire) -> Self {
        Self::in_phase(match wire {
            Wire::Postgres => Phase::Messages,
            Wire::MySql => Phase::Packets,
            Wire::Raw => Phase::Opaque,
        })
    }

    fn in_phase(phase: Phase) -> Self {
        Self {
            buffer: Vec::with_capacity(16 * 1024),
            phase,
        }
    }

    /// The next byte answers a wish to encrypt.
    pub(super) fn expect_encryption(&mut self) {
        self.phase = Phase::Encryption;
    }

    pub(super) fn become_opaque(&mut self) {
        self.phase = Phase::Opaque;
    }

    pub(super) fn is_opaque(&self) -> bool {
        self.phase == Phase::Opaque
    }

    /// The next frame, if all of it has arrived.
    pub(super) fn next(&mut self) -> Option<Frame> {
        if self.buffer.is_empty() {
            return None;
        }
        match self.phase {
            Phase::Opaque => Some(Frame {
                bytes: mem::take(&mut self.buffer),
                tag: None,
            }),
            Phase::Encryption => {
                let byte = self.buffer.remove(0);
                self.phase = if byte == b'N' {
                    Phase::Messages
                } else {
                    Phase::Opaque
                };
                Some(Frame {
                    bytes: vec![byte],
                    tag: None,
                })
            }
            Phase::Start => {
                let bytes = self.take(0)?;
                let frame = Frame { bytes, tag: None };
                if !frame.asks_to_encrypt() {
                    self.phase = Phase::Messages;
                }
                Some(frame)
            }
            Phase::Messages => {
                let tag = self.buffer.first().copied();
                let bytes = self.take(1)?;
                Some(Frame { bytes, tag })
            }
            Phase::Packets => {
                let bytes = self.take_packet()?;
                // Those of the start and of long messages have other numbers.
                let tag = (bytes[3] == 0).then(|| bytes.get(4).copied()).flatten();
                Some(Frame { bytes, tag })
            }
        }
    }

    /// Takes one packet: three bytes of length, a number, the payload.
    fn take_packet(&mut self) -> Option<Vec<u8>> {
        let header = self.buffer.get(..4)?;
        let length = u32::from_le_bytes([header[0], header[1], header[2], 0]);
        let end = 4 + usize::try_from(length).ok()?;
        if self.buffer.len() < end {
            return None;
        }
        let rest = self.buffer.split_off(end);
        Some(mem::replace(&mut self.buffer, rest))
    }

    /// Takes one message whose length, itself included, stands at `at`.
    fn take(&mut self, at: usize) -> Option<Vec<u8>> {
        let length = self
            .buffer
            .get(at..at + 4)?
            .try_into()
            .ok()
            .map(u32::from_be_bytes)?;
        let end = at + usize::try_from(length).ok()?;
        if self.buffer.len() < end {
            return None;
        }
        let rest = self.buffer.split_off(end);
        Some(mem::replace(&mut self.buffer, rest))
    }
}

/// What a client's message does.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Nothing,
    Prepares(String),
    Executes { text: String, prepared: bool },
}

/// The statements and portals of one connection.
#[derive(Debug, Default)]
pub(super) struct Session {
    statements: HashMap<Vec<u8>, String>,
    portals: HashMap<Vec<u8>, String>,
    /// The server has yet to give it a name. MySQL only.
    unnamed: Option<String>,
}

impl Session {
    pub(super) fn observe(&mut self, wire: Wire, frame: &Frame) -> Effect {
        match wire {
            Wire::Postgres => self.message(frame),
            Wire::MySql => self.command(frame),
            Wire::Raw => Effect::Nothing,
        }
    }

    fn command(&mut self, frame: &Frame) -> Effect {
        match frame.tag {
            Some(COM_QUERY) => Effect::Executes {
                text: text(frame.body()),
                prepared: false,
            },
            Some(COM_STMT_PREPARE) => {
                let text = text(frame.body());
                self.unnamed = Some(text.clone());
                Effect::Prepares(text)
            }
            Some(COM_STMT_EXECUTE) => {
                let name = frame.body().get(..4).unwrap_or_default();
                Effect::Executes {
                    text: self.statements.get(name).cloned().unwrap_or_default(),
                    prepared: true,
                }
            }
            _ => Effect::Nothing,
        }
    }

    /// Takes note of the name that the server gives a statement.
    pub(super) fn answered(&mut self, frame: &Frame) {
        if let Some(text) = self.unnamed.take()
            && let Some([0, name @ ..]) = frame.bytes.get(4..9)
        {
            self.statements.insert(name.to_vec(), text);
        }
    }

    fn message(&mut self, frame: &Frame) -> Effect {
        let mut body = frame.body();
        match frame.tag {
            Some(b'Q') => Effect::Executes {
                text: text(take_name(&mut body)),
                prepared: false,
            },
            Some(b'P') => {
                let name = take_name(&mut body);
                let text = text(take_name(&mut body));
                self.statements.insert(name.to_vec(), text.clone());
                Effect::Prepares(text)
            }
            Some(b'B') => {
                let portal = take_name(&mut body);
                let statement = take_name(&mut body);
                let text = self.statements.get(statement).cloned().unwrap_or_default();
                self.portals.insert(portal.to_vec(), text);
                Effect::Nothing
            }
            Some(b'E') => {
                let portal = take_name(&mut body);
                let text = self.portals.get(portal).cloned().unwrap_or_default();
                Effect::Executes {
                    text,
                    prepared: true,
                }
            }
            _ => Effect::Nothing,
        }
    }
}

/// Takes a zero-terminated string off the front.
fn take_name<'a>(body: &mut &'a [u8]) -> &'a [u8] {
    let end = body
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(body.len());
    let name = &body[..end];
    *body = body.get(end + 1..).unwrap_or_default();
    name
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap();
        [&[tag][..], &length.to_be_bytes(), body].concat()
    }

    #[test]
    fn messages_are_found_however_they_arrive() {
        let mut traffic = vec![0, 0, 0, 8, 0, 3, 0, 0];
        traffic.extend(message(b'Q', b"BEGIN\0"));
        traffic.extend(message(b'P', b"s1\0SELECT 1\0\0\0"));
        traffic.extend(message(b'B', b"\0s1\0\0\0\0\0\0\0"));
        traffic.extend(message(b'E', b"\0\0\0\0\0"));
        for piece in 1..traffic.len() {
            let mut framer = Framer::of_client(Wire::Postgres);
            let mut session = Session::default();
            let mut effects = Vec::new();
            for bytes in traffic.chunks(piece) {
                framer.buffer.extend_from_slice(bytes);
                while let Some(frame) = framer.next() {
                    effects.push(session.observe(Wire::Postgres, &frame));
                }
            }
            assert_eq!(
                effects,
                [
                    Effect::Nothing,
                    Effect::Executes {
                        text: "BEGIN".into(),
                        prepared: false
                    },
                    Effect::Prepares("SELECT 1".into()),
                    Effect::Nothing,
                    Effect::Executes {
                        text: "SELECT 1".into(),
                        prepared: true
                    },
                ]
            );
        }
    }

    #[test]
    fn a_prepared_statement_of_mysql_is_known_by_the_number_that_it_was_given() {
        let packet = |number: u8, payload: &[u8]| {
            let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
            [&length[..3], &[number], payload].concat()
        };
        let mut client = Framer::of_client(Wire::MySql);
        let mut server = Framer::of_server(Wire::MySql);
        let mut session = Session::default();
        // The client's part of the start is no command.
        client.buffer.extend(packet(1, b"\x03\0\0\0"));
        client.buffer.extend(packet(0, b"\x16SELECT 1"));
        client.buffer.extend(packet(0, b"\x17\x02\x01\0\0\0\x01"));
        server.buffer.extend(packet(1, b"\0\x02\x01\0\0\0\0\0\0"));
        let mut next = |session: &mut Session| {
            let frame = client.next().unwrap();
            session.observe(Wire::MySql, &frame)
        };
        assert_eq!(next(&mut session), Effect::Nothing);
        assert_eq!(next(&mut session), Effect::Prepares("SELECT 1".into()));
        session.answered(&server.next().unwrap());
        let executes = Effect::Executes {
            text: "SELECT 1".into(),
            prepared: true,
        };
        assert_eq!(next(&mut session), executes);
    }

    #[test]
    fn a_refused_wish_to_encrypt_is_followed_by_the_real_start() {
        let mut client = Framer::of_client(Wire::Postgres);
        client.buffer.extend(8_u32.to_be_bytes());
        client.buffer.extend(SSL_REQUEST.to_be_bytes());
        client.buffer.extend([0, 0, 0, 8, 0, 3, 0, 0]);
        assert!(client.next().unwrap().asks_to_encrypt());
        assert!(!client.next().unwrap().asks_to_encrypt());

        let mut server = Framer::of_server(Wire::Postgres);
        server.expect_encryption();
        server.buffer.push(b'N');
        server.buffer.extend(message(b'Z', b"I"));
        assert_eq!(server.next().unwrap().bytes, b"N");
        assert!(server.next().unwrap().is_ready());
    }
}
