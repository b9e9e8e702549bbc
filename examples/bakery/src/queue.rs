//! Orders that wait for a baker.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::server::Order;

/// First in, first out.
#[derive(Default)]
pub(crate) struct Queue {
    orders: Mutex<VecDeque<Box<Order>>>,
    filled: Condvar,
}

impl Queue {
    /// Waits for an order.
    pub(crate) fn pop(&self) -> Box<Order> {
        let mut orders = self.lock();
        loop {
            if let Some(order) = orders.pop_front() {
                return order;
            }
            let woken = self.filled.wait(orders);
            orders = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Box<Order>>> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts an order into the queue: from here on it waits for a baker.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn queue_push(queue: &Queue, order: Box<Order>) {
    queue.lock().push_back(order);
    queue.filled.notify_one();
}
