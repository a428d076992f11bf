//! Volumes and buckets.

use bytes::Bytes;
use ozone_common::Error;
use ozone_common::name::VolumeName;
use ozone_common::replication::Replication;
use ozone_proto::common::v1::Durability;
use ozone_proto::om::v1::{self as om, om_response::Op};

use super::{Context, Om, reply};
use crate::core::command::{Command, CreateBucket, InlinePolicy};
use crate::core::{list, read};
use crate::log::Log;
use crate::prepare::convert;

impl<L: Log> Om<L> {
    pub(super) async fn create_volume(&self, context: &Context<'_>, request: om::CreateVolume) -> Result<Bytes, Error> {
        let volume = VolumeName::new(request.volume)?;
        self.change(context, Command::CreateVolume { volume, owner: context.owner(request.owner)? }).await
    }

    pub(super) async fn info_volume(&self, request: om::InfoVolume) -> Result<Bytes, Error> {
        let volume = VolumeName::new(request.volume)?;
        self.log.read_barrier().await?;
        Ok(reply(Op::Volume(read::info_volume(&**self.log.store(), volume.as_str())?)))
    }

    pub(super) async fn list_volumes(&self, request: om::ListVolumes) -> Result<Bytes, Error> {
        let page = self.read_many(move |view| list::volumes(view, &request)).await?;
        Ok(reply(Op::Volumes(page)))
    }

    pub(super) async fn delete_volume(&self, context: &Context<'_>, request: om::DeleteVolume) -> Result<Bytes, Error> {
        let volume = VolumeName::new(request.volume)?;
        self.change(context, Command::DeleteVolume { volume }).await
    }

    pub(super) async fn create_bucket(&self, context: &Context<'_>, request: om::CreateBucket) -> Result<Bytes, Error> {
        let inline = match request.inline {
            0 => InlinePolicy::Auto,
            1 => InlinePolicy::Always,
            2 => InlinePolicy::Never,
            other => return Err(Error::invalid(format!("inline policy {other} is not known"))),
        };
        let memory_durability = match Durability::try_from(request.durability) {
            Ok(Durability::Unspecified | Durability::Disk) => false,
            Ok(Durability::Memory) => true,
            Err(_) => return Err(Error::invalid(format!("durability {} is not known", request.durability))),
        };
        let create = CreateBucket {
            address: convert::address(request.address)?,
            owner: context.owner(request.owner)?,
            replication: read::parse_replication(&request.replication, Replication::default())?,
            memory_durability,
            inline,
            create_volume: request.create_volume,
            members: self.members(),
        };
        self.change(context, Command::CreateBucket(create)).await
    }

    pub(super) async fn info_bucket(&self, request: om::InfoBucket) -> Result<Bytes, Error> {
        let address = convert::address(request.address)?;
        self.log.read_barrier().await?;
        let info = read::info_bucket(&**self.log.store(), &address, self.inline_setting(), self.members())?;
        Ok(reply(Op::Bucket(info)))
    }

    pub(super) async fn list_buckets(&self, request: om::ListBuckets) -> Result<Bytes, Error> {
        let (setting, members) = (self.inline_setting(), self.members());
        VolumeName::new(request.volume.clone())?;
        let page = self.read_many(move |view| list::buckets(view, &request, setting, members)).await?;
        Ok(reply(Op::Buckets(page)))
    }

    pub(super) async fn delete_bucket(&self, context: &Context<'_>, request: om::DeleteBucket) -> Result<Bytes, Error> {
        let address = convert::address(request.address)?;
        self.change(context, Command::DeleteBucket { address }).await
    }
}
