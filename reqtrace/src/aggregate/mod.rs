//! tmp
/// x
pub trait StackSource {
    /// x
    fn stack(&mut self, id: reqtrace_common::record::StackId) -> Option<Vec<u64>>;
}
