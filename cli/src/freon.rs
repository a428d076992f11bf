//! `ozone freon`: load of known kinds, and what it cost.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use ozone_bench::{KeySpace, Load, Report, ockg, ockv, s3kg};
use ozone_client::proto::om::v1 as om;
use ozone_common::name::{BucketName, VolumeName};
use ozone_common::replication::Replication;
use ozone_common::{Error, ErrorCode};

use crate::connect::{ClusterArgs, Connection, Needs, block_on};
use crate::progress::Progress;
use crate::render::Output;
use crate::sh::{DurabilityArg, InlineArg};

/// What the parser knows about `ozone freon`.
#[derive(Args, Debug)]
pub struct Freon {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Writes keys through the client library
    Ockg {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        new: NewBucket,
        #[command(flatten)]
        load: Load,
        #[command(flatten)]
        keys: KeySpace,
    },
    /// Reads the keys that ockg wrote and compares every byte
    ///
    /// Prefix, size, seed and number must be those that ockg was told.
    Ockv {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        load: Load,
        #[command(flatten)]
        keys: KeySpace,
    },
    /// Sends S3 requests, in any mix
    S3kg {
        #[command(flatten)]
        options: s3kg::Options,
        #[command(flatten)]
        load: Load,
        #[command(flatten)]
        keys: KeySpace,
    },
}

/// Which bucket.
#[derive(Args, Debug)]
struct Place {
    /// The volume
    #[arg(short, long, default_value = "vol1", value_parser = |text: &str| VolumeName::new(text))]
    volume: VolumeName,
    /// The bucket
    #[arg(short, long, default_value = "bucket1", value_parser = |text: &str| BucketName::new(text))]
    bucket: BucketName,
}

/// How a bucket is made that is not there yet.
#[derive(Args, Debug)]
struct NewBucket {
    /// Copies of each block: ONE or THREE, where the bucket is made
    #[arg(short, long, value_name = "FACTOR")]
    replication: Option<Replication>,
    /// When a write is answered, where the bucket is made
    #[arg(long, value_enum, default_value = "disk")]
    durability: DurabilityArg,
    /// Whether small values live in the OM, where the bucket is made
    #[arg(long, value_enum, default_value = "auto")]
    inline: InlineArg,
}

impl Freon {
    /// Runs the load. Fails where an operation failed.
    pub fn run(self) -> Result<ExitCode> {
        let output = self.output;
        let report = match self.command {
            Command::Ockg { place, new, load, keys } => self.cluster.run(Needs::Om, None, async |at| {
                let bucket = place.make(&at, &new).await?;
                ockg::run(&at.client, &bucket, &load, &keys, shown("ockg", &load)).await
            }),
            Command::Ockv { place, load, keys } => self.cluster.run(Needs::Om, None, async |at| {
                ockv::run(&at.client, &place.address(), &load, &keys, shown("ockv", &load)).await
            }),
            Command::S3kg { options, load, keys } => {
                block_on(async { s3kg::run(&load, &keys, &options, shown("s3kg", &load)).await })
            }
        }?;
        output.show(&report, || report.text())?;
        Ok(judge(&report))
    }
}

/// A load that failed in part is no success to a script.
fn judge(report: &Report) -> ExitCode {
    if report.errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn shown(what: &str, load: &Load) -> impl Fn(u64) + Send + Sync + 'static {
    let progress = Progress::operations(what.to_owned(), load.duration.is_none().then_some(load.number_of_tests));
    move |n| progress.set(n)
}

impl Place {
    fn address(&self) -> om::BucketAddress {
        om::BucketAddress { volume: self.volume.to_string(), bucket: self.bucket.to_string() }
    }

    /// The bucket, made with its volume where it is absent.
    async fn make(&self, at: &Connection, new: &NewBucket) -> Result<om::BucketInfo> {
        let request = om::CreateBucket {
            address: Some(self.address()),
            owner: String::new(),
            replication: new.replication.map(|replication| replication.to_string()).unwrap_or_default(),
            durability: new.durability.wire() as i32,
            inline: new.inline.wire() as i32,
            create_volume: true,
        };
        match at.client.create_bucket(&at.context(), request).await {
            Err(Error { code: ErrorCode::BucketAlreadyExists, .. }) => {}
            made => return Ok(made?),
        }
        let request = om::InfoBucket { address: Some(self.address()) };
        Ok(at.client.info_bucket(&at.context(), request).await?)
    }
}
