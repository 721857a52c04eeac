//! The connections: two pumps each, which ask before every frame what is to happen to it.

use std::{
    net::TcpListener as StdListener,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

use super::{
    Direction, Shared, Statement, Wire,
    fault::{Fault, Plan, Trigger},
    frames::{Effect, Frame, Framer, Session},
};

/// Accepts connections until the proxy is dropped.
pub(super) fn serve(listener: StdListener, shared: &Arc<Shared>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime for the proxy");
    runtime.block_on(async {
        listener
            .set_nonblocking(true)
            .expect("a listener can be non-blocking");
        let listener = TcpListener::from_std(listener).expect("a bound listener");
        let mut control = shared.control.subscribe();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = control.wait_for(|control| control.stopped) => return,
            };
            let Ok((client, _)) = accepted else { continue };
            let number = shared.accepted.fetch_add(1, Ordering::SeqCst) + 1;
            if shared.control.borrow().refusing {
                continue;
            }
            let shared = Arc::clone(shared);
            tokio::spawn(async move {
                shared.open.fetch_add(1, Ordering::SeqCst);
                Connection::new(number, &shared).run(client).await;
                shared.open.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
}

/// How much of the raw bytes is kept in case a pattern has begun.
const LONGEST_PATTERN: usize = 1024;

/// How much one read may give.
const READ: usize = 16 * 1024;

/// Why a pump stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Cut,
    ClientCut,
}

/// An answer that a fault waits for.
#[derive(Debug)]
struct Answer {
    plan: Arc<Plan>,
    /// So many `ReadyForQuery` belong to earlier statements.
    earlier: usize,
}

#[derive(Debug)]
struct Connection<'a> {
    number: usize,
    shared: &'a Shared,
    answer: Mutex<Option<Answer>>,
    session: Mutex<Session>,
    /// How many `ReadyForQuery` the server owes.
    owed: AtomicUsize,
    /// The client asked to encrypt and has no answer yet.
    encrypting: AtomicBool,
    /// The server agreed: from here on nothing can be read.
    encrypted: AtomicBool,
}

impl<'a> Connection<'a> {
    fn new(number: usize, shared: &'a Shared) -> Self {
        Self {
            number,
            shared,
            answer: Mutex::default(),
            session: Mutex::default(),
            // The one that ends the start.
            owed: AtomicUsize::new(1),
            encrypting: AtomicBool::new(false),
            encrypted: AtomicBool::new(false),
        }
    }

    async fn run(&self, client: TcpStream) {
        let mut control = self.shared.control.subscribe();
        let (cuts, client_cuts) = {
            let now = control.borrow();
            (now.cuts, now.client_cuts)
        };
        let Ok(server) = TcpStream::connect(self.shared.upstream).await else {
            return;
        };
        client.set_nodelay(true).ok();
        server.set_nodelay(true).ok();
        let (client_read, mut client_write) = client.into_split();
        let (server_read, mut server_write) = server.into_split();
        let end = tokio::select! {
            end = self.to_server(client_read, &mut server_write) => end,
            end = self.to_client(&server_read, &mut client_write) => end,
            _ = control.wait_for(|now| now.cuts != cuts || now.client_cuts != client_cuts) => {
                if self.shared.control.borrow().cuts == cuts { End::ClientCut } else { End::Cut }
            }
        };
        if end == End::ClientCut {
            drop(client_write);
            control.wait_for(|now| now.cuts != cuts).await.ok();
        }
    }

    async fn to_server(&self, mut client: OwnedReadHalf, server: &mut OwnedWriteHalf) -> End {
        let direction = Direction::ToServer;
        let mut framer = Framer::of_client(self.shared.wire);
        let mut seen = Vec::new();
        let mut greeted = false;
        loop {
            framer.buffer.reserve(READ);
            if !matches!(client.read_buf(&mut framer.buffer).await, Ok(1..)) {
                return End::Cut;
            }
            if self.encrypted.load(Ordering::SeqCst) {
                framer.become_opaque();
            }
            self.delay(direction).await;
            while let Some(mut frame) = framer.next() {
                self.gate(direction).await;
                if self.shared.wire == Wire::MySql && !std::mem::replace(&mut greeted, true) {
                    self.choose_the_count(&mut frame);
                }
                if frame.asks_to_encrypt() && self.shared.wire == Wire::Postgres {
                    self.encrypting.store(true, Ordering::SeqCst);
                }
                if let Some(plan) = self.match_pattern(&frame, &mut seen) {
                    match plan.fault {
                        Fault::CutBefore => {
                            plan.fire();
                            return End::Cut;
                        }
                        Fault::HoldBefore => {
                            plan.fire();
                            plan.released().await;
                        }
                        Fault::CutAnswer | Fault::HoldAnswer => {
                            let earlier = self.owed.load(Ordering::SeqCst);
                            *self.answer() = Some(Answer { plan, earlier });
                        }
                    }
                }
                if frame.asks_for_ready() {
                    self.owed.fetch_add(1, Ordering::SeqCst);
                }
                if let Err(end) = self.pass_on(direction, &frame, server).await {
                    return end;
                }
            }
        }
    }

    async fn to_client(&self, server: &OwnedReadHalf, client: &mut OwnedWriteHalf) -> End {
        let direction = Direction::ToClient;
        let mut framer = Framer::of_server(self.shared.wire);
        loop {
            framer.buffer.reserve(READ);
            if server.readable().await.is_err() {
                return End::Cut;
            }
            match server.try_read_buf(&mut framer.buffer) {
                Ok(0) => return End::Cut,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
                Err(_) => return End::Cut,
            }
            if self.encrypting.swap(false, Ordering::SeqCst) {
                framer.expect_encryption();
            }
            self.delay(direction).await;
            while let Some(frame) = framer.next() {
                self.gate(direction).await;
                self.session().answered(&frame);
                match self.answer_fault(&frame) {
                    None => {}
                    Some((plan, last)) if plan.fault == Fault::CutAnswer => {
                        if last {
                            plan.fire();
                            return End::Cut;
                        }
                        continue;
                    }
                    Some((plan, _)) => {
                        plan.fire();
                        plan.released().await;
                        *self.answer() = None;
                    }
                }
                if self.shared.wire == Wire::Postgres && framer.is_opaque() {
                    self.encrypted.store(true, Ordering::SeqCst);
                }
                if frame.is_ready() {
                    let owed = self.owed.load(Ordering::SeqCst);
                    self.owed.store(owed.saturating_sub(1), Ordering::SeqCst);
                }
                if let Err(end) = self.pass_on(direction, &frame, client).await {
                    return end;
                }
            }
        }
    }

    /// Records what the client's frame does and tells which fault is tied to it.
    fn match_pattern(&self, frame: &Frame, seen: &mut Vec<u8>) -> Option<Arc<Plan>> {
        let raw = self.shared.wire == Wire::Raw;
        // A pattern of raw bytes may begin in an earlier read.
        let before = seen.len();
        if raw {
            seen.extend_from_slice(&frame.bytes);
        } else {
            match self.session().observe(self.shared.wire, frame) {
                Effect::Nothing => return None,
                Effect::Prepares(text) => {
                    self.shared.log().prepared.push(text);
                    return None;
                }
                Effect::Executes { text, prepared } => {
                    *seen = text.clone().into_bytes();
                    let connection = self.number;
                    self.shared.log().executed.push(Statement {
                        connection,
                        text,
                        prepared,
                    });
                }
            }
        }
        let plans = self.shared.plans();
        let hit = plans.iter().find(|plan| {
            let Trigger::Pattern(pattern) = &plan.trigger else {
                return false;
            };
            let times = if raw {
                occurrences(&seen[(before + 1).saturating_sub(pattern.len())..], pattern)
            } else {
                occurrences(seen, pattern).min(1)
            };
            times > 0 && plan.meets(times)
        });
        seen.drain(..seen.len().saturating_sub(LONGEST_PATTERN));
        hit.cloned()
    }

    /// The fault that waits for this frame of the server, and whether it is the answer's last.
    fn answer_fault(&self, frame: &Frame) -> Option<(Arc<Plan>, bool)> {
        let mut answer = self.answer();
        let waiting = answer.as_mut()?;
        if waiting.plan.is_disarmed() {
            *answer = None;
            return None;
        }
        if self.shared.wire == Wire::Postgres && waiting.earlier > 0 {
            waiting.earlier -= usize::from(frame.is_ready());
            return None;
        }
        debug_assert!(waiting.plan.fault.concerns_answer());
        // In MySQL the first packet of an answer comes when the statement is done.
        let last = self.shared.wire != Wire::Postgres || frame.is_ready();
        Some((Arc::clone(&waiting.plan), last))
    }

    /// Writes one frame, or as much of it as a counted cut allows.
    async fn pass_on(
        &self,
        direction: Direction,
        frame: &Frame,
        to: &mut OwnedWriteHalf,
    ) -> Result<(), End> {
        let cut = self.counted_cut(direction, frame.bytes.len());
        let allowed = cut.as_ref().map_or(frame.bytes.len(), |(_, bytes)| *bytes);
        let written = to.write_all(&frame.bytes[..allowed]).await;
        if let Some((plan, _)) = cut {
            plan.fire();
            return Err(End::Cut);
        }
        written.map_err(|_| End::Cut)
    }

    fn counted_cut(&self, direction: Direction, length: usize) -> Option<(Arc<Plan>, usize)> {
        let plans = self.shared.plans();
        plans.iter().find_map(|plan| {
            let left = plan.left();
            let allowed = match plan.trigger {
                Trigger::Bytes(of) if of == direction && plan.meets(length) => left,
                Trigger::Frames(of) if of == direction && plan.meets(1) => {
                    if left == 0 {
                        0
                    } else {
                        length
                    }
                }
                _ => return None,
            };
            Some((Arc::clone(plan), allowed))
        })
    }

    /// Takes the wish back, where the test wants so, to be told the rows found and not those changed.
    fn choose_the_count(&self, greeting: &mut Frame) {
        const FOUND_ROWS: u8 = 2;
        if self.shared.control.borrow().counts_changed
            && let Some(capabilities) = greeting.bytes.get_mut(4)
        {
            *capabilities &= !FOUND_ROWS;
        }
    }

    async fn delay(&self, direction: Direction) {
        let delay = self.shared.control.borrow().delay[direction.index()];
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }

    async fn gate(&self, direction: Direction) {
        let mut control = self.shared.control.subscribe();
        control
            .wait_for(|control| !control.held[direction.index()])
            .await
            .ok();
    }

    fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self) -> MutexGuard<'_, Option<Answer>> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn occurrences(haystack: &[u8], needle: &[u8]) -> usize {
    haystack
        .windows(needle.len())
        .filter(|window| *window == needle)
        .count()
}
