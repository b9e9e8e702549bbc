//! Places of blocking: ids in, frames and classes out, each found once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use reqtrace_base::names::telling;
use reqtrace_base::plain::Plain;
use reqtrace_common::limits;
use reqtrace_common::record::{FILE_UNKNOWN, FileId, STACK_LOST, STACK_NONE, StackId};
use reqtrace_common::unwind::Stop;
use reqtrace_recording::{AddressSpace, BlockSite, Comm, Name, Stack, StackSumKey, Thread};
use rustc_hash::{FxHashMap, FxHashSet};

use super::names::{Names, StackKey, Text};
use super::processes::Processes;
use crate::classify::table::is_page_fault;
use crate::classify::{Block, Classifier, is_lost};
use crate::profile::CALLS;
use crate::symbolize::Frame;
use reqtrace_profile::matching::function_matches;

/// Classes that are kept; beyond it they are decided again.
const MAX_CLASSES: usize = 1 << 16;
/// Threads whose names are kept; beyond it a waker has the name of its process until it is named again.
const MAX_THREADS: usize = 1 << 16;
/// Files whose names are kept: the kernel's table has room for half as many at a time.
const MAX_FILES: usize = 2 * limits::MAX_FILES as usize;
/// Stacks of which frames are kept: they are put together again from the names.
const MAX_STACKS: usize = 1 << 12;

/// The frame of a stack that is lost.
pub(super) const STACK_LOST_FRAME: &str = "[stack lost]";

/// What a side of a block's stack is.
#[derive(Clone, Debug)]
pub(super) enum Side {
    /// Innermost first.
    Frames(Arc<[Frame]>),
    /// Not recorded, or there is none.
    None,
    /// Lost.
    Lost,
}

impl Side {
    pub(super) fn frames(&self) -> &[Frame] {
        match self {
            Self::Frames(frames) => frames,
            Self::None | Self::Lost => &[],
        }
    }

    /// Frames for output, outermost first; a lost stack is one frame that says so.
    pub(super) fn outermost_first(&self) -> Vec<String> {
        match self {
            Self::Frames(frames) => frames.iter().rev().map(|f| f.name.to_string()).collect(),
            Self::None => Vec::new(),
            Self::Lost => vec![STACK_LOST_FRAME.to_owned()],
        }
    }
}

/// A place of blocking for people.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Name of the wait class, or `unattributed`.
    pub(super) class: String,
    /// User frames, innermost first.
    pub(super) user: Vec<String>,
    /// Kernel frames, innermost first.
    pub(super) kernel: Vec<String>,
}

/// Everything that is known of places.
pub(super) struct Sites {
    pub(super) classifier: Classifier,
    names: Names,
    files: HashMap<FileId, String>,
    /// Those that came before [`reqtrace_recording::Event::StacksAnew`] came last.
    files_before: HashMap<FileId, String>,
    /// Files that a place was classed by without their name.
    nameless_files: FxHashSet<FileId>,
    /// By service too: its named waits are its own.
    classes: FxHashMap<(Option<usize>, AddressSpace, BlockSite), usize>,
    kernel: FxHashMap<StackId, Arc<[Frame]>>,
    user: FxHashMap<(AddressSpace, StackId), Arc<[Frame]>>,
    /// Places in few words.
    short: FxHashMap<(AddressSpace, StackId, StackId), Arc<str>>,
    pub(super) processes: Processes,
    /// Names of threads that woke others, by process and thread.
    threads: FxHashMap<(u32, u32), Plain>,
    /// Names that threads had in their last request: those that woke others may be gone by the time that
    /// their name is asked for.
    servers: FxHashMap<(u32, u32), Comm>,
    /// How often classes were decided again, with other names.
    pub(super) decided_anew: u64,
    /// Look-ups of stacks that are not known although an event refers to them.
    pub(super) unknown_stacks: u64,
}

impl std::fmt::Debug for Sites {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sites")
            .field("classes", &self.classes.len())
            .field("kernel", &self.kernel.len())
            .field("user", &self.user.len())
            .finish_non_exhaustive()
    }
}

impl Sites {
    pub(super) fn new(classifier: Classifier) -> Self {
        Self {
            classifier,
            names: Names::default(),
            files: HashMap::new(),
            files_before: HashMap::new(),
            nameless_files: FxHashSet::default(),
            classes: FxHashMap::default(),
            kernel: FxHashMap::default(),
            user: FxHashMap::default(),
            short: FxHashMap::default(),
            processes: Processes::default(),
            threads: FxHashMap::default(),
            servers: FxHashMap::default(),
            decided_anew: 0,
            unknown_stacks: 0,
        }
    }

    /// Takes a stack.
    pub(super) fn stack(&mut self, stack: &Stack) {
        if self.names.stack(stack) {
            self.decide_anew();
        }
    }

    /// Takes the names of an address.
    pub(super) fn name(&mut self, name: &Name) {
        if self.names.name(name) {
            self.decide_anew();
        }
    }

    /// What was decided with other names is decided again, which is rare: a library or generated code
    /// got its names later.
    fn decide_anew(&mut self) {
        self.decided_anew += 1;
        self.classes.clear();
        self.kernel.clear();
        self.user.clear();
        self.short.clear();
    }

    /// The name of a file. It comes before the first request that blocked on it, unless the ring had
    /// no room for it: then what was decided without it is decided again.
    pub(super) fn file(&mut self, file: FileId, path: &str) {
        if self.files.len() < MAX_FILES || self.files.contains_key(&file) {
            self.files.insert(file, Plain::of(path).into());
        }
        if self.nameless_files.remove(&file) {
            self.classes.retain(|(_, _, site), _| site.file != file);
        }
    }

    /// The file behind the descriptor of a place.
    pub(super) fn file_of(&self, site: &BlockSite) -> Option<&str> {
        let known = self.files.get(&site.file);
        known
            .or_else(|| self.files_before.get(&site.file))
            .map(String::as_str)
    }

    /// The file that a block at a place waited for: one outside system calls only if it was a page fault.
    pub(super) fn file_waited_for(&mut self, site: &BlockSite) -> Option<&str> {
        if site.syscall < 0 && site.file > FILE_UNKNOWN {
            let kernel = self.kernel_side(site.kernel_stack);
            let has_names = kernel.frames().iter().any(Frame::is_named);
            if has_names && !is_page_fault(kernel.frames()) {
                return None;
            }
        }
        self.file_of(site)
    }

    /// Takes the name of a thread that woke another.
    pub(super) fn thread(&mut self, thread: &Thread) {
        let key = (thread.tgid, thread.tid);
        self.servers.remove(&key);
        insert(&mut self.threads, MAX_THREADS, key, Plain::of(&thread.name));
    }

    /// Takes the name of a thread that has served a request.
    pub(super) fn serves(&mut self, tgid: u32, tid: u32, comm: Comm) {
        let key = (tgid, tid);
        if !comm.is_empty() && self.servers.get(&key) != Some(&comm) {
            insert(&mut self.servers, MAX_THREADS, key, comm);
        }
    }

    /// Name of a thread. One of which only the process is known is `[thread of PROCESS]`.
    pub(super) fn thread_comm(&self, tgid: u32, tid: u32) -> Plain {
        let key = (tgid, tid);
        if let Some(comm) = self.servers.get(&key) {
            return comm.text();
        }
        if let Some(name) = self.threads.get(&key) {
            return name.clone();
        }
        let process = self.processes.comm(tgid);
        if tid == tgid {
            process
        } else {
            Plain::of(&format!("[thread of {process}]"))
        }
    }

    /// The class of a place where a request of this type was blocked, or a thread in no request: an index
    /// into the classifier's names; `None` when its stack is lost.
    pub(super) fn class(
        &mut self,
        request_type: Option<u32>,
        space: AddressSpace,
        site: &BlockSite,
    ) -> Option<usize> {
        if is_lost(site) {
            return None;
        }
        let service = request_type.and_then(|number| self.classifier.service(number));
        let key = (service, space, *site);
        if let Some(&known) = self.classes.get(&key) {
            return Some(known);
        }
        let kernel = match self.kernel_side(site.kernel_stack) {
            Side::Lost => return None,
            side => side,
        };
        let user = if self.classifier.needs_user() {
            self.user_side(space, site.user_stack)
        } else {
            Side::None
        };
        let file = self.file_waited_for(site).map(str::to_owned);
        let block = Block {
            kernel: kernel.frames(),
            user: user.frames(),
            file: file.as_deref(),
            syscall: site.syscall,
        };
        let class = self.classifier.class(service, &block);
        if site.file > FILE_UNKNOWN && self.file_of(site).is_none() {
            self.nameless_files.insert(site.file);
        }
        insert(&mut self.classes, MAX_CLASSES, key, class);
        Some(class)
    }

    /// A place where a request of this type was blocked, with all its names.
    pub(super) fn place(
        &mut self,
        request_type: u32,
        space: AddressSpace,
        site: &BlockSite,
    ) -> Place {
        let class = self.class(Some(request_type), space, site);
        let [user, kernel] = self.frames_of(space, site);
        Place {
            class: class.map_or_else(
                || "unattributed".to_owned(),
                |class| self.classifier.names()[class].clone(),
            ),
            user,
            kernel,
        }
    }

    /// User and kernel frames of a place, innermost first.
    pub(super) fn frames_of(&mut self, space: AddressSpace, site: &BlockSite) -> [Vec<String>; 2] {
        let innermost_first = |side: Side| {
            let mut frames = side.outermost_first();
            frames.reverse();
            frames
        };
        [
            innermost_first(self.user_side(space, site.user_stack)),
            innermost_first(self.kernel_side(site.kernel_stack)),
        ]
    }

    /// A place in few words: the frames that say most, innermost first.
    pub(super) fn short(&mut self, space: AddressSpace, site: &BlockSite) -> Arc<str> {
        let key = (space, site.user_stack, site.kernel_stack);
        if let Some(known) = self.short.get(&key) {
            return Arc::clone(known);
        }
        let [user, kernel] = self.frames_of(space, site);
        let user = user.iter().map(String::as_str);
        let kernel = kernel.iter().map(String::as_str);
        let text: Arc<str> = telling(user, kernel).join(" ← ").into();
        insert(&mut self.short, MAX_STACKS, key, Arc::clone(&text));
        text
    }

    pub(super) fn kernel_side(&mut self, id: StackId) -> Side {
        if let Some(known) = self.kernel.get(&id) {
            return Side::Frames(Arc::clone(known));
        }
        let frames = match self.frames((None, id)) {
            Ok(frames) => frames,
            Err(side) => return side,
        };
        insert(&mut self.kernel, MAX_STACKS, id, Arc::clone(&frames));
        Side::Frames(frames)
    }

    pub(super) fn user_side(&mut self, space: AddressSpace, id: StackId) -> Side {
        if let Some(known) = self.user.get(&(space, id)) {
            return Side::Frames(Arc::clone(known));
        }
        let frames = match self.frames((Some(space), id)) {
            Ok(frames) => frames,
            Err(side) => return side,
        };
        insert(&mut self.user, MAX_STACKS, (space, id), Arc::clone(&frames));
        Side::Frames(frames)
    }

    /// The frames of a stack as texts, outermost first; of a lost one a text that says so.
    pub(super) fn texts(&mut self, space: Option<AddressSpace>, id: StackId) -> Vec<Text> {
        let texts = match id {
            STACK_NONE => return Vec::new(),
            STACK_LOST => None,
            _ => self.names.texts((space, id)),
        };
        match texts {
            Some(mut texts) => {
                texts.reverse();
                texts
            }
            None => {
                self.unknown_stacks += u64::from(id != STACK_LOST);
                vec![self.names.table.number(STACK_LOST_FRAME)]
            }
        }
    }

    /// The number of a text.
    pub(super) fn number(&mut self, text: &str) -> Text {
        self.names.table.number(text)
    }

    /// The one object that functions of this name are in.
    pub(super) fn object_of(&self, text: Text) -> Option<u32> {
        self.names.object(text)
    }

    /// The text of a number.
    pub(super) fn text(&self, number: Text) -> &str {
        self.names.table.text(number)
    }

    fn frames(&mut self, key: StackKey) -> Result<Arc<[Frame]>, Side> {
        match key.1 {
            STACK_LOST => Err(Side::Lost),
            STACK_NONE => Err(Side::None),
            _ => self.names.frames(key).map(Into::into).ok_or_else(|| {
                self.unknown_stacks += 1;
                Side::Lost
            }),
        }
    }

    /// Patterns of functions that match no user frame that was seen, of those that no symbol
    /// matches: generated code has its names elsewhere.
    pub(super) fn without_matches(
        &self,
        mut waits: Vec<(String, Vec<String>)>,
    ) -> Vec<(String, Vec<String>)> {
        if waits.is_empty() {
            return waits;
        }
        let seen: HashSet<&str> = self.names.all(false).map(|frame| &*frame.name).collect();
        for (_, patterns) in &mut waits {
            patterns.retain(|pattern| {
                let mut links = pattern.split(CALLS).map(str::trim);
                !links.all(|link| seen.iter().any(|name| function_matches(link, name)))
            });
        }
        waits.retain(|(_, patterns)| !patterns.is_empty());
        waits
    }

    /// Whether there are frames of the kernel, and none of them has a name.
    pub(super) fn kernel_is_nameless(&self) -> bool {
        let mut frames = self.names.all(true).peekable();
        frames.peek().is_some() && !frames.any(Frame::is_named)
    }

    /// Forgets the stacks that are in none of these places, and the files of the period before.
    pub(super) fn forget_stacks(
        &mut self,
        wanted: impl Iterator<Item = (AddressSpace, BlockSite)>,
    ) {
        let wanted: Vec<_> = wanted.collect();
        let mut kept = std::mem::take(&mut self.files_before);
        let of_places: HashSet<FileId> = wanted.iter().map(|(_, site)| site.file).collect();
        kept.retain(|file, _| of_places.contains(file));
        self.files_before = std::mem::replace(&mut self.files, kept);
        self.nameless_files.clear();
        let sides = wanted
            .into_iter()
            .flat_map(|(space, site)| [(None, site.kernel_stack), (Some(space), site.user_stack)]);
        let wanted: HashSet<StackKey> = sides.collect();
        self.names.forget_stacks(|key| wanted.contains(key));
        self.decide_anew();
    }

    /// Addresses and processes of which something is kept.
    #[cfg(test)]
    pub(super) fn kept(&self) -> (usize, usize) {
        (self.names.kept(), self.processes.kept())
    }

    /// Why the walk of a user stack stopped, and how many addresses it has; `None` when it is lost or
    /// not recorded.
    pub(super) fn user_walk(&self, space: AddressSpace, id: StackId) -> Option<(Stop, usize)> {
        self.names.walk((Some(space), id))
    }
}

/// The address space of a key of the sums per stack pair.
pub(super) fn space_of(key: &StackSumKey) -> AddressSpace {
    AddressSpace {
        tgid: key.tgid,
        exec_generation: key.exec_generation,
    }
}

/// The place of blocking of a key of the sums per stack pair.
pub(super) fn site_of(key: &StackSumKey) -> BlockSite {
    BlockSite {
        kernel_stack: key.kernel_stack,
        user_stack: key.user_stack,
        syscall: key.syscall,
        file: key.file,
    }
}

fn insert<K: std::hash::Hash + Eq, V>(cache: &mut FxHashMap<K, V>, most: usize, key: K, value: V) {
    if cache.len() >= most {
        cache.clear();
    }
    cache.insert(key, value);
}
