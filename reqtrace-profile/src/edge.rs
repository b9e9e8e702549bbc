//! Edges of units of a runtime, tasks of tokio and goroutines: what happens to one in, what that is called out.

/// What happens to a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// It is put into a queue of the runtime: spawned, woken, or because it has yielded.
    Queue,
    /// A thread is about to run it.
    Resume,
    /// A thread has run it, and it is not done.
    Leave,
    /// It looks whether what it may wait for has come.
    Wait,
    /// What is to wake it gets the means to do so.
    Waker,
    /// It is done.
    Done,
    /// The state of a goroutine is about to change.
    Goroutine(Change),
}

/// How the state of a goroutine changes, as far as requests see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A `go` statement has made it.
    Spawn,
    /// From waiting to runnable: what it waited for has come.
    Ready,
    /// From runnable to running: a thread is about to run it.
    Resume,
    /// A thread goes on with it as another goroutine, a coroutine of `iter.Pull` or who uses that, hands its turn over.
    Switch,
    /// From running to waiting.
    Park,
    /// From running to stopped by the runtime.
    Stop,
    /// From running, or from a system call, to runnable: it has lost its turn and waits for the next one.
    Leave,
    /// It goes on behind a panic, where that is recovered.
    Recover,
    /// It is done.
    Done,
}

impl Edge {
    /// What it is, for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Queue => "a task is put into a queue of tokio",
            Self::Resume => "a thread of tokio is about to run a task",
            Self::Leave => "a thread of tokio leaves a task that is not done",
            Self::Wait => "a task of tokio may be about to wait",
            Self::Waker => "a task of tokio says how it is woken",
            Self::Done => "a task of tokio is done",
            Self::Goroutine(Change::Spawn) => "a goroutine is made",
            Self::Goroutine(Change::Ready) => "a goroutine becomes runnable",
            Self::Goroutine(Change::Resume) => "a thread is about to run a goroutine",
            Self::Goroutine(Change::Switch) => "a thread switches to another goroutine",
            Self::Goroutine(Change::Park) => "a goroutine begins to wait",
            Self::Goroutine(Change::Stop) => "the runtime stops a goroutine",
            Self::Goroutine(Change::Leave) => "a goroutine has lost its turn",
            Self::Goroutine(Change::Recover) => "a goroutine goes on behind a panic",
            Self::Goroutine(Change::Done) => "a goroutine is done",
        }
    }
}
