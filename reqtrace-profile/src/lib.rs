//! Profiles: TOML text in, [`Profile`] out, nothing resolved yet.
//!
//! `schema` knows keys and types, `validate` everything that can be checked without a process,
//! `builtin` the profiles that come with the program, `services` puts those of several services together.
//!
//! What a profile has stands in layers, each made of those before it: `edge`, `place`, `value`, `marker`; `label`, `program` and
//! `attribute`; `request` and `wait`; `profile`.

mod attribute;
pub mod builtin;
mod cheap;
mod edge;
mod label;
mod marker;
pub mod matching;
mod place;
mod profile;
mod program;
mod request;
mod runtime;
mod schema;
mod services;
mod settle;
mod source;
mod validate;
mod value;
mod wait;

pub use attribute::{AttributeAt, AttributeSpec};
pub use cheap::CHEAP;
pub use edge::{Change, Edge};
pub use label::{LabelKind, LabelSpec};
pub use marker::{KeySpec, MarkerSpec, Role};
pub use place::{At, PlaceSpec};
pub use profile::{Origin, Profile};
pub use program::{OnlyIf, ProgramCondition, Sign};
pub use request::{Instead, RequestSpec, ReturnProbe};
pub use runtime::{
    BESIDE_REQUESTS, BESIDE_REQUESTS_MANGLED, DRIVERS_OF_TOKIO, GIVEN_UP, GOES_ON, RUNTIME, SCHED,
    SLEEP_OF_GO, STOPPED, TokioDriver, TokioWait, TokioWaker, WAITS_OF_TOKIO, WAKERS_OF_TOKIO,
    dropped_of_tokio, joins_of_tokio, place_of_reason,
};
pub use services::Profiles;
pub use value::{ConditionSpec, Test, ValueSource, ValueSpec};
pub use wait::{CALLS, Combine, WaitSpec};
