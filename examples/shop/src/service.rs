//! What happens to one order: this is the code to trace.
//!
//! In: an order number and a connection's payment terminal. Out: a [`Receipt`]. Reading the order
//! from the client and answering it are in `server.rs`, outside the request.

use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use example_clock as clock;

use crate::payment::Terminal;

/// Different goods on the shelf.
const GOODS: usize = 64;
/// What is on the shelf of each after a restock.
const FULL_SHELF: u32 = 1000;
/// Every so many orders the shelves are counted, with the stock locked.
const COUNT_EVERY: u64 = 16;
/// Every so many orders the journal is made durable.
const SYNC_EVERY: u64 = 4;
/// How long the courier needs.
const COURIER: Duration = Duration::from_micros(300);
/// How much longer a slow one does.
const DETOUR: Duration = Duration::from_millis(1);
/// How long a janitor in the way sleeps with the stock locked.
const SWEEP: Duration = Duration::from_millis(2);

/// What all connections share.
pub(crate) struct Shop {
    stock: Mutex<[u32; GOODS]>,
    journal: File,
    orders: AtomicU64,
    slower: Option<Step>,
}

/// A step of an order, to be made slower: what a comparison of two traces should name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The janitor sleeps with the stock locked.
    Stock,
    /// The payment desk thinks longer.
    Payment,
    /// The journal is made durable at each order.
    Journal,
    /// The courier needs longer.
    Courier,
}

impl std::str::FromStr for Step {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "stock" => Ok(Self::Stock),
            "payment" => Ok(Self::Payment),
            "journal" => Ok(Self::Journal),
            "courier" => Ok(Self::Courier),
            _ => Err(format!(
                "--slower {name}: give stock, payment, journal or courier"
            )),
        }
    }
}

/// What came of one order, and the clock inside the call at both ends.
pub(crate) struct Receipt {
    /// Clock, first thing in `handle_request`.
    pub(crate) inner_begin_ns: u64,
    /// Clock, last thing in `handle_request`.
    pub(crate) inner_end_ns: u64,
    /// What the customer pays.
    pub(crate) total: io::Result<u64>,
}

impl Shop {
    /// Opens the shop with its journal in `data`.
    pub(crate) fn open(data: &Path, slower: Option<Step>) -> io::Result<Self> {
        std::fs::create_dir_all(data)?;
        let journal = OpenOptions::new()
            .create(true)
            .append(true)
            .open(data.join("journal"))?;
        Ok(Self {
            stock: Mutex::new([FULL_SHELF; GOODS]),
            journal,
            orders: AtomicU64::new(0),
            slower,
        })
    }

    /// Fills the shelves. The janitor does this, never a request.
    pub(crate) fn restock(&self) {
        let mut stock = self.lock_stock();
        stock.fill(FULL_SHELF);
        if self.slower == Some(Step::Stock) {
            thread::sleep(SWEEP);
        }
    }

    fn lock_stock(&self) -> MutexGuard<'_, [u32; GOODS]> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One request: from the first instruction of this function to its return.
///
/// Not inlined, so that there is a function to probe. The clock is read first and last, for the
/// log; a service need not do that to be traced.
#[inline(never)]
pub(crate) fn handle_request(shop: &Shop, terminal: &mut Terminal, order: u64) -> Receipt {
    let inner_begin_ns = clock::now_ns();
    let total = fulfil(shop, terminal, order);
    let inner_end_ns = clock::now_ns();
    Receipt {
        inner_begin_ns,
        inner_end_ns,
        total,
    }
}

/// The steps of an order, each with another way to lose time.
fn fulfil(shop: &Shop, terminal: &mut Terminal, order: u64) -> io::Result<u64> {
    let number = shop.orders.fetch_add(1, Ordering::Relaxed);
    let price = take_stock(shop, order, number);
    let total = add_tax(price);
    terminal.pay(total)?;
    write_journal(shop, order, number, total)?;
    call_courier(shop.slower == Some(Step::Courier));
    Ok(total)
}

/// Waits for a lock: now and then someone counts all shelves while holding it.
#[inline(never)]
fn take_stock(shop: &Shop, order: u64, number: u64) -> u64 {
    let mut stock = shop.lock_stock();
    if number.is_multiple_of(COUNT_EVERY) {
        black_box(count_shelves(&*stock, 20_000));
    }
    let shelf = usize::try_from(order).unwrap_or(0) % GOODS;
    stock[shelf] = stock[shelf].saturating_sub(1);
    100 + count_shelves(&*stock, 20) % 900
}

/// Counts `times` over, as people do.
fn count_shelves(stock: &[u32], times: u32) -> u64 {
    (0..times)
        .map(|_| black_box(stock).iter().copied().map(u64::from).sum::<u64>())
        .sum()
}

/// Works on the CPU.
#[inline(never)]
fn add_tax(price: u64) -> u64 {
    let mut tax = price;
    for round in 0..20_000_u64 {
        tax = black_box(tax.rotate_left(5) ^ round.wrapping_mul(price));
    }
    price + tax % 19
}

/// Waits for the disk, every [`SYNC_EVERY`] orders.
#[inline(never)]
fn write_journal(shop: &Shop, order: u64, number: u64, total: u64) -> io::Result<()> {
    // One write each: lines of an appended file do not mix.
    (&shop.journal).write_all(format!("{number} {order} {total}\n").as_bytes())?;
    if number.is_multiple_of(SYNC_EVERY) || shop.slower == Some(Step::Journal) {
        shop.journal.sync_data()?;
    }
    Ok(())
}

/// Sleeps.
#[inline(never)]
fn call_courier(is_slow: bool) {
    thread::sleep(if is_slow { COURIER + DETOUR } else { COURIER });
}
