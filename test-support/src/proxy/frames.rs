//! The traffic taken apart: bytes into frames, frames into the statements they execute.

use std::{collections::HashMap, mem};

use super::Wire;

const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;

/// One message, or with [`Wire::Raw`] what one read gave.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) bytes: Vec<u8>,
    /// The message's type; none for the untyped ones at the start and for raw bytes.
    pub(super) tag: Option<u8>,
}

impl Frame {
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
    /// Encrypted or not Postgres: nothing to be read.
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
        Self::in_phase(if wire == Wire::Postgres {
            Phase::Start
        } else {
            Phase::Opaque
        })
    }

    pub(super) fn of_server(wire: Wire) -> Self {
        Self::in_phase(if wire == Wire::Postgres {
            Phase::Messages
        } else {
            Phase::Opaque
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
        }
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
}

impl Session {
    pub(super) fn observe(&mut self, frame: &Frame) -> Effect {
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
                    effects.push(session.observe(&frame));
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
