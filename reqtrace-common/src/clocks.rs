//! What takes a CPU from the thread that runs on it without a switch: interrupts, softirqs and the hypervisor. Begins and ends
//! of these in; clocks out, which only advance. What a thread lost is what they advanced while it ran.

/// Times since tracing began, ns.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// In interrupts, without the softirqs that run at their ends.
    pub interrupts_ns: u64,
    /// In softirqs, also those that a thread runs by itself, as for what it sends by loopback.
    pub softirqs_ns: u64,
    /// In which the hypervisor ran something else, also within the others.
    pub steal_ns: u64,
}

impl Clocks {
    /// At their start.
    pub const ZERO: Self = Self {
        interrupts_ns: 0,
        softirqs_ns: 0,
        steal_ns: 0,
    };

    /// Adds what they advanced between two readings.
    #[inline]
    pub const fn add(&mut self, from: &Self, until: &Self) {
        let (interrupts, softirqs) = (until.interrupts_ns, until.softirqs_ns);
        self.interrupts_ns += interrupts.saturating_sub(from.interrupts_ns);
        self.softirqs_ns += softirqs.saturating_sub(from.softirqs_ns);
        self.steal_ns += until.steal_ns.saturating_sub(from.steal_ns);
    }
}

/// The clocks of a CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuClocks {
    /// Up to `at_ns`, but for steal.
    pub clocks: Clocks,
    /// When an interrupt or a softirq last began or ended here, `CLOCK_MONOTONIC` nanoseconds.
    pub at_ns: u64,
    /// What the hypervisor had taken by then.
    pub steal_ns: u64,
    /// Interrupts that are under way: they may nest.
    pub interrupts: u32,
    /// Softirqs that are.
    pub softirqs: u32,
}

impl CpuClocks {
    /// An interrupt or softirq begins or ends now: time until then is that of the innermost one, less what was stolen
    /// meanwhile. If an interrupt came since `now` was read, it has counted that time.
    #[inline]
    pub const fn turn(&mut self, now: u64, steal_ns: u64) {
        if now <= self.at_ns {
            return;
        }
        let own_ns = (now - self.at_ns).saturating_sub(steal_ns.saturating_sub(self.steal_ns));
        if self.interrupts != 0 {
            self.clocks.interrupts_ns += own_ns;
        } else if self.softirqs != 0 {
            self.clocks.softirqs_ns += own_ns;
        }
        self.at_ns = now;
        self.steal_ns = steal_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_belongs_to_the_innermost_one() {
        let mut cpu = CpuClocks::default();
        // A softirq, an interrupt in it, and one in that.
        cpu.turn(100, 7);
        cpu.softirqs += 1;
        cpu.turn(110, 7);
        cpu.interrupts += 1;
        cpu.turn(113, 7);
        cpu.interrupts += 1;
        cpu.turn(118, 7);
        cpu.interrupts -= 1;
        cpu.turn(119, 7);
        cpu.interrupts -= 1;
        assert_eq!((cpu.clocks.interrupts_ns, cpu.clocks.softirqs_ns), (9, 10));
        // What was stolen meanwhile is no time of the softirq.
        cpu.turn(150, 17);
        cpu.softirqs -= 1;
        assert_eq!((cpu.clocks.interrupts_ns, cpu.clocks.softirqs_ns), (9, 31));
        cpu.turn(500, 400);
        assert_eq!((cpu.clocks.interrupts_ns, cpu.clocks.softirqs_ns), (9, 31));
    }

    #[test]
    fn an_interrupt_between_is_counted_once() {
        let mut cpu = CpuClocks::default();
        cpu.turn(100, 0);
        cpu.softirqs += 1;
        // The softirq's end read 150, and an interrupt came before it went on.
        cpu.turn(151, 0);
        cpu.interrupts += 1;
        cpu.turn(181, 0);
        cpu.interrupts -= 1;
        cpu.turn(150, 0);
        cpu.softirqs -= 1;
        cpu.turn(200, 0);
        assert_eq!((cpu.clocks.interrupts_ns, cpu.clocks.softirqs_ns), (30, 51));
    }

    #[test]
    fn a_thread_loses_what_they_went_on_while_it_ran() {
        let clocks = |interrupts_ns, softirqs_ns, steal_ns| Clocks {
            interrupts_ns,
            softirqs_ns,
            steal_ns,
        };
        let mut lost = Clocks::ZERO;
        lost.add(&clocks(5, 10, 20), &clocks(6, 12, 23));
        lost.add(&clocks(0, 1, 2), &clocks(0, 5, 2));
        assert_eq!(lost, clocks(1, 6, 3));
    }
}
