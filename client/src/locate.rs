//! Datanodes as the transport wants them.

use ozone_common::Error;
use ozone_proto::common::v1::NodeAddress;
use ozone_proto::convert::datanode_id;
use ozone_rpc::data::Target;

/// Where a datanode is reached.
pub(crate) fn target(address: &NodeAddress) -> Result<Target, Error> {
    let datanode = datanode_id(&address.datanode)?;
    let port = u16::try_from(address.data_port)
        .ok()
        .filter(|port| *port != 0)
        .ok_or_else(|| Error::invalid(format!("datanode {datanode} has port {}", address.data_port)))?;
    Ok(Target { datanode, host: address.host.as_str().into(), port })
}

pub(crate) fn targets(addresses: &[NodeAddress]) -> Result<Vec<Target>, Error> {
    addresses.iter().map(target).collect()
}
