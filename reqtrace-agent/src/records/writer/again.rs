//! What a killed agent has left: its journals in; their files, made again, out.

use log::{info, warn};
use reqtrace_base::error::{Error, Result};

use super::{Open, Thread};
use crate::records::journal::{Head, Left};
use crate::records::{Record, Table as _};

impl<R: Record> Thread<R> {
    /// Makes files of an agent that was killed again, from their journals; as long as there is no room they stay.
    pub(super) fn make_again(&mut self) {
        for name in std::mem::take(&mut self.left) {
            let path = self.spool.journal(&name);
            match Left::open(&path) {
                Ok(Some(left)) => {
                    if !self.make_room(left.bytes()) {
                        self.left.push(name);
                    } else if let Err(error) = self.make_one_again(&name, &left) {
                        warn!(
                            "{}: {name} of an agent that was killed is not made again: {error}",
                            R::KIND.start
                        );
                    }
                }
                // It has no record.
                Ok(None) => self.forget(&name),
                Err(error) => warn!(
                    "{}: the journal of {name} cannot be read: {error}",
                    R::KIND.start
                ),
            }
        }
    }

    fn make_one_again(&mut self, name: &str, left: &Left) -> Result<()> {
        let Head { of, hour, .. } = &left.head;
        let cannot = |error| Error::failed("it cannot be written").because(error);
        if left.is_whole {
            // It may have been handed over, and taken away since.
            if let Some(made) = self.spool.made(name).map_err(cannot)? {
                let handed = self.spool.hand_over(name, &made, &of.service, *hour);
                handed.map_err(cannot)?;
            }
            self.forget(name);
            return Ok(());
        }
        let file = self.spool.begin_again(name).map_err(cannot)?;
        let journal = left.go_on().map_err(cannot)?;
        let service = of.service.clone();
        let mut open: Option<Open<R>> = None;
        let mut made = Some((file, journal));
        left.records(|record| {
            if let Some((file, journal)) = made.take() {
                open = Some(Open::begin(
                    left.head.clone(),
                    name,
                    file,
                    journal,
                    &record,
                )?);
            }
            let open = open.as_mut().ok_or(std::io::ErrorKind::InvalidData)?;
            open.add(&record, &self.spool.host)
                .map_err(std::io::Error::other)
        })
        .map_err(cannot)?;
        match open {
            Some(open) => {
                let (kind, rows) = (R::KIND.start, open.table.rows());
                info!("{kind}: {name} of an agent that was killed is made again; {kind}: {rows}");
                R::count(&self.metrics, |of| of.made_again += rows);
                self.close_it(&service, open);
            }
            None => self.forget(name),
        }
        Ok(())
    }
}
