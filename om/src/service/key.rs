//! Keys.

use bytes::Bytes;
use ozone_common::Error;
use ozone_common::id::{BlockId, BucketId, ContainerId};
use ozone_common::name::KeyName;
use ozone_kvstore::Read;
use ozone_proto::common::v1::{Block, LocatedBlock};
use ozone_proto::om::v1::{self as om, om_response::Op};

use super::{Context, Om, reply};
use crate::core::command::{Address, Command, CommitKey, Data};
use crate::core::list;
use crate::core::read::{self, Found};
use crate::log::Log;
use crate::prepare::convert;

/// Objects of more parts are read on a thread that may block.
const PARTS_INLINE_MAX: u32 = 64;

/// Drops blocks that hold nothing of the range; `length` 0 = to the end.
fn keep_range(blocks: &mut Vec<(BlockId, Block, u64)>, offset: u64, length: u64) {
    let end = if length == 0 { u64::MAX } else { offset.saturating_add(length) };
    blocks.retain(|(_, block, start)| *start < end && start.saturating_add(block.length) > offset);
}

impl<L: Log> Om<L> {
    pub(super) async fn commit_key(&self, context: &Context<'_>, request: om::CommitKey) -> Result<Bytes, Error> {
        let data = if request.is_inline {
            if !request.blocks.is_empty() {
                return Err(Error::invalid("a commit has blocks or inline bytes, not both"));
            }
            Data::Inline(request.inline)
        } else {
            if !request.inline.is_empty() {
                return Err(Error::invalid("inline bytes in a commit that says it has none"));
            }
            Data::Blocks { blocks: request.blocks, grants: convert::grants(request.grants) }
        };
        let commit = CommitKey {
            holder: context.identity.client,
            owner: context.owner(String::new())?,
            address: convert::address(request.bucket)?,
            bucket: (request.bucket_id != 0).then_some(BucketId(request.bucket_id)),
            key: convert::key(request.key)?,
            length: request.length,
            facts: convert::facts(request.meta)?,
            data,
            conditions: convert::conditions(request.conditions)?,
            members: self.members(),
        };
        self.change(context, Command::CommitKey(commit)).await
    }

    pub(super) async fn lookup_key(&self, mut request: om::LookupKey) -> Result<Bytes, Error> {
        let address = convert::address(request.bucket.take())?;
        let key = convert::key(std::mem::take(&mut request.key))?;
        self.log.read_barrier().await?;
        let found = self.find(address, key, &request).await?;
        let Found { info, mut blocks, inline } = found;
        keep_range(&mut blocks, request.data_offset, request.data_length);
        let mut answer = om::KeyFound { info: Some(info), blocks: Vec::new(), inline: Bytes::new(), is_inline: false };
        if let Some(bytes) = inline {
            answer.inline = bytes;
            answer.is_inline = true;
        }
        if !blocks.is_empty() {
            let containers: Vec<ContainerId> = blocks.iter().map(|(id, ..)| id.container()).collect();
            let locations = self.locations.get(&containers, request.refresh).await?;
            let now_ms = self.env.clock.now_ms();
            self.metrics.tokens.increment(blocks.len() as u64);
            answer.blocks = blocks
                .into_iter()
                .zip(locations)
                .map(|((id, block, offset), location)| LocatedBlock {
                    token: Some(self.tokens.read(id, block.epoch, now_ms)),
                    block: Some(block),
                    offset,
                    replicas: location.members.clone(),
                })
                .collect();
        }
        Ok(reply(Op::KeyFound(answer)))
    }

    /// Reads a key's row and, where its bytes or parts are in other rows, those of the same moment: an overwrite in
    /// between must not tear it.
    async fn find(&self, address: Address, key: KeyName, request: &om::LookupKey) -> Result<Found, Error> {
        let (generation, want_data) = (request.generation, request.want_data);
        let many = {
            let store = self.log.store();
            let at = read::find_key(&**store, &address, &key, generation)?;
            if !at.spans_rows(want_data) {
                return Ok(read::describe_key(&**store, &key, &at, want_data)?);
            }
            at.row.etag_parts > PARTS_INLINE_MAX
        };
        let read = move |view: &dyn Read| {
            let at = read::find_key(view, &address, &key, generation)?;
            read::describe_key(view, &key, &at, want_data)
        };
        if many { self.read_many(read).await } else { Ok(read(&*self.log.store().snapshot())?) }
    }

    pub(super) async fn list_keys(&self, request: om::ListKeys) -> Result<Bytes, Error> {
        let address = convert::address(request.bucket.clone())?;
        let page = self.read_many(move |view| list::keys(view, &address, &request)).await?;
        Ok(reply(Op::Keys(page)))
    }

    pub(super) async fn delete_key(&self, context: &Context<'_>, request: om::DeleteKey) -> Result<Bytes, Error> {
        let command = Command::DeleteKey {
            address: convert::address(request.bucket)?,
            key: convert::key(request.key)?,
            conditions: convert::conditions(request.conditions)?,
            must_exist: request.must_exist,
        };
        self.change(context, command).await
    }

    pub(super) async fn delete_keys(&self, context: &Context<'_>, request: om::DeleteKeys) -> Result<Bytes, Error> {
        let address = convert::address(request.bucket)?;
        let keys = request.keys.into_iter().map(convert::key).collect();
        self.change(context, Command::DeleteKeys { address, keys }).await
    }
}
