//! Verdicts of incidents that are known, and of none.

mod events;
mod periods;
mod scenes;
mod world;
