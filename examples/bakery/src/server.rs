//! What happens to an order: this is the code to trace.
//!
//! In: a connection for each order, with the line `bake N`. Out: the line `bread N`.
//!
//! The four functions that `bakery.toml` names are `extern "C"`, so that their arguments are in the registers
//! where every C compiler puts them, and have names that are not mangled. No service need do that: its compiler
//! chooses, and `reqtrace functions` says what functions are called.

use std::hint::black_box;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::Result;
use crate::queue::{Queue, queue_push};

/// How long bread is in the oven, which has room for one.
const IN_THE_OVEN: Duration = Duration::from_micros(200);
/// How long it cools down.
const COOLING: Duration = Duration::from_micros(300);

/// One request. It moves from thread to thread, but stays at its address until it is done.
#[repr(C)]
pub(crate) struct Order {
    number: u64,
    weight_g: u64,
    customer: TcpStream,
}

/// Serves until it is killed.
pub(crate) fn serve(address: &str, bakers: usize) -> Result<()> {
    let listener = TcpListener::bind(address)?;
    println!("listening on {}", listener.local_addr()?);
    io::stdout().flush()?;
    let queue = Arc::new(Queue::default());
    let oven = Arc::new(Mutex::new(()));
    for _ in 0..bakers {
        let (queue, oven) = (Arc::clone(&queue), Arc::clone(&oven));
        let baker = thread::Builder::new().name("baker".into());
        baker.spawn(move || {
            loop {
                serve_one(queue.pop(), &oven);
            }
        })?;
    }
    accept(&listener, &queue);
    Ok(())
}

/// The acceptor: reads what the customer wants, and hands it on.
fn accept(listener: &TcpListener, queue: &Queue) {
    for customer in listener.incoming() {
        match customer.and_then(read_order) {
            Ok(mut order) => {
                take_order(&mut order);
                queue_push(queue, order);
            }
            Err(error) => eprintln!("bakery: no order: {error}"),
        }
    }
}

/// A baker, with an order from the queue.
fn serve_one(mut order: Box<Order>, oven: &Mutex<()>) {
    bake(&order, oven);
    hand_over(&mut order);
}

fn read_order(customer: TcpStream) -> io::Result<Box<Order>> {
    customer.set_nodelay(true)?;
    let mut line = String::new();
    BufReader::new(&customer).read_line(&mut line)?;
    let number = line.trim().strip_prefix("bake ");
    let number = number.and_then(|number| number.parse().ok());
    let number = number.ok_or_else(|| io::Error::other(format!("{line:?} is no order")))?;
    Ok(Box::new(Order {
        number,
        weight_g: 0,
        customer,
    }))
}

/// A request begins: the acceptor looks how much flour it takes.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn take_order(order: &mut Order) {
    order.weight_g = 500 + order.number % 3 * 250;
    knead(2_000);
}

/// A baker goes on with it.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn bake(order: &Order, oven: &Mutex<()>) {
    knead(order.weight_g * 40);
    use_oven(oven);
    thread::sleep(COOLING);
}

/// It ends when this function returns: the customer has the bread.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn hand_over(order: &mut Order) {
    let bread = format!("bread {}\n", order.number);
    if let Err(error) = order.customer.write_all(bread.as_bytes()) {
        eprintln!("bakery: order {}: {error}", order.number);
    }
}

/// Waits for the others who bake.
#[inline(never)]
fn use_oven(oven: &Mutex<()>) {
    let oven = oven.lock().unwrap_or_else(PoisonError::into_inner);
    thread::sleep(IN_THE_OVEN);
    drop(oven);
}

/// Works on the CPU.
fn knead(rounds: u64) {
    let mut dough = rounds;
    for round in 0..rounds {
        dough = black_box(dough.rotate_left(5) ^ round);
    }
}
