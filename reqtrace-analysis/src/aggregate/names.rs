//! Stacks and the names of what is on them: events in, frames by id out.

use std::sync::Arc;

use reqtrace_base::plain::Plain;
use reqtrace_common::limits::MAX_FRAMES;
use reqtrace_common::record::StackId;
use reqtrace_common::unwind::Stop;
use reqtrace_recording::{Address, AddressSpace, KERNEL, NOWHERE, Name, Stack};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::symbolize::{Frame, UNKNOWN};

/// Frames of a stack that are shown, those of inlined calls with them.
const MAX_SHOWN: usize = 8 * MAX_FRAMES;
/// The frame of those that are not.
const MORE_FRAMES: &str = "[truncated: more frames]";
/// Addresses that are kept, and stacks; the names of further ones are not known.
const MAX_ADDRESSES: usize = 1 << 20;
const MAX_KEPT: usize = 1 << 18;
/// Functions of all addresses, those of inlined calls with them.
const MAX_FUNCTIONS: usize = 1 << 22;
/// Bytes of all texts that are kept, with what each takes beside its own.
const MAX_BYTES: usize = 64 << 20;
const BESIDE: usize = 96;
/// Bytes of a name that are shown.
const MAX_NAME: usize = 4 << 10;

/// A stack: whose (`None` for the kernel's), and its id.
pub(super) type StackKey = (Option<AddressSpace>, StackId);

/// Stacks and names that came in events.
#[derive(Debug, Default)]
pub(super) struct Names {
    stacks: FxHashMap<StackKey, Known>,
    /// Indices into `frames` of addresses, and whether it is a return address.
    numbers: FxHashMap<(Address, bool), u32>,
    /// `None` until the names have come.
    frames: Vec<Option<Box<[Frame]>>>,
    /// The same as numbers of texts.
    texts: Vec<Box<[Text]>>,
    /// Of all of them.
    functions: usize,
    /// Indices that stand for nothing.
    free: Vec<u32>,
    pub(super) table: Texts,
    /// The object that a function of this name is in; `None` for several.
    objects: FxHashMap<Text, Option<u32>>,
}

/// The number of a text.
pub(super) type Text = u32;

/// Texts by number, each once: there are many stacks, and few functions.
#[derive(Debug, Default)]
pub(super) struct Texts {
    numbers: FxHashMap<Arc<str>, Text>,
    texts: Vec<Arc<str>>,
    bytes: usize,
}

impl Texts {
    /// The number of a text; that of [`UNKNOWN`] when there is no room for it.
    pub(super) fn number(&mut self, text: &str) -> Text {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        if self.bytes > MAX_BYTES && text != UNKNOWN {
            return self.number(UNKNOWN);
        }
        self.bytes += text.len() + BESIDE;
        let number = self.texts.len() as Text;
        let text: Arc<str> = text.into();
        self.texts.push(Arc::clone(&text));
        self.numbers.insert(text, number);
        number
    }

    /// The frame of that name.
    fn frame(&self, number: Text) -> Frame {
        Frame::new(Arc::clone(&self.texts[number as usize]))
    }

    /// The text of a number.
    pub(super) fn text(&self, number: Text) -> &str {
        &self.texts[number as usize]
    }
}

#[derive(Debug)]
struct Known {
    stop: Stop,
    /// Numbers of addresses, innermost first.
    addresses: Box<[u32]>,
}

impl Names {
    /// Takes a stack. Returns whether it was known as another one.
    pub(super) fn stack(&mut self, stack: &Stack) -> bool {
        let addresses = stack.addresses.iter().enumerate();
        let known = Known {
            stop: Stop::of(stack.stop),
            addresses: addresses
                .map(|(depth, address)| self.number(*address, depth > 0))
                .collect(),
        };
        match self.stacks.get(&(stack.space, stack.id)) {
            None if self.stacks.len() >= MAX_KEPT => false,
            Some(before) if before.addresses == known.addresses => false,
            before => {
                let differs = before.is_some();
                self.stacks.insert((stack.space, stack.id), known);
                differs
            }
        }
    }

    /// Takes the names of an address. Returns whether it had other names before.
    pub(super) fn name(&mut self, name: &Name) -> bool {
        let number = self.number(name.address, name.is_return) as usize;
        // All names come again after a while, in the place of those before.
        let before = self.frames[number].as_ref().map_or(0, |known| known.len());
        let functions = self.functions - before + name.frames.len();
        if number == MAX_ADDRESSES || functions > MAX_FUNCTIONS {
            return false;
        }
        self.functions = functions;
        let shown = |frame: &String| frame.floor_char_boundary(MAX_NAME);
        let frames = name
            .frames
            .iter()
            .map(|frame| Plain::of(&frame[..shown(frame)]));
        let texts = frames.map(|frame| self.table.number(&frame));
        let texts: Box<[Text]> = texts.collect();
        for text in &texts {
            let object = Some(name.address.object);
            let known = self.objects.entry(*text).or_insert(object);
            if *known != object {
                *known = None;
            }
        }
        let frames: Box<[Frame]> = texts.iter().map(|text| self.table.frame(*text)).collect();
        self.texts[number] = texts;
        let known = &mut self.frames[number];
        let differs = known.as_ref().is_some_and(|before| *before != frames);
        *known = Some(frames);
        differs
    }

    fn number(&mut self, address: Address, is_return: bool) -> u32 {
        if let Some(number) = self.numbers.get(&(address, is_return)) {
            return *number;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            if self.frames.len() <= MAX_ADDRESSES {
                self.frames.push(None);
                self.texts.push([self.table.number(UNKNOWN)].into());
            }
            (self.frames.len() - 1) as u32
        });
        // The last one is that of all for which there is no room.
        if (number as usize) < MAX_ADDRESSES {
            self.numbers.insert((address, is_return), number);
        }
        number
    }

    /// Forgets the stacks that are not wanted any more. The names of addresses stay: there are as many
    /// as the programs have places to call from. Addresses that nothing was mapped at go: each process
    /// has its own, and they have no names.
    pub(super) fn forget_stacks(&mut self, is_wanted: impl Fn(&StackKey) -> bool) {
        self.stacks.retain(|key, _| is_wanted(key));
        self.stacks.shrink_to_fit();
        let kept = self.stacks.values().flat_map(|known| &known.addresses);
        let kept: FxHashSet<u32> = kept.copied().collect();
        let frames = &self.frames;
        let free = &mut self.free;
        self.numbers.retain(|(address, _), number| {
            let is_named = frames[*number as usize].is_some();
            let stays = address.object != NOWHERE || is_named || kept.contains(number);
            if !stays {
                free.push(*number);
            }
            stays
        });
        self.numbers.shrink_to_fit();
    }

    /// Addresses of which something is kept.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.frames.len()
    }

    /// The frames of a stack, innermost first, inlined calls included; `None` when it is not known.
    pub(super) fn frames(&self, key: StackKey) -> Option<Vec<Frame>> {
        let known = self.stacks.get(&key)?;
        let mut frames = Vec::with_capacity(known.addresses.len() + 1);
        for number in &known.addresses {
            match &self.frames[*number as usize] {
                Some(names) => frames.extend_from_slice(names),
                None => frames.push(Frame::new(UNKNOWN)),
            }
            if frames.len() > MAX_SHOWN {
                frames.truncate(MAX_SHOWN);
                frames.push(Frame::new(MORE_FRAMES));
                return Some(frames);
            }
        }
        if let Some(reason) = known.stop.reason() {
            frames.push(Frame::new(format!("[truncated: {reason}]")));
        }
        Some(frames)
    }

    /// The same frames as texts.
    pub(super) fn texts(&mut self, key: StackKey) -> Option<Vec<Text>> {
        let known = self.stacks.get(&key)?;
        let addresses = known.addresses.iter();
        let texts = addresses.flat_map(|number| self.texts[*number as usize].iter());
        let mut texts: Vec<Text> = texts.copied().take(MAX_SHOWN + 1).collect();
        if texts.len() > MAX_SHOWN {
            texts[MAX_SHOWN] = self.table.number(MORE_FRAMES);
        } else if let Some(reason) = known.stop.reason() {
            texts.push(self.table.number(&format!("[truncated: {reason}]")));
        }
        Some(texts)
    }

    /// The one object that functions of this name are in.
    pub(super) fn object(&self, text: Text) -> Option<u32> {
        self.objects.get(&text).copied().flatten()
    }

    /// Why the walk of a stack stopped, and how many addresses it has.
    pub(super) fn walk(&self, key: StackKey) -> Option<(Stop, usize)> {
        let known = self.stacks.get(&key)?;
        Some((known.stop, known.addresses.len()))
    }

    /// All frames of the kernel, or of programs, that were named.
    pub(super) fn all(&self, of_kernel: bool) -> impl Iterator<Item = &Frame> {
        let of_side =
            move |(address, _): &&(Address, bool)| (address.object == KERNEL) == of_kernel;
        let numbers = self.numbers.iter().filter(move |(key, _)| of_side(key));
        numbers
            .filter_map(|(_, number)| self.frames[*number as usize].as_deref())
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_come_again_take_no_more_room() {
        let mut names = Names::default();
        let name = |offset, frames: &[&str]| Name {
            address: Address { object: 1, offset },
            is_return: false,
            frames: frames.iter().map(|frame| (*frame).to_owned()).collect(),
        };
        for _ in 0..3 {
            assert!(!names.name(&name(1, &["inlined", "function"])));
            assert!(!names.name(&name(2, &["other"])));
            assert_eq!(names.functions, 3);
        }
        assert!(names.name(&name(1, &["function"])));
        assert_eq!(names.functions, 2);
        // What there is no room for takes none either, and what was known stays.
        names.functions = MAX_FUNCTIONS;
        assert!(!names.name(&name(1, &["inlined", "function"])));
        assert!(!names.name(&name(3, &["third"])));
        assert_eq!(names.functions, MAX_FUNCTIONS);
        assert!(names.name(&name(1, &["again"])));
        assert_eq!(names.functions, MAX_FUNCTIONS);
    }
}
