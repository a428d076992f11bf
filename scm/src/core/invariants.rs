//! What must hold of the SCM's state, by name. Plain functions over a view: they serve property tests, simulation and offline checks.

use std::collections::BTreeMap;

use ozone_common::id::{ContainerId, LOCAL_MAX};
use ozone_kvstore::{Read, Result};

use crate::tables::container::{self, Container, ContainerState};
use crate::tables::sequence::Sequence;
use crate::tables::{deleted_block, node};

/// A broken invariant: its name, and what broke it.
pub type Violation = (&'static str, String);

/// All containers of a view.
pub fn containers(view: &dyn Read) -> Result<BTreeMap<ContainerId, Container>> {
    container::scan(view, 0)?.map(|container| container.map(|container| (container.id, container))).collect()
}

/// Checks a state by itself.
pub fn check_state(view: &dyn Read) -> Result<Vec<Violation>> {
    let mut found = Vec::new();
    let all = containers(view)?;
    let last = Sequence::Container.last(view)?;
    for container in all.values() {
        let id = container.id;
        let mut members = container.members.clone();
        members.sort_unstable();
        members.dedup();
        let mut broken = |name, holds: bool| {
            if !holds {
                found.push((name, format!("{container:?}")));
            }
        };
        broken("a container's id is one that was given out", id.get() <= last);
        broken("a container's members differ", members.len() == container.members.len());
        broken(
            "a container has at most as many members as replicas",
            members.len() <= container.replication.replicas(),
        );
        broken("every container keeps min_replicas members", members.len() >= container.replication.min_replicas());
        broken("epochs begin at 1", container.epoch >= 1);
        broken("local numbers lie in 1 to the limit", (1..=LOCAL_MAX + 1).contains(&container.next_local));
        broken("a container without local numbers is spent", container.locals_left() > 0 || container.spent_ms > 0);
        broken("a CLOSED container was reported", container.state != ContainerState::Closed || container.reported);
        for member in members {
            if node::get(view, member)?.is_none() {
                found.push(("every member has a record", format!("{member} of {container:?}")));
            }
        }
    }
    let mut index: Vec<_> = all.values().filter_map(container::key_in_index).collect();
    index.sort_unstable();
    if index != container::active_keys(view)? {
        found.push(("the index holds exactly the unsettled containers", format!("{index:?}")));
    }
    let last = Sequence::DeleteTransaction.last(view)?;
    for deletion in deleted_block::scan(view, 0)? {
        let deletion = deletion?;
        if deletion.transaction > last {
            found.push(("a transaction's number is one that was given out", format!("{deletion:?}")));
        }
        for (id, ranges) in &deletion.containers {
            let known = all.get(id);
            let inside = |r: &deleted_block::Range| {
                r.first > 0 && r.count > 0 && known.is_some_and(|c| r.first + r.count <= c.next_local)
            };
            if ranges.is_empty() || !ranges.iter().all(inside) {
                found.push(("only blocks that were handed out are deleted", format!("{deletion:?}")));
            }
        }
    }
    Ok(found)
}

/// Checks that a later state may follow an earlier one.
pub fn check_step(
    before: &BTreeMap<ContainerId, Container>,
    after: &BTreeMap<ContainerId, Container>,
) -> Vec<Violation> {
    let mut found = Vec::new();
    for (id, old) in before {
        let Some(new) = after.get(id) else {
            found.push(("a container's record stays", format!("{old:?}")));
            continue;
        };
        let mut broken = |name, holds: bool| {
            if !holds {
                found.push((name, format!("{old:?} became {new:?}")));
            }
        };
        broken("a container's state never goes back", new.state >= old.state);
        broken("an epoch only grows", new.epoch >= old.epoch);
        broken("a change of members is a new epoch", new.members == old.members || new.epoch > old.epoch);
        broken("members only leave", new.members.iter().all(|member| old.has(*member)));
        broken("members leave no CLOSED container", new.members == old.members || old.state <= ContainerState::Closing);
        broken("a block id is given out once", new.next_local >= old.next_local);
        broken("a spent or closing container gives out nothing", {
            new.next_local == old.next_local || (old.state == ContainerState::Open && old.spent_ms == 0)
        });
        broken("reservations only grow", new.reserved_bytes >= old.reserved_bytes);
        broken("a reported container stays one", new.reported || !old.reported);
        broken("a container keeps its replication", new.replication == old.replication);
    }
    found
}
