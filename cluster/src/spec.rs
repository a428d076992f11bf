//! What a start is asked for.

use std::path::PathBuf;

/// A cluster to start.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    /// Its folder.
    pub data: PathBuf,
    /// How many datanodes; `None` = as at the last start, or 3.
    pub datanodes: Option<u32>,
    /// Ports.
    pub ports: Ports,
    /// `section.key` and value of further settings.
    pub set: Vec<(String, String)>,
}

/// Ports by flag: 0 = any free one; `None` = as at the last start, or the well-known one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// The S3 gateway's.
    pub s3: Option<u16>,
    /// Its status.
    pub s3_http: Option<u16>,
    /// The key-space manager's.
    pub om: Option<u16>,
    /// Its status.
    pub om_http: Option<u16>,
    /// The container manager's.
    pub scm: Option<u16>,
    /// Its status.
    pub scm_http: Option<u16>,
    /// The first datanode's; the others take the ports after it.
    pub datanode: Option<u16>,
    /// Their status, likewise.
    pub datanode_http: Option<u16>,
}

impl Ports {
    /// Any free ones.
    pub const ANY: Self = Self {
        s3: Some(0),
        s3_http: Some(0),
        om: Some(0),
        om_http: Some(0),
        scm: Some(0),
        scm_http: Some(0),
        datanode: Some(0),
        datanode_http: Some(0),
    };
}
