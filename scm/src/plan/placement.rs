//! Which nodes a new container goes to.
//!
//! Nodes that are healthy, not excluded and have room are candidates; suspects (their stream just broke) are taken only to reach
//! `min_replicas`. Among candidates load and free space decide, by the better of two random draws: always the best one would send every
//! new container to the same node until its load is seen.

use std::fmt;

use ozone_common::id::DatanodeId;
use ozone_common::replication::Replication;
use ozone_common::{Error, ErrorCode};

/// What is known of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Which.
    pub id: DatanodeId,
    /// Its heartbeats come in time.
    pub healthy: bool,
    /// Its stream broke and did not come back yet, or it failed a writer lately.
    pub suspect: bool,
    /// The caller wants none of it.
    pub excluded: bool,
    /// Bytes that its best disk volumes still take.
    pub available: u64,
    /// Open containers that it is a member of.
    pub open_containers: u32,
}

/// Why no container can be placed; counts are of nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Insufficient {
    /// For which replication.
    pub replication: Replication,
    /// Least number of candidates.
    pub needed: usize,
    /// Registered since start.
    pub known: usize,
    /// Of these, healthy.
    pub healthy: usize,
    /// Of the healthy, excluded by the caller.
    pub excluded: usize,
    /// Of the rest, without room.
    pub full: usize,
}

impl fmt::Display for Insufficient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { replication, needed, known, healthy, excluded, full } = self;
        write!(
            f,
            "{replication} needs {needed} datanodes; {known} are known, {healthy} healthy, {excluded} excluded by the caller, \
             {full} without room"
        )
    }
}

impl From<Insufficient> for Error {
    fn from(error: Insufficient) -> Self {
        let mut error = Error::new(ErrorCode::InsufficientDatanodes, error.to_string());
        error.retry_after_ms = Some(RETRY_AFTER_MS);
        error
    }
}

/// What a refused caller is told to wait.
pub const RETRY_AFTER_MS: u32 = 200;

/// Nodes on which blocks may be written now, sorted: those that containers may be opened on or go on being used.
///
/// # Errors
/// Where they are fewer than `needed`.
pub fn usable(
    replication: Replication,
    needed: usize,
    min_available: u64,
    candidates: &[Candidate],
) -> Result<Vec<Candidate>, Insufficient> {
    let healthy = || candidates.iter().filter(|c| c.healthy);
    let wanted = || healthy().filter(|c| !c.excluded);
    let mut pool: Vec<Candidate> = wanted().filter(|c| c.available >= min_available).copied().collect();
    let error = Insufficient {
        replication,
        needed,
        known: candidates.len(),
        healthy: healthy().count(),
        excluded: healthy().count() - wanted().count(),
        full: wanted().count() - pool.len(),
    };
    if pool.len() < needed {
        return Err(error);
    }
    // Suspects come last, and only as many as are needed.
    pool.sort_by_key(|c| (c.suspect, c.id));
    let sound = pool.iter().filter(|c| !c.suspect).count();
    pool.truncate(sound.max(needed));
    pool.sort_by_key(|c| c.id);
    Ok(pool)
}

/// Chooses members out of [`usable`] nodes: as many as the replication has, fewer (a degraded container) where there are not more.
/// `draw(n)` gives a random number below `n`.
pub fn place(replication: Replication, usable: &[Candidate], draw: &mut dyn FnMut(u64) -> u64) -> Vec<DatanodeId> {
    let mut pool = usable.to_vec();
    let mut members = Vec::with_capacity(replication.replicas());
    while members.len() < replication.replicas() && !pool.is_empty() {
        let one = draw(pool.len() as u64) as usize % pool.len();
        let other = draw(pool.len() as u64) as usize % pool.len();
        let better = if worse(&pool[one], &pool[other]) { other } else { one };
        members.push(pool.swap_remove(better).id);
    }
    members
}

/// Less load first; at equal load more space.
fn worse(a: &Candidate, b: &Candidate) -> bool {
    (a.open_containers, std::cmp::Reverse(a.available)) > (b.open_containers, std::cmp::Reverse(b.available))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn node(n: u8) -> Candidate {
        let id = DatanodeId::from_bytes([n; 16]);
        Candidate { id, healthy: true, suspect: false, excluded: false, available: 100, open_containers: 0 }
    }

    fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
        let one = (any::<[bool; 3]>(), 0..3u64, 0..4u32);
        prop::collection::vec(one, 0..9).prop_map(|all| {
            let with =
                |(n, ([healthy, suspect, excluded], available, open_containers)): (u8, ([bool; 3], u64, u32))| {
                    Candidate { healthy, suspect, excluded, available: available * 50, open_containers, ..node(n) }
                };
            (0..).zip(all).map(with).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn members_are_candidates_and_as_many_as_can_be(all in candidates(), three in any::<bool>(), seed in any::<u64>()) {
            let replication = if three { Replication::Three } else { Replication::One };
            let needed = replication.min_replicas();
            let fit = |c: &&Candidate| c.healthy && !c.excluded && c.available >= 50;
            let (fitting, sound) = (all.iter().filter(fit).count(), all.iter().filter(fit).filter(|c| !c.suspect).count());
            match usable(replication, needed, 50, &all) {
                Err(error) => {
                    prop_assert!(fitting < needed);
                    prop_assert_eq!(error.known, all.len());
                    prop_assert_eq!(error.healthy - error.excluded - error.full, fitting, "the message's numbers add up");
                }
                Ok(pool) => {
                    prop_assert!(pool.iter().all(|c| fit(&c)));
                    prop_assert_eq!(pool.len(), sound.max(needed));
                    prop_assert!(pool.iter().filter(|c| !c.suspect).count() == sound, "no sound one is left out");
                    prop_assert!(pool.is_sorted_by(|a, b| a.id < b.id));
                    let mut state = seed;
                    let members = place(replication, &pool, &mut |n| {
                        state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                        (state >> 33) % n
                    });
                    prop_assert_eq!(members.len(), replication.replicas().min(pool.len()));
                    prop_assert!(members.len() >= needed);
                    let mut distinct = members.clone();
                    distinct.sort_unstable();
                    distinct.dedup();
                    prop_assert_eq!(distinct.len(), members.len());
                    prop_assert!(members.iter().all(|id| pool.iter().any(|c| c.id == *id)));
                }
            }
        }
    }

    #[test]
    fn load_and_space_spread_containers() {
        let mut nodes: Vec<Candidate> = (0..6).map(node).collect();
        nodes[5].available = 1_000_000;
        let mut state = 1u64;
        let mut draw = |n| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        for _ in 0..100 {
            for id in place(Replication::Three, &nodes, &mut draw) {
                nodes.iter_mut().find(|c| c.id == id).unwrap().open_containers += 1;
            }
        }
        let loads: Vec<u32> = nodes.iter().map(|c| c.open_containers).collect();
        assert_eq!(loads.iter().sum::<u32>(), 300);
        assert!(loads.iter().all(|load| (45..=55).contains(load)), "{loads:?}");
    }

    #[test]
    fn the_refusal_names_its_numbers() {
        let mut nodes: Vec<Candidate> = (0..4).map(node).collect();
        nodes[0].healthy = false;
        nodes[1].excluded = true;
        nodes[2].available = 0;
        let error = Error::from(usable(Replication::Three, 2, 1, &nodes).unwrap_err());
        assert_eq!(error.code, ErrorCode::InsufficientDatanodes);
        assert_eq!(
            error.message,
            "RATIS/THREE needs 2 datanodes; 4 are known, 3 healthy, 1 excluded by the caller, 1 without room"
        );
    }
}
