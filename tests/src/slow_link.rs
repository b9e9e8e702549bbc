//! A link that answers late: a server's port in, a port of the loopback out.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::Result;

/// Opens a link to a port of the loopback: what the side that connects
/// sends takes so much longer.
///
/// # Errors
///
/// When the loopback cannot be bound to.
pub fn open(to: u16, delay: Duration) -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, to)) else {
                continue;
            };
            // Who is at either end sees what goes wrong.
            drop(join(&client, &server, delay));
        }
    });
    Ok(port)
}

fn join(client: &TcpStream, server: &TcpStream, delay: Duration) -> Result<()> {
    for (from, to, delay) in [(client, server, delay), (server, client, Duration::ZERO)] {
        to.set_nodelay(true)?;
        let (from, to) = (from.try_clone()?, to.try_clone()?);
        thread::spawn(move || pass(&from, &to, delay));
    }
    Ok(())
}

fn pass(mut from: &TcpStream, mut to: &TcpStream, delay: Duration) {
    let mut buffer = [0; 1 << 16];
    while let Ok(read) = from.read(&mut buffer) {
        thread::sleep(delay);
        if read == 0 || to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    // Fails if the other end is gone.
    drop(to.shutdown(Shutdown::Write));
}
