//! Customers: a given number of connections, each placing one order after another.
//!
//! In: an address and an amount. Out: `N requests` and the mean latency, as the customers saw it.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;

/// When to stop.
#[derive(Clone, Copy)]
pub(crate) enum Amount {
    /// After so many requests, all connections together.
    Requests(u64),
    /// After so many seconds.
    Seconds(u64),
}

/// What one customer, or all, did.
#[derive(Default)]
struct Done {
    requests: u64,
    time: Duration,
}

/// Places the orders and prints how many were answered. A customer waits for `pause` between two orders.
pub(crate) fn load(
    address: &str,
    connections: usize,
    amount: Amount,
    pause: Duration,
) -> Result<()> {
    let next = AtomicU64::new(0);
    let start = Instant::now();
    let more = || {
        let order = next.fetch_add(1, Ordering::Relaxed);
        let go_on = match amount {
            Amount::Requests(requests) => order < requests,
            Amount::Seconds(seconds) => start.elapsed() < Duration::from_secs(seconds),
        };
        go_on.then_some(order)
    };
    let customers = thread::scope(|scope| {
        let customers: Vec<_> = (0..connections)
            .map(|_| scope.spawn(|| customer(address, pause, &more)))
            .collect();
        customers
            .into_iter()
            .map(|customer| {
                customer
                    .join()
                    .map_err(|_| "a customer panicked")?
                    .map_err(Into::into)
            })
            .collect::<Result<Vec<Done>>>()
    })?;
    let all = customers
        .into_iter()
        .fold(Done::default(), |all, one| Done {
            requests: all.requests + one.requests,
            time: all.time + one.time,
        });
    println!("{} requests", all.requests);
    if all.requests > 0 {
        let mean_us = all.time.as_micros() / u128::from(all.requests);
        println!("mean latency {mean_us} us");
    }
    Ok(())
}

fn customer(address: &str, pause: Duration, more: &impl Fn() -> Option<u64>) -> io::Result<Done> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut order_to = &stream;
    let mut answers = BufReader::new(&stream);
    let mut answer = String::new();
    let mut done = Done::default();
    while let Some(order) = more() {
        let start = Instant::now();
        order_to.write_all(format!("order {order}\n").as_bytes())?;
        answer.clear();
        answers.read_line(&mut answer)?;
        if answer != format!("ok {order}\n") {
            return Err(io::Error::other(format!("order {order} got {answer:?}")));
        }
        done.time += start.elapsed();
        done.requests += 1;
        thread::sleep(pause);
    }
    // Wait until the shop has closed too: then its log has our requests.
    stream.shutdown(std::net::Shutdown::Write)?;
    answers.read_line(&mut answer)?;
    Ok(done)
}
