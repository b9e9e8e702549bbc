//! Places in a program: what a marker names in, unresolved; which end of a function is meant, out.

use super::edge::Edge;

/// What a marker names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlaceSpec {
    /// An edge of the units of the program's runtime: every function that is one.
    Edge(Edge),
    /// A function by pattern; of a list, the first that resolves.
    Function {
        /// Alternatives, never empty.
        patterns: Vec<String>,
        /// Entry or return.
        at: At,
    },
    /// A file offset in the object, bytes.
    Offset(u64),
    /// A virtual address of the object, as linked.
    Address(u64),
    /// A USDT probe of the object.
    Usdt {
        /// Who defines it.
        provider: String,
        /// Its name.
        name: String,
    },
}

/// Which end of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum At {
    /// Its first instruction.
    #[default]
    Entry,
    /// Every instruction that leaves it.
    Return,
}
