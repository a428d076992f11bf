//! Wire messages of every role, generated from the `.proto` files beside this folder.
//!
//! Wire types stay at the edge: [`convert`] turns them into domain types (`ozone_common`) once, where they arrive,
//! so that nothing behind the edge meets an id of the wrong length or an unknown enum.

#![allow(missing_docs, reason = "generated code; the .proto files carry the documentation")]

pub mod convert;

/// Types that more than one role speaks of.
pub mod common {
    pub mod v1 {
        tonic::include_proto!("ozone.common.v1");
    }
}

/// Sessions: numbered calls on one gRPC stream.
pub mod rpc {
    pub mod v1 {
        tonic::include_proto!("ozone.rpc.v1");
    }
}

/// The key-space manager's operations.
pub mod om {
    pub mod v1 {
        tonic::include_proto!("ozone.om.v1");
    }
}

/// The container manager's operations and the datanodes' heartbeat.
pub mod scm {
    pub mod v1 {
        tonic::include_proto!("ozone.scm.v1");
    }
}

/// Headers of the framed block transport.
pub mod datanode {
    pub mod v1 {
        tonic::include_proto!("ozone.datanode.v1");
    }
}
