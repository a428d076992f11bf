//! The moment at which a writer's blocks become part of a key: each must come from a live grant of this writer, once.

use std::collections::BTreeMap;

use ozone_common::id::{BlockId, ClientId, GrantId};
use ozone_common::replication::Replication;
use ozone_common::{Error, ErrorCode};
use ozone_proto::common::v1::Block;

use super::Stop;
use super::grant::own;
use super::tx::Tx;
use crate::tables::grant::{self, GrantRow};

/// LIMIT: blocks that one commit may name; 5 TiB need 20,480 of 256 MiB.
pub const BLOCKS_PER_COMMIT_MAX: usize = 32_768;
/// LIMIT: grants that one commit may name.
pub const GRANTS_PER_COMMIT_MAX: usize = 512;

/// Checks blocks of `length` bytes together and marks them used.
///
/// # Errors
/// `GrantExpired`: a grant has ended. `InvalidBlock`: a block is of none of the grants, was used before, is longer than granted,
/// has another epoch than the grant's or the last recorded one, or was granted with another replication. `InvalidArgument`: the lengths do not add up.
pub(super) fn claim(
    tx: &mut Tx<'_>,
    holder: ClientId,
    replication: Replication,
    grants: &[GrantId],
    blocks: &[Block],
    length: u64,
) -> Result<(), Stop> {
    if blocks.len() > BLOCKS_PER_COMMIT_MAX || grants.len() > GRANTS_PER_COMMIT_MAX {
        return Err(Error::new(
            ErrorCode::TooLarge,
            format!("a commit of {} blocks from {} grants", blocks.len(), grants.len()),
        )
        .into());
    }
    let sum = blocks.iter().try_fold(0u64, |sum, block| sum.checked_add(block.length));
    if sum != Some(length) {
        return Err(Error::invalid(format!("the blocks' lengths do not add up to {length}")).into());
    }
    let rows = grants
        .iter()
        .map(|id| own(tx, *id, holder).map(|row| (*id, row)))
        .collect::<Result<Vec<(GrantId, GrantRow)>, Stop>>()?;
    let mut words: BTreeMap<(GrantId, u8), u64> = BTreeMap::new();
    // Blocks of one grant come together, so the last one that matched is tried first.
    let mut last = 0;
    for block in blocks {
        let refuse = |why: String| Stop::Refused(Error::new(ErrorCode::InvalidBlock, why));
        let id = BlockId::new(block.id).ok_or_else(|| refuse(format!("block id {:#x} is not valid", block.id)))?;
        let found = (0..rows.len()).map(|at| (last + at) % rows.len()).find_map(|at| {
            let (grant, row) = rows.get(at)?;
            row.find(id).map(|(number, range)| (at, *grant, row, number, range))
        });
        let Some((at, grant, row, number, range)) = found else {
            return Err(refuse(format!("block {id} is of none of the writer's grants")));
        };
        last = at;
        if block.length == 0 || block.length > row.max_block_length {
            return Err(refuse(format!(
                "block {id} of {} bytes; 1 to {} were granted",
                block.length, row.max_block_length
            )));
        }
        if block.epoch < range.epoch || block.epoch > range.epoch_now() {
            return Err(refuse(format!(
                "block {id} under epoch {}; {} to {} are recorded",
                block.epoch,
                range.epoch,
                range.epoch_now()
            )));
        }
        if row.replication != replication.number() {
            return Err(refuse(format!("block {id} was granted with another replication than {replication}")));
        }
        let word = match words.entry((grant, (number / 64) as u8)) {
            std::collections::btree_map::Entry::Occupied(word) => word.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(grant::get_used(tx.view, grant, (number / 64) as u8)?)
            }
        };
        let bit = 1 << (number % 64);
        if *word & bit != 0 {
            return Err(refuse(format!("block {id} is part of a key already")));
        }
        *word |= bit;
    }
    for ((grant, word), bits) in words {
        grant::put_used(&mut tx.batch, grant, word, bits);
    }
    Ok(())
}
