//! What a server's settings mean for the records on it.

use std::collections::HashMap;
use std::fmt;

use ::redis::{Value, from_redis_value};
use tokio::time::Instant;

use super::{RedisStore, error};
use crate::error::{Error, ErrorKind};

/// What [`RedisStore::check`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The oldest version of the servers that hold keys; `None` if they do not tell.
    pub version: Option<String>,
    /// What should be known, server by server.
    pub warnings: Vec<Warning>,
}

/// A setting under which records can be lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// Records may be evicted, which was allowed explicitly.
    Eviction(String),
    /// A restart loses what was written since the last snapshot, or everything.
    NotPersistent,
    /// A power cut loses more than a second.
    FsyncLeftToSystem,
    /// A failover loses what the replica has not got yet.
    ReplicationNotAwaited,
    /// More replicas are waited for than there are: every call will be refused.
    TooFewReplicas(usize),
    /// The server does not let this be asked.
    NotChecked(&'static str),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eviction(policy) => write!(
                f,
                "maxmemory-policy is {policy}: an evicted record is a call that runs twice"
            ),
            Self::NotPersistent => f.write_str(
                "appendonly is off: a restart forgets records, and their calls run again",
            ),
            Self::FsyncLeftToSystem => f.write_str(
                "appendfsync is no: a power cut forgets what the system had not written",
            ),
            Self::ReplicationNotAwaited => f.write_str(
                "replicas are not waited for: a failover forgets what they have not got yet",
            ),
            Self::TooFewReplicas(count) => write!(
                f,
                "only {count} replicas are connected, fewer than are waited for"
            ),
            Self::NotChecked(what) => write!(f, "{what} could not be checked"),
        }
    }
}

const OLDEST: (u32, u32) = (7, 0);

impl RedisStore {
    /// Asks the server, or every master of a cluster, whether records are safe on it; for the start
    /// of a program. Warnings are logged and returned.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] for a server older than 7.0 and for a `maxmemory-policy` other than
    /// `noeviction` (unless [`allow_eviction`](super::Builder::allow_eviction) was said);
    /// [`ErrorKind::StoreUnavailable`].
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn check(&self) -> Result<Report, Error> {
        let deadline = Instant::now() + self.inner.limit;
        let link = &self.inner.link;
        // A server that is up and forbids the question is not a server that is down.
        let ping = link.ask_masters(::redis::cmd("PING"), deadline).await;
        ping.map_err(error::before)?;
        let infos = link.ask_masters(::redis::cmd("INFO"), deadline).await;
        let mut question = ::redis::cmd("CONFIG");
        question.arg("GET").arg("appendfsync");
        question.arg("min-replicas-to-write");
        question.arg("maxmemory-policy").arg("appendonly");
        let settings = link.ask_masters(question, deadline).await;
        let mut servers: HashMap<String, Facts> = HashMap::new();
        for (address, info) in infos.into_iter().flatten() {
            servers.entry(address).or_default().learn(lines(info));
        }
        for (address, setting) in settings.into_iter().flatten() {
            servers.entry(address).or_default().learn(pairs(setting));
        }
        if servers.is_empty() {
            servers.insert(String::new(), Facts::default());
        }
        self.judge(servers)
    }

    fn judge(&self, servers: HashMap<String, Facts>) -> Result<Report, Error> {
        let mut report = Report {
            version: None,
            warnings: Vec::new(),
        };
        let mut oldest: Option<(u32, u32)> = None;
        for (address, facts) in &servers {
            if let Some(version) = facts.get("redis_version") {
                let number = major_minor(version);
                if number < OLDEST {
                    return Err(refused(
                        address,
                        &format!("it is Redis {version}; 7.0 is needed"),
                    ));
                }
                if oldest.is_none_or(|oldest| number < oldest) {
                    oldest = Some(number);
                    report.version = Some(version.clone());
                }
            } else {
                report.warnings.push(Warning::NotChecked("the version"));
            }
            match facts.get("maxmemory_policy") {
                Some(policy) if policy == "noeviction" => {}
                Some(policy) if self.inner.eviction_allowed => {
                    report.warnings.push(Warning::Eviction(policy.clone()));
                }
                Some(policy) => {
                    let why = format!(
                        "its maxmemory-policy is {policy}, which drops records to make room, and a \
                         call whose record is gone runs again; set it to noeviction"
                    );
                    return Err(refused(address, &why));
                }
                None => {
                    let what = "whether records may be evicted (maxmemory-policy)";
                    report.warnings.push(Warning::NotChecked(what));
                }
            }
            self.judge_durability(facts, &mut report.warnings);
        }
        for warning in &report.warnings {
            tracing::warn!(store = "redis", "{warning}");
        }
        Ok(report)
    }

    fn judge_durability(&self, facts: &Facts, warnings: &mut Vec<Warning>) {
        match facts.get("aof_enabled").map(String::as_str) {
            Some("0") => warnings.push(Warning::NotPersistent),
            Some(_) => match facts.get("appendfsync").map(String::as_str) {
                Some("no") => warnings.push(Warning::FsyncLeftToSystem),
                Some(_) => {}
                None => warnings.push(Warning::NotChecked("how often appendonly is flushed")),
            },
            None => warnings.push(Warning::NotChecked("whether records survive a restart")),
        }
        let number = |name| facts.get(name).and_then(|text| text.parse::<usize>().ok());
        let connected = number("connected_slaves");
        let required = number("min_replicas_to_write");
        match (self.inner.replicas, connected) {
            (Some(wanted), Some(connected)) if connected < wanted.count => {
                warnings.push(Warning::TooFewReplicas(connected));
            }
            (Some(_), Some(_)) => {}
            (None, Some(connected)) => {
                if connected > 0 && required.unwrap_or_default() == 0 {
                    warnings.push(Warning::ReplicationNotAwaited);
                }
            }
            (_, None) => warnings.push(Warning::NotChecked("how many replicas there are")),
        }
    }
}

fn refused(address: &str, why: &str) -> Error {
    let server = if address.is_empty() {
        "the server"
    } else {
        address
    };
    Error::new(ErrorKind::Schema).detail(format!("{server} cannot keep records: {why}"))
}

/// Names and values, the names written with underscores.
#[derive(Debug, Default)]
struct Facts(HashMap<String, String>);

impl Facts {
    fn get(&self, name: &str) -> Option<&String> {
        self.0.get(name)
    }

    fn learn(&mut self, facts: impl IntoIterator<Item = (String, String)>) {
        for (name, value) in facts {
            let name = match name.as_str() {
                // The setting; the other name is that of `INFO`.
                "appendonly" => {
                    let enabled = if value == "yes" { "1" } else { "0" };
                    self.0.insert("aof_enabled".to_owned(), enabled.to_owned());
                    continue;
                }
                name => name.replace('-', "_"),
            };
            self.0.insert(name, value);
        }
    }
}

fn lines(info: Value) -> Vec<(String, String)> {
    let text: String = from_redis_value(info).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect()
}

fn pairs(settings: Value) -> HashMap<String, String> {
    from_redis_value(settings).unwrap_or_default()
}

fn major_minor(version: &str) -> (u32, u32) {
    let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}
