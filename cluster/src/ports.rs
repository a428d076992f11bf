//! Ports chosen before anything starts, and held until the roles listen on them.
//!
//! A held port is a socket that is bound and never listens. Roles bind with `SO_REUSEADDR`, which the kernel allows beside it;
//! whoever looks for a free port as this module does is refused. So two clusters that start at once never choose the same.
//! Free ports are looked for below the range from which the kernel gives outgoing connections theirs: a port of that range
//! that is free now may be the near end of somebody's connection when the cluster starts again.

use std::io;
use std::net::SocketAddr;

use ozone_common::env::Rng;
use tokio::net::TcpSocket;

use crate::Error;

/// Where a port comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// This one or none.
    Exactly(u16),
    /// This one where it is free, else any.
    Preferably(u16),
    /// Any free one.
    Any,
}

/// Which end of the cluster a port is for.
#[derive(Clone, Debug)]
pub(crate) struct Purpose {
    /// In messages, such as `the S3 gateway`.
    pub what: String,
    /// The flag that sets it.
    pub flag: &'static str,
}

/// A bound socket; dropping it gives the port up.
pub(crate) struct Held(#[expect(dead_code, reason = "held, never used")] TcpSocket);

/// Free ports are drawn from here up to the kernel's own range.
const FREE_FROM: u16 = 10_000;
/// LIMIT: draws before giving up.
const DRAWS_MAX: usize = 2_000;

/// Takes a port of `address`'s host and holds it.
///
/// # Errors
/// [`Error::PortInUse`] and [`Error::Port`].
pub(crate) fn reserve(
    mut address: SocketAddr,
    wanted: Wanted,
    purpose: &Purpose,
    rng: &dyn Rng,
) -> Result<(SocketAddr, Held), Error> {
    let fail =
        |address: SocketAddr, source| Error::Port { address: address.to_string(), what: purpose.what.clone(), source };
    match wanted {
        Wanted::Exactly(port) => {
            address.set_port(port);
            // Connections of a former run in TIME_WAIT are none of our business here.
            return match hold(address, true) {
                Ok(held) => Ok((address, held)),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    Err(Error::PortInUse { port, what: purpose.what.clone(), flag: purpose.flag })
                }
                Err(error) => Err(fail(address, error)),
            };
        }
        Wanted::Preferably(port) => {
            address.set_port(port);
            if let Ok(held) = hold(address, false) {
                return Ok((address, held));
            }
        }
        Wanted::Any => {}
    }
    let end = kernel_range_start().filter(|start| *start >= FREE_FROM + 2_000).unwrap_or(u16::MAX);
    for _ in 0..DRAWS_MAX {
        let mut random = [0; 4];
        rng.fill(&mut random);
        address.set_port(FREE_FROM + (u32::from_le_bytes(random) % u32::from(end - FREE_FROM)) as u16);
        match hold(address, false) {
            Ok(held) => return Ok((address, held)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(fail(address, error)),
        }
    }
    Err(fail(address, io::Error::new(io::ErrorKind::AddrInUse, "no free port found")))
}

/// Binds; with `shared` also beside other sockets that are bound and do not listen.
fn hold(address: SocketAddr, shared: bool) -> io::Result<Held> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(shared)?;
    socket.bind(address)?;
    // From now on the role may bind beside us.
    socket.set_reuseaddr(true)?;
    Ok(Held(socket))
}

/// First port of those that the kernel gives to outgoing connections.
fn kernel_range_start() -> Option<u16> {
    std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use ozone_common::env::SystemRng;

    use super::*;

    fn check(wanted: Wanted) -> Result<(SocketAddr, Held), Error> {
        let purpose = Purpose { what: "the test".into(), flag: "--test-port" };
        reserve("127.0.0.1:0".parse().unwrap(), wanted, &purpose, &SystemRng)
    }

    #[tokio::test]
    async fn a_held_port_is_free_for_its_role_only() {
        let (address, held) = check(Wanted::Any).unwrap();
        // Another search does not get it, by chance or by preference.
        assert!(hold(address, false).is_err());
        let (other, _) = check(Wanted::Preferably(address.port())).unwrap();
        assert_ne!(other.port(), address.port());
        // The role listens beside it, and goes on when it is given up.
        let role = TcpSocket::new_v4().unwrap();
        role.set_reuseaddr(true).unwrap();
        role.bind(address).unwrap();
        let listener = role.listen(8).unwrap();
        tokio::net::TcpStream::connect(address).await.unwrap();
        drop(held);
        tokio::net::TcpStream::connect(address).await.unwrap();
        // Now it is in use, and said to be.
        let error = check(Wanted::Exactly(address.port())).err().unwrap().to_string();
        assert_eq!(
            error,
            format!(
                "port {} (the test) is in use; stop the process that holds it, or give another with --test-port (0 = any free one)",
                address.port()
            )
        );
        drop(listener);
        check(Wanted::Exactly(address.port())).unwrap();
        check(Wanted::Preferably(1)).unwrap();
    }

    #[tokio::test]
    async fn ports_are_found_below_the_kernels_range() {
        let start = kernel_range_start().unwrap();
        let held: Vec<_> = (0..50).map(|_| check(Wanted::Any).unwrap()).collect();
        let mut ports: Vec<u16> = held.iter().map(|(address, _)| address.port()).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 50, "each is held once");
        assert!(start < FREE_FROM + 2_000 || ports.iter().all(|port| (FREE_FROM..start).contains(port)), "{ports:?}");
    }
}
