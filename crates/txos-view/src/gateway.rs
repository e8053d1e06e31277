//! Sockets in the view's own network namespace, made for the manager, which lets members out through
//! them: it cannot make any there itself, because an ordinary user may not enter the namespace.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with},
};

use crate::{Channel, FromView, Result, ViewError, ViewSpec};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// Makes a listening socket and one for datagrams for each address family, on loopback, at ports of the
/// kernel's choice, and sends them to the manager. A family that the kernel lacks has none.
pub(crate) fn open(spec: &ViewSpec, channel: &Channel) -> Result<()> {
    if !spec.gateway {
        return Ok(());
    }
    let failed = |errno| ViewError::step("make a gateway for the network", errno);
    let loopback = [
        (AddressFamily::INET, SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
        (AddressFamily::INET6, SocketAddr::from((Ipv6Addr::LOCALHOST, 0))),
    ];
    for (family, address) in loopback {
        for kind in [SocketType::STREAM, SocketType::DGRAM] {
            match socket(family, kind, &address) {
                Ok(socket) => channel.send(&FromView::Gateway, Some(socket.as_fd()))?,
                Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
    }
    Ok(())
}

fn socket(
    family: AddressFamily,
    kind: SocketType,
    address: &SocketAddr,
) -> std::result::Result<OwnedFd, Errno> {
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    bind(&socket, address)?;
    if kind == SocketType::STREAM {
        listen(&socket, BACKLOG)?;
    }
    Ok(socket)
}
