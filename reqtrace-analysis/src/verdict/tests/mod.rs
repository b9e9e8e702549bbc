//! Verdicts of incidents that are known, and of none.

mod periods;
mod scenes;
mod world;
