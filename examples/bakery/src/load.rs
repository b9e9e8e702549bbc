//! Customers: each places one order after another, over a connection of its own.
//!
//! In: an address and a number. Out: `N orders` and their mean latency, as the customers saw it.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;

/// Places so many orders, all customers together.
pub(crate) fn load(address: &str, customers: u64, orders: u64) -> Result<()> {
    let next = AtomicU64::new(0);
    let times = thread::scope(|scope| {
        let customers: Vec<_> = (0..customers)
            .map(|_| scope.spawn(|| customer(address, &next, orders)))
            .collect();
        let mut times = Vec::new();
        for customer in customers {
            times.push(customer.join().map_err(|_| "a customer panicked")??);
        }
        Result::Ok(times)
    })?;
    println!("{orders} orders");
    let time: Duration = times.iter().sum();
    if orders > 0 {
        println!("mean latency {} us", time.as_micros() / u128::from(orders));
    }
    Ok(())
}

/// Time that the customer waited in all.
fn customer(address: &str, next: &AtomicU64, orders: u64) -> io::Result<Duration> {
    let mut time = Duration::ZERO;
    loop {
        let order = next.fetch_add(1, Ordering::Relaxed);
        if order >= orders {
            return Ok(time);
        }
        let start = Instant::now();
        let mut bakery = TcpStream::connect(address)?;
        bakery.write_all(format!("bake {order}\n").as_bytes())?;
        let mut bread = String::new();
        BufReader::new(&bakery).read_line(&mut bread)?;
        if bread != format!("bread {order}\n") {
            return Err(io::Error::other(format!("order {order} got {bread:?}")));
        }
        time += start.elapsed();
    }
}
