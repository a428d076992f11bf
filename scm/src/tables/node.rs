//! Datanodes that ever registered: where they are, and which run of the process it was.

use bytes::Bytes;
use ozone_common::id::DatanodeId;
use ozone_kvstore::{Batch, Read, Result, Table};
use prost::Message;

use super::corrupt;

/// Datanode id (16 bytes) → [`Node`].
pub const NODES: Table = Table("node");

/// A datanode's record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its id.
    pub id: DatanodeId,
    /// Where clients reach it.
    pub host: String,
    /// Port of the block transport.
    pub data_port: u16,
    /// Port of its status pages.
    pub http_port: u16,
    /// One run of the process; another one means that it restarted.
    pub incarnation: [u8; 16],
    /// Version of its software.
    pub version: String,
    /// UTC milliseconds of its first registration.
    pub registered_ms: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Stored {
    #[prost(string, tag = "1")]
    host: String,
    #[prost(uint32, tag = "2")]
    data_port: u32,
    #[prost(uint32, tag = "3")]
    http_port: u32,
    #[prost(bytes = "bytes", tag = "4")]
    incarnation: Bytes,
    #[prost(string, tag = "5")]
    version: String,
    #[prost(uint64, tag = "6")]
    registered_ms: u64,
}

impl Node {
    pub(crate) fn encode(&self) -> Vec<u8> {
        Stored {
            host: self.host.clone(),
            data_port: self.data_port.into(),
            http_port: self.http_port.into(),
            incarnation: Bytes::copy_from_slice(&self.incarnation),
            version: self.version.clone(),
            registered_ms: self.registered_ms,
        }
        .encode_to_vec()
    }

    pub(crate) fn decode(key: &[u8], value: &[u8]) -> Result<Self> {
        let stored = Stored::decode(value).map_err(|e| corrupt(NODES, e))?;
        let port = |port: u32| u16::try_from(port).map_err(|_| corrupt(NODES, format!("port {port}")));
        Ok(Self {
            id: DatanodeId::from_slice(key).map_err(|e| corrupt(NODES, e))?,
            host: stored.host,
            data_port: port(stored.data_port)?,
            http_port: port(stored.http_port)?,
            incarnation: stored.incarnation[..].try_into().map_err(|_| corrupt(NODES, "incarnation"))?,
            version: stored.version,
            registered_ms: stored.registered_ms,
        })
    }

    pub(crate) fn put(&self, batch: &mut Batch) {
        batch.put(NODES, self.id.as_bytes().to_vec(), self.encode());
    }
}

/// One datanode.
pub fn get(view: &dyn Read, id: DatanodeId) -> Result<Option<Node>> {
    view.get(NODES, id.as_bytes())?.map(|value| Node::decode(id.as_bytes(), &value)).transpose()
}

/// All datanodes, in order of id.
pub fn all(view: &dyn Read) -> Result<Vec<Node>> {
    let rows = view.scan_prefix(NODES, b"", std::ops::Bound::Unbounded)?;
    rows.map(|row| row.and_then(|(key, value)| Node::decode(&key, &value))).collect()
}
