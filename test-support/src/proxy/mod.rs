//! A loopback TCP proxy in front of a server, with faults.
//!
//! It runs on a thread of its own, so that neither a blocked nor a paused test runtime holds it up.
//! In front of Postgres and MariaDB it follows the messages: it tells which statements were executed on which
//! connection, and a fault can be tied to a statement. In front of any other server it sees bytes.
//!
//! ```ignore
//! let proxy = database.proxy();
//! let pool = database.pool_through(&proxy, 4);
//! let lost = proxy.on("COMMIT", Fault::CutAnswer);
//! call(&pool).await.unwrap_err(); // committed, and the caller does not know
//! assert!(lost.fired());
//! ```

mod fault;
mod frames;
mod pump;

use std::{
    net::{SocketAddr, TcpListener, ToSocketAddrs},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use tokio::sync::watch;

pub use self::fault::{Armed, Count, Fault};
use self::fault::{Plan, Trigger};

/// What the proxy can read of the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// The Postgres protocol, version 3, unencrypted.
    Postgres,
    /// The protocol of MySQL and MariaDB, unencrypted and uncompressed, one command after another.
    MySql,
    /// Bytes. A pattern is looked for in what the client sends, a frame is what one read gave.
    Raw,
}

/// A direction through the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

impl Direction {
    fn index(self) -> usize {
        match self {
            Self::ToServer => 0,
            Self::ToClient => 1,
        }
    }
}

/// A statement that went to the server to be executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The number of the connection, from 1, in the order in which they were accepted.
    pub connection: usize,
    /// Its text, also where only the name of a prepared statement went over the wire.
    pub text: String,
    /// Whether it was executed as a prepared statement, and not as a simple query.
    pub prepared: bool,
}

/// The running proxy; it ends, with all its connections, when this is dropped.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    upstream: SocketAddr,
    wire: Wire,
    accepted: AtomicUsize,
    open: AtomicUsize,
    control: watch::Sender<Control>,
    plans: Mutex<Vec<Arc<Plan>>>,
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    executed: Vec<Statement>,
    prepared: Vec<String>,
}

/// What connections obey at any time.
#[derive(Clone, Debug, Default)]
struct Control {
    delay: [Duration; 2],
    held: [bool; 2],
    refusing: bool,
    /// Counts the cuts: a connection ends when it sees another number than it began with.
    cuts: u64,
    client_cuts: u64,
    counts_changed: bool,
    stopped: bool,
}

impl Shared {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn plans(&self) -> MutexGuard<'_, Vec<Arc<Plan>>> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Proxy {
    /// Starts a proxy on a free loopback port.
    ///
    /// # Panics
    /// When the server's address does not resolve or no port can be had.
    #[must_use]
    pub fn start(server: impl ToSocketAddrs, wire: Wire) -> Self {
        let upstream = server
            .to_socket_addrs()
            .expect("the server's address resolves")
            .next()
            .expect("the server has an address");
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a loopback port is free");
        let addr = listener
            .local_addr()
            .expect("a bound listener has an address");
        let shared = Arc::new(Shared {
            upstream,
            wire,
            accepted: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            control: watch::Sender::default(),
            plans: Mutex::default(),
            log: Mutex::default(),
        });
        let thread = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || pump::serve(listener, &shared)
        });
        Self {
            addr,
            shared,
            thread: Some(thread),
        }
    }

    /// Where clients connect.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// How many connections were accepted so far.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// How many connections are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// The texts of all statements that were executed, in order.
    #[must_use]
    pub fn statements(&self) -> Vec<String> {
        self.shared
            .log()
            .executed
            .iter()
            .map(|statement| statement.text.clone())
            .collect()
    }

    /// The same with the connection and the way of each.
    #[must_use]
    pub fn executed(&self) -> Vec<Statement> {
        self.shared.log().executed.clone()
    }

    /// The texts of all statements that were prepared, in order.
    #[must_use]
    pub fn prepared(&self) -> Vec<String> {
        self.shared.log().prepared.clone()
    }

    /// Forgets the statements seen so far.
    pub fn clear_log(&self) {
        *self.shared.log() = Log::default();
    }

    /// Keeps what arrives back for this long before it is passed on. What arrives in one piece
    /// travels together; what arrives meanwhile waits for its own turn.
    pub fn delay(&self, direction: Direction, by: Duration) {
        self.shared
            .control
            .send_modify(|control| control.delay[direction.index()] = by);
    }

    /// Stops passing on in this direction, on all connections, with nothing lost: a black hole
    /// until [`resume`](Self::resume).
    pub fn hold(&self, direction: Direction) {
        self.shared
            .control
            .send_modify(|control| control.held[direction.index()] = true);
    }

    /// Passes on again.
    pub fn resume(&self, direction: Direction) {
        self.shared
            .control
            .send_modify(|control| control.held[direction.index()] = false);
    }

    /// Closes new connections as soon as they are made, or no longer.
    pub fn refuse(&self, refusing: bool) {
        self.shared
            .control
            .send_modify(|control| control.refusing = refusing);
    }

    /// Connections made from now on count the rows changed, and not those found as sqlx asks for
    /// (`CLIENT_FOUND_ROWS`). With [`Wire::MySql`] only.
    pub fn count_changed_rows(&self) {
        self.shared
            .control
            .send_modify(|control| control.counts_changed = true);
    }

    /// Closes all connections on both sides.
    pub fn cut_all(&self) {
        self.shared.control.send_modify(|control| control.cuts += 1);
    }

    /// Closes all connections towards the clients only: the server's sessions stay, with their
    /// transactions and locks, as after a network partition. They end with the next
    /// [`cut_all`](Self::cut_all) or with the proxy.
    pub fn cut_clients(&self) {
        self.shared
            .control
            .send_modify(|control| control.client_cuts += 1);
    }

    /// Arms a fault for the first statement from now on whose text contains `pattern`; with
    /// [`Wire::Raw`] for the first time the client sends these bytes. It happens once.
    pub fn on(&self, pattern: &str, fault: Fault) -> Armed {
        self.on_nth(pattern, 1, fault)
    }

    /// The same for the `nth` such statement, counted from 1.
    ///
    /// # Panics
    /// When the pattern is empty or `nth` is zero: that names nothing.
    pub fn on_nth(&self, pattern: &str, nth: usize, fault: Fault) -> Armed {
        assert!(
            !pattern.is_empty() && nth > 0,
            "a fault needs a pattern and counts from 1"
        );
        self.arm(Plan::new(
            Trigger::Pattern(pattern.as_bytes().to_vec()),
            nth,
            fault,
        ))
    }

    /// Arms a cut of the connection that passes on the last of so many bytes or frames in this
    /// direction, counted over all connections from now on. With none it is cut before the next.
    pub fn cut_after(&self, direction: Direction, count: Count) -> Armed {
        let (trigger, left) = match count {
            Count::Bytes(bytes) => (Trigger::Bytes(direction), bytes),
            Count::Frames(frames) => (Trigger::Frames(direction), frames),
        };
        self.arm(Plan::new(trigger, left, Fault::CutBefore))
    }

    /// Ends delays, holds and refusals, disarms all faults and lets go what one holds.
    pub fn heal(&self) {
        for plan in self.shared.plans().drain(..) {
            plan.disarm();
        }
        self.shared.control.send_modify(|control| {
            control.delay = [Duration::ZERO; 2];
            control.held = [false; 2];
            control.refusing = false;
        });
    }

    fn arm(&self, plan: Plan) -> Armed {
        let plan = Arc::new(plan);
        self.shared.plans().push(Arc::clone(&plan));
        Armed::new(plan)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared
            .control
            .send_modify(|control| control.stopped = true);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}
