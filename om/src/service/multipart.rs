//! Multipart uploads.

use bytes::Bytes;
use ozone_common::Error;
use ozone_proto::om::v1::{self as om, om_response::Op};

use super::{Context, Om, reply};
use crate::core::command::{Command, CommitPart, CompleteUpload, InitiateUpload};
use crate::core::list;
use crate::log::Log;
use crate::prepare::convert;

impl<L: Log> Om<L> {
    pub(super) async fn initiate_upload(
        &self,
        context: &Context<'_>,
        request: om::InitiateUpload,
    ) -> Result<Bytes, Error> {
        let initiate = InitiateUpload {
            address: convert::address(request.bucket)?,
            key: convert::key(request.key)?,
            owner: context.owner(String::new())?,
            facts: convert::upload_facts(request.meta)?,
            random: self.env.rng.next_u64(),
        };
        self.change(context, Command::InitiateUpload(initiate)).await
    }

    pub(super) async fn commit_part(&self, context: &Context<'_>, request: om::CommitPart) -> Result<Bytes, Error> {
        let part = CommitPart {
            holder: context.identity.client,
            address: convert::address(request.bucket)?,
            key: convert::key(request.key)?,
            upload: convert::upload(&request.upload)?,
            part: convert::part(request.part)?,
            length: request.length,
            md5: convert::md5(request.md5)?,
            checksum: convert::checksum(request.checksum)?,
            blocks: request.blocks,
            grants: convert::grants(request.grants),
        };
        self.change(context, Command::CommitPart(part)).await
    }

    pub(super) async fn list_parts(&self, request: om::ListParts) -> Result<Bytes, Error> {
        let address = convert::address(request.bucket)?;
        let key = convert::key(request.key)?;
        let upload = convert::upload(&request.upload)?;
        let (after, limit) = (request.after_part, request.limit);
        let page = self.read_many(move |view| list::parts(view, &address, &key, upload, after, limit)).await?;
        Ok(reply(Op::Parts(page)))
    }

    pub(super) async fn list_uploads(&self, request: om::ListUploads) -> Result<Bytes, Error> {
        let address = convert::address(request.bucket.clone())?;
        let page = self.read_many(move |view| list::uploads(view, &address, &request)).await?;
        Ok(reply(Op::Uploads(page)))
    }

    pub(super) async fn complete_upload(
        &self,
        context: &Context<'_>,
        request: om::CompleteUpload,
    ) -> Result<Bytes, Error> {
        let complete = CompleteUpload {
            address: convert::address(request.bucket)?,
            key: convert::key(request.key)?,
            upload: convert::upload(&request.upload)?,
            parts: request.parts,
            checksum: convert::checksum(request.checksum)?,
            expected_length: request.expected_length,
            conditions: convert::conditions(request.conditions)?,
        };
        self.change(context, Command::CompleteUpload(complete)).await
    }

    pub(super) async fn abort_upload(&self, context: &Context<'_>, request: om::AbortUpload) -> Result<Bytes, Error> {
        let command = Command::AbortUpload {
            address: convert::address(request.bucket)?,
            key: convert::key(request.key)?,
            upload: convert::upload(&request.upload)?,
        };
        self.change(context, command).await
    }
}
