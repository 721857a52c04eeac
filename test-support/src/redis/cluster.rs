//! A cluster of masters on the loopback interface.

use super::{RedisServer, Reply};

const SLOTS: u16 = 16_384;

/// Masters that share the slots evenly. They end when this is dropped.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts a cluster of so many masters and waits until all of them serve.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start(masters: u16) -> Self {
        let settings = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];
        let nodes: Vec<_> = (0..masters)
            .map(|_| RedisServer::start(&settings))
            .collect();
        let share = |n: u16| u32::from(SLOTS) * u32::from(n) / u32::from(masters);
        for (n, node) in (0..).zip(&nodes) {
            let (first, last) = (share(n).to_string(), (share(n + 1) - 1).to_string());
            node.command(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(n + 1).to_string()]);
            let first = nodes[0].port().to_string();
            node.command(&["CLUSTER", "MEET", "127.0.0.1", &first]);
        }
        for node in &nodes {
            let known = format!("cluster_known_nodes:{masters}\r");
            node.wait_until(&["CLUSTER", "INFO"], |info| {
                let info = info.text();
                info.contains("cluster_state:ok") && info.contains(&known)
            });
        }
        Self { nodes }
    }

    /// The nodes' URLs.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }

    /// The nodes.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The nodes, to kill one.
    #[must_use]
    pub fn nodes_mut(&mut self) -> &mut [RedisServer] {
        &mut self.nodes
    }

    /// The slot of a key.
    #[must_use]
    pub fn slot_of(&self, key: &str) -> u16 {
        let slot = self.nodes[0].command(&["CLUSTER", "KEYSLOT", key]);
        u16::try_from(slot.number()).expect("a slot's number")
    }

    /// The node that serves a slot.
    ///
    /// # Panics
    /// When none does.
    #[must_use]
    pub fn owner_of(&self, slot: u16) -> usize {
        let slot = slot.to_string();
        let serves = |node: &RedisServer| {
            let keys = node.command(&["CLUSTER", "NODES"]).text();
            keys.lines()
                .filter(|line| line.contains("myself"))
                .any(|line| {
                    line.split(' ').skip(8).any(|range| {
                        let (first, last) = range.split_once('-').unwrap_or((range, range));
                        let number = |text: &str| text.parse::<u16>().ok();
                        let (first, last) = (number(first), number(last));
                        let slot = number(&slot);
                        first <= slot && slot <= last && first.is_some() && last.is_some()
                    })
                })
        };
        self.nodes
            .iter()
            .position(serves)
            .expect("every slot is served")
    }

    /// Moves a slot with its keys to another node while it is in use.
    ///
    /// # Panics
    /// When a node refuses.
    pub fn migrate_slot(&self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        let (source, target) = (&self.nodes[from], &self.nodes[to]);
        let id = |node: &RedisServer| node.command(&["CLUSTER", "MYID"]).text();
        let (source_id, target_id) = (id(source), id(target));
        target.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]);
        source.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]);
        let port = target.port().to_string();
        loop {
            let keys = source
                .command(&["CLUSTER", "GETKEYSINSLOT", &slot, "10"])
                .texts();
            if keys.is_empty() {
                break;
            }
            let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            migrate.extend(keys.iter().map(String::as_str));
            match source.try_command(&migrate) {
                Reply::Error(error) => panic!("{migrate:?}: {error}"),
                _ => continue,
            }
        }
        for node in [target, source].into_iter().chain(&self.nodes) {
            node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]);
        }
    }
}
